from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.project.specification import DOCUMENT, ROOT, ROWS_PER_SPECIFICATION, names_of_tests, read, summary

ROWS = read(DOCUMENT.read_text(encoding="utf-8"))
cached_names = cache(names_of_tests)


def test_every_id_has_exactly_one_row() -> None:
    expected = [
        f"{specification}-{number:03}"
        for specification, count in ROWS_PER_SPECIFICATION.items()
        for number in range(1, count + 1)
    ]
    counted = Counter(row.id for row in ROWS)
    assert [row_id for row_id, count in counted.items() if count > 1] == []
    assert sorted(counted) == expected
    assert len(expected) == 627


def test_no_row_is_half_filled() -> None:
    assert [row.id for row in ROWS if row.kind == "half-filled"] == []


def test_every_named_module_and_document_exists() -> None:
    missing = {(row.id, place) for row in ROWS for place in row.places if not (ROOT / place).exists()}
    assert missing == set()


def test_every_named_test_exists() -> None:
    def exists(test: str) -> bool:
        path, found, name = test.partition("::")
        return bool(found) and (ROOT / path).is_file() and name in cached_names(ROOT / path)

    assert {(row.id, test) for row in ROWS for test in row.tests if not exists(test)} == set()


@pytest.mark.parametrize(
    ("where", "test", "kind"),
    [
        ("open", "open", "open"),
        ("not taken", "another layout", "not taken"),
        ("`godwit/core/clock.py`", "`tests/a.py::test_b`", "shown"),
        ("open", "`tests/a.py::test_b`", "half-filled"),
        ("`godwit/core/clock.py`", "open", "half-filled"),
        ("not taken", "open", "half-filled"),
    ],
)
def test_a_row_is_open_shown_not_taken_or_half_filled(where: str, test: str, kind: str) -> None:
    (row,) = read(f"| 000-001 | something | {where} | {test} |")
    assert row.kind == kind


def test_a_row_names_paths_from_the_root() -> None:
    (row,) = read(
        "| 000-001 | a | `godwit/core/clock.py`, docs/a.md | `tests/a.py::test_b`, tests/c.py::TestD::test_e |"
    )
    assert row.places == ("src/godwit/core/clock.py", "docs/a.md")
    assert row.tests == ("tests/a.py::test_b", "tests/c.py::TestD::test_e")


def test_a_broken_row_is_an_error_and_not_overlooked() -> None:
    with pytest.raises(ValueError, match="Not a row of four cells"):
        read("| 000-001 | something | open |")


def test_the_summary_counts_each_kind() -> None:
    rows = read(
        "| 000-001 | a | open | open |\n| 000-002 | b | not taken | no |\n| 000-003 | c | docs/a.md | t.py::test |"
    )
    assert summary(rows) == "specification: 1 of 3 ids shown, 1 open, 1 not taken"
