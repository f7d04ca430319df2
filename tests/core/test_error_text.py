from __future__ import annotations

import pytest

from godwit.core.error_text import TEXT_CHARACTERS, TRACEBACK_CHARACTERS, error_text, traceback_text
from tests.hostile import HOSTILE_ERRORS, OddTextError, UnshowableError


@pytest.mark.parametrize("kind", HOSTILE_ERRORS)
def test_every_error_has_a_text_that_can_be_carried(kind: type[BaseException]) -> None:
    try:
        raise kind
    except kind as error:
        shown = error_text(error), traceback_text(error)
    for text, limit in zip(shown, (TEXT_CHARACTERS, TRACEBACK_CHARACTERS), strict=True):
        assert type(text) is str
        assert 0 < len(text.encode()) <= limit + 100
        assert "\0" not in text


def test_a_text_that_cannot_be_shown_says_so() -> None:
    assert error_text(UnshowableError()) == "UnshowableError (its text cannot be shown: OddError)"


def test_what_cannot_be_carried_is_written_as_an_escape() -> None:
    assert error_text(OddTextError()).startswith(r"\ud800 \x00 xxx")


def test_an_error_without_a_text_is_shown_by_its_type() -> None:
    assert error_text(KeyError()) == "KeyError"
    assert error_text(ValueError("no such user")) == "no such user"


def test_a_cause_that_cannot_be_shown_does_not_hide_the_error() -> None:
    error = ValueError("no such user")
    error.__cause__ = UnshowableError()
    assert "no such user" in traceback_text(error)
