from __future__ import annotations

from datetime import UTC, datetime

import pytest

from godwit.core.errors import InvalidCondition
from godwit.pipeline.query.condition import Both, ColumnKind, Compare, Either, Not, OneOf, Search, parse

COLUMNS = {"type": ColumnKind.TEXT, "queue": ColumnKind.TEXT, "priority": ColumnKind.NUMBER, "at": ColumnKind.TIME}

HOSTILE = [
    "reflect('java.lang.Runtime', 'getRuntime')",
    "java_method('java.util.UUID', 'randomUUID') == type",
    "type == (select max(type) from journal)",
    "type in (select type from journal)",
    "exists(select 1)",
    "type == transform(array(1), x -> x)",
    "TRANSFORM(type) USING 'sh -c id'",
    "`type` == 'a'",
    "type == 'a' ; drop table queue_messages",
    "type == 'a' -- && priority > 1",
    "type == 'a' /* */",
    "parquet.`/etc/passwd`",
    "type == input_file_name()",
    "udf(type) == 'a'",
    "type.matches('(a+)+$')",
    "type.getClass() == 'x'",
    "1 == 1",
    "true",
    "type == type",
    "at > '2026-01-01'",
    "at > timestamp('2026-01-01')",
    "at > timestamp(current_timestamp())",
    "priority > 'high'",
    "priority > 0x10",
    "priority > 1e999",
    "priority > 9223372036854775808",
    "priority > -9223372036854775809",
    "priority in [1, 99999999999999999999999999]",
    "priority > " + "9" * 1_000,
    "priority > " + "9" * 400 + ".5",
    r"type == '\ud800'",
    "type == '\udcff'",
    r"type.contains('a\udfff')",
    "at > timestamp('0001-01-01T00:00:00+14:00')",
    "priority == true",
    "type == 5",
    "type == null && type < null",
    "type in []",
    "type in [null]",
    "type == r'a'",
    "type == b'a'",
    "type == '''a'''",
    "type = = 'a'",
    "type = 'a'",
    "type == 'a' && ",
    "type == 'a' type == 'b'",
    "(" * 41 + "type == 'a'" + ")" * 41,
    "!" * 41 + "type == 'a'",
    "(type == 'a'",
    "type == 'a')",
    "",
    "   ",
    "type == 'a' || " * 100 + "type == 'a'",
]


@pytest.mark.parametrize("condition", HOSTILE)
def test_what_is_not_a_comparison_of_a_column_with_a_value_is_refused(condition: str) -> None:
    with pytest.raises(InvalidCondition) as caught:
        parse(condition, COLUMNS)
    assert caught.value.remedy
    assert str(caught.value)


def test_comparisons_are_read_with_and_before_or() -> None:
    found = parse('type == "a" || type != "b" && priority >= 50', COLUMNS)
    assert found == Either(
        (Compare("type", "==", "a"), Both((Compare("type", "!=", "b"), Compare("priority", ">=", 50))))
    )


def test_brackets_and_negation_bind_first() -> None:
    found = parse("!(type == 'a' || priority < -2) && queue.startsWith('or')", COLUMNS)
    assert found == Both(
        (
            Not(Either((Compare("type", "==", "a"), Compare("priority", "<", -2)))),
            Search("queue", "startsWith", "or"),
        )
    )


def test_lists_times_numbers_null_and_escapes_are_values() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse("type in ['a', \"b\"]", COLUMNS) == OneOf("type", ("a", "b"))
    assert parse('at < timestamp("2026-01-31T12:00:00Z")', COLUMNS) == Compare("at", "<", moment)
    assert parse("priority < 2.5", COLUMNS) == Compare("priority", "<", 2.5)
    assert parse("type != null", COLUMNS) == Compare("type", "!=", None)
    assert parse(r"type == 'it\'s \"so\"\n'", COLUMNS) == Compare("type", "==", 'it\'s "so"\n')


def test_the_error_names_the_place() -> None:
    with pytest.raises(InvalidCondition) as caught:
        parse('type == "a" && colour == "red"', COLUMNS)
    assert caught.value.column == 16
    assert "there is no column 'colour'" in str(caught.value)
