"""The W3C trace context in message headers: `traceparent` and `tracestate`, read and written without any library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_MEMBERS: Final = 32
MAX_STATE_BYTES: Final = 1024  # what a message header may hold

SAMPLED: Final = 0x01

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
_MEMBER = re.compile(rf"({_KEY})=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e])")


class TraceContext(msgspec.Struct, frozen=True):
    """Which span a message comes from."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether the sender recorded its span."""
        return bool(self.flags & SAMPLED)


def parse_traceparent(text: str) -> TraceContext | None:
    """Return what a traceparent says; None when it is not one. Later versions are read as far as this one goes."""
    match = _PARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None) or not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16))


def format_traceparent(context: TraceContext) -> str:
    """Return the header's text; only the flag this version knows is passed on."""
    return f"00-{context.trace_id}-{context.span_id}-{context.flags & SAMPLED:02x}"


def parse_tracestate(text: str) -> str:
    """Return the vendors' list in its plain form; empty when it breaks the rules, as the standard asks."""
    members = [member.strip(" \t") for member in text.split(",")]
    members = [member for member in members if member]
    keys = [member.partition("=")[0] for member in members]
    if len(members) > MAX_MEMBERS or len(set(keys)) != len(keys):
        return ""
    return ",".join(members) if all(map(_MEMBER.fullmatch, members)) else ""


def extract(headers: Mapping[str, str]) -> TraceContext | None:
    """Return the context that message headers carry."""
    text = headers.get(TRACEPARENT)
    context = parse_traceparent(text) if text is not None else None
    if context is None:
        return None
    state = parse_tracestate(headers.get(TRACESTATE, ""))
    return msgspec.structs.replace(context, state=state) if state else context


def inject(headers: Mapping[str, str], context: TraceContext) -> dict[str, str]:
    """Return the headers with `context` in the place of any other."""
    found = {key: value for key, value in headers.items() if key != TRACESTATE}
    found[TRACEPARENT] = format_traceparent(context)
    members = context.state.split(",") if context.state else []
    while members and len(",".join(members)) > MAX_STATE_BYTES:
        members.pop()  # the oldest vendors stand last
    if members:
        found[TRACESTATE] = ",".join(members)
    return found
