from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.telemetry.traceparent import (
    MAX_STATE_BYTES,
    TraceContext,
    extract,
    format_traceparent,
    inject,
    parse_traceparent,
    parse_tracestate,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [(GOOD, True), (f"00-{TRACE}-{SPAN}-00", False), (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True)],
)
def test_a_traceparent_is_read(text: str, sampled: bool) -> None:
    context = parse_traceparent(text)
    assert context is not None
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        GOOD.upper(),
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}-extra",
        f"cc-{TRACE}-{SPAN}-01.extra",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{SPAN}-01",
    ],
)
def test_what_the_standard_forbids_is_no_traceparent(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.integers(1, 2**128 - 1).map("{:032x}".format), st.integers(1, 2**64 - 1).map("{:016x}".format), st.booleans())
def test_what_is_written_is_read_back(trace_id: str, span_id: str, sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, int(sampled))
    assert parse_traceparent(format_traceparent(context)) == context
    assert extract(inject({"other": "x"}, context)) == context


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    parse_traceparent(text)
    parse_tracestate(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a=1", "a=1"),
        (" a=1 ,\tb=2,, ", "a=1,b=2"),
        ("tenant@vendor=x", "tenant@vendor=x"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a", ""),
        ("a=", ""),
        ("a=b=c", ""),
        ("a=\x01", ""),
        (",".join(f"k{n}=v" for n in range(33)), ""),
    ],
)
def test_a_tracestate_is_kept_when_it_follows_the_rules(text: str, kept: str) -> None:
    assert parse_tracestate(text) == kept


def test_a_tracestate_too_long_for_a_header_loses_its_oldest_members() -> None:
    state = ",".join(f"k{n}={'v' * 90}" for n in range(20))
    headers = inject({}, TraceContext(TRACE, SPAN, 1, state))
    assert headers["tracestate"].startswith("k0=")
    assert MAX_STATE_BYTES - 100 < len(headers["tracestate"]) <= MAX_STATE_BYTES


def test_a_new_context_replaces_the_old_state() -> None:
    old = {"traceparent": GOOD, "tracestate": "a=1", "mine": "x"}
    new = TraceContext("1" * 32, "2" * 16)
    assert inject(old, new) == {"traceparent": format_traceparent(new), "mine": "x"}


def test_a_state_without_a_parent_is_nothing() -> None:
    assert extract({"tracestate": "a=1"}) is None
    assert extract({"traceparent": "bad", "tracestate": "a=1"}) is None
    assert extract({"traceparent": GOOD, "tracestate": "BAD"}) == TraceContext(TRACE, SPAN)
