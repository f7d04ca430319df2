from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.core.failures.failure import (
    HISTORY_LENGTH,
    MESSAGE_CHARACTERS,
    TRACEBACK_CHARACTERS,
    ErrorType,
    ProcessingError,
    fingerprint,
    remembered,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def error(text: str, traceback: str | None = None) -> ProcessingError:
    return ProcessingError(message=text, timestamp=NOW, traceback=traceback)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 17 not found", "user 4711 not found"),
        ("no 'alice' here", "no 'bob' here"),
        ('no "alice" here', 'no "bob" here'),
        ("object at 0x7f3a", "object at 0xBEEF"),
        ("id 018f0000-1111-7222-8333-444444444444 gone", "id 018fffff-aaaa-7bbb-8ccc-dddddddddddd gone"),
    ],
)
def test_errors_that_differ_in_numbers_ids_and_quotes_are_the_same(one: str, other: str) -> None:
    assert error(one).fingerprint == error(other).fingerprint


def test_errors_of_other_words_or_another_type_are_others() -> None:
    shapes = {
        error("user 17 not found").fingerprint,
        error("order 17 not found").fingerprint,
        ProcessingError(message="user 17 not found", timestamp=NOW, type=ErrorType.NETWORK).fingerprint,
    }
    assert len(shapes) == 3


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint("unknown", "user 17 not found") == "e6dd07c5a417"


@given(st.text(), st.text())
def test_a_fingerprint_is_twelve_hex_digits_of_any_text(kind: str, text: str) -> None:
    assert int(fingerprint(kind, text), 16) >= 0
    assert len(fingerprint(kind, text)) == 12


@given(st.integers(0, 60))
def test_a_history_keeps_the_first_error_and_the_newest(count: int) -> None:
    history: tuple[ProcessingError, ...] = ()
    for n in range(count):
        history = remembered(history, error(f"error {n}"))
    texts = [one.message for one in history]
    kept = min(count, HISTORY_LENGTH)
    newest = range(count - kept + 1, count) if kept else range(0)
    assert texts == ([f"error {n}" for n in (0, *newest)] if kept else [])


def test_no_error_leaves_the_history_as_it_is() -> None:
    history = (error("one"),)
    assert remembered(history, None) is history


def test_a_remembered_error_is_shortened_at_the_end_and_its_traceback_at_the_beginning() -> None:
    (kept,) = remembered((), error("m" * 9_999 + "!", traceback="t" * 99_999 + "!"))
    assert kept.message == "m" * MESSAGE_CHARACTERS
    assert kept.traceback == "t" * (TRACEBACK_CHARACTERS - 1) + "!"
