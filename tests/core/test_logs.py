"""Log lines: for people, for machines, and silent unless asked for."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from godwit.core.logs import JsonLines, get_logger, shown


def test_a_line_ends_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("godwit.test").warning("leases not renewed", count=3, error="no route to host")
    assert caplog.messages == ['leases not renewed count=3 error="no route to host"']


def test_json_lines_hold_the_event_and_its_fields_apart(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        get_logger("godwit.test").exception("handling broke", queue="orders", when=object)
    found = json.loads(JsonLines().format(caplog.records[0]))
    assert (found["event"], found["queue"], found["level"]) == ("handling broke", "orders", "error")
    assert "ValueError: bad" in found["traceback"]
    assert "\n" not in JsonLines().format(caplog.records[0])


def test_a_field_cannot_forge_a_second_line(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("godwit.test").warning("odd", name="a\nERROR all is lost")
    assert "\n" not in caplog.messages[0]


@pytest.mark.parametrize(("value", "text"), [(3, "3"), ("a b", '"a b"'), ("", '""'), ('say "x"', '"say \\"x\\""')])
def test_values_are_quoted_where_they_need_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_what_nobody_listens_to_is_not_even_rendered() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("rendered")

    logging.getLogger("godwit.quiet").setLevel(logging.ERROR)
    get_logger("godwit.quiet").info("unheard", value=Costly())


def test_the_library_prints_nothing_on_its_own() -> None:
    code = "from godwit.core.logs import get_logger; get_logger('godwit.x').info('hello', a=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
