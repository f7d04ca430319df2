"""Log lines: for people, for machines, and silent unless asked for."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import pytest

from godwit.core.logs import JsonLines, RepeatedTrouble, get_logger, shown
from tests.hostile import HOSTILE_ERRORS, OddError


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


@pytest.mark.parametrize("kind", HOSTILE_ERRORS)
def test_a_hostile_error_and_a_hostile_field_are_logged_and_raise_nothing(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise kind
    except kind as error:
        get_logger("godwit.test").error("it broke", exc_info=error, field=error)
        get_logger("godwit.test").exception("it broke again", field=error)
    assert [record.getMessage().split(" field=")[0] for record in caplog.records] == ["it broke", "it broke again"]
    for record in caplog.records:
        json.loads(JsonLines().format(record))


def test_an_application_handler_that_raises_does_not_stop_what_logs(capsys: pytest.CaptureFixture[str]) -> None:
    class Hostile(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OddError("no records")

    logger, hostile = logging.getLogger("tests.hostile"), Hostile()
    logger.addFilter(hostile)
    try:
        get_logger("tests.hostile").error("it broke", count=3)
    finally:
        logger.removeFilter(hostile)
    assert "it broke count=3\n(the log could not be written: OddError)" in capsys.readouterr().err


def test_a_trouble_that_repeats_is_logged_once_a_minute_with_its_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    caplog.set_level(logging.INFO)
    trouble = RepeatedTrouble(get_logger("godwit.test"), "pulling waits", lambda: now[0], consumer="billing")
    for _ in range(200):
        trouble.came(ConnectionError("refused"))
        now[0] += 0.5
    assert trouble.is_there
    trouble.over("pulling goes on")
    trouble.over("pulling goes on")
    assert caplog.messages == [
        "pulling waits consumer=billing error=refused",
        "pulling waits consumer=billing error=refused times=121 for_seconds=60",
        "pulling goes on consumer=billing times=200 after_seconds=100.0",
    ]
    trouble.came(OSError("again"))
    assert caplog.messages[-1] == "pulling waits consumer=billing error=again", "a new trouble is logged at once"


def test_times_have_milliseconds_and_a_zone(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("godwit.test").warning("odd")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", json.loads(JsonLines().format(caplog.records[0]))["at"]
    )
