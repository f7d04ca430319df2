"""Checks of a call's arguments that all brokers share; they come before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from godwit.brokers.contract import MAX_LEASE, Ack, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.core.clock import milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.failures.failure import FailureKind, ProcessingError, carried
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import HOLDS, Event
from godwit.core.limits import (
    LARGEST_COUNT,
    as_choice,
    as_count,
    as_duration,
    as_limit,
    as_time_setting,
    as_whole,
    bounded,
)
from godwit.core.names import DEFAULT_GROUP, is_worker
from godwit.core.queues import GroupSpec, QueueSpec

MAX_PULL: Final = 10_000
_LARGEST_SEQ: Final = 2**53
_NUMBER_DIGITS: Final = 18
_LONGEST_VERSION: Final = 100
_LONGEST_HOLD: Final = 4_096
_MORE: Final = "on this broker (more on Redis: redis://, redis+cluster://)"


def lease_ms(lease: timedelta) -> int:
    """Return a lease's length in milliseconds."""
    length_ms = milliseconds(as_time_setting("lease", lease))
    if not 0 < length_ms <= milliseconds(MAX_LEASE):
        raise InvalidSetting("lease", lease, f"more than 0, at most {MAX_LEASE}")
    return length_ms


def check_pull(limit: int, wait: timedelta, max_bytes: int | None, worker: str) -> timedelta:
    """Refuse impossible pulls; return how long to wait, moved inside the limits."""
    if type(limit) is not int or not 0 < limit <= MAX_PULL:
        raise InvalidSetting("limit", limit, f"1 to {MAX_PULL:,}")
    if type(worker) is not str or not is_worker(worker):
        raise InvalidSetting("worker", worker, "at most 255 printable characters")
    if max_bytes is not None:
        as_limit("max_bytes", max_bytes)
    return as_time_setting("wait", wait)


def checked_settlements(settlements: Sequence[Settlement]) -> Sequence[Settlement]:
    """Return settlements that every broker can carry out; refuse the whole call when one is none.

    A delay in the past is none, texts are cleaned and numbers moved inside the limits: one odd value of a handler's
    must not keep the other messages of the call leased.
    """
    odd = [
        place
        for place, one in enumerate(settlements)
        if type(one) is not Ack
        or type(one.ack_id) is not str
        or not (one.run_ms is None or (type(one.run_ms) is int and 0 <= one.run_ms <= LARGEST_COUNT))
        or not (one.result is None or type(one.result) is bytes)
    ]
    if not odd:
        return settlements
    checked = list(settlements)
    for place in odd:
        checked[place] = _checked(checked[place])
    return checked


def _checked(settlement: Settlement) -> Settlement:
    if not isinstance(settlement, Settlement) or not isinstance(settlement.ack_id, str):
        allowed = "an Ack, Nack, Postpone, GiveUp or HandBack with the ack id of a delivery"
        raise InvalidSetting("settlement", settlement, allowed)
    match settlement:
        case HandBack():
            return settlement
        case Ack():
            if settlement.result is not None and not isinstance(settlement.result, bytes):
                raise InvalidSetting("result", settlement.result, "bytes, or none")
            return replace(settlement, run_ms=_run_ms(settlement.run_ms))
        case Nack() | Postpone():
            delay, error = as_duration("delay", settlement.delay), _error(settlement.error)
            return replace(settlement, delay=delay, error=error, run_ms=_run_ms(settlement.run_ms))
        case GiveUp():
            kind, error = as_choice("kind", settlement.kind, FailureKind), _error(settlement.error)
            return replace(settlement, kind=kind, error=error, run_ms=_run_ms(settlement.run_ms))


def _run_ms(run_ms: Any) -> int | None:
    return None if run_ms is None else max(0, as_whole("run_ms", run_ms))


def _error(error: Any) -> ProcessingError | None:
    if error is not None and not isinstance(error, ProcessingError):
        raise InvalidSetting("error", error, "a ProcessingError, or none")
    return None if error is None else carried(error)


def check_limit(limit: int) -> int:
    """Refuse to read nothing, or less; return the limit, at most the largest count."""
    return as_count("limit", limit)


def check_reader(reader: str, position: Position | None = None) -> None:
    """Refuse a reader's name or position that cannot be kept."""
    if type(reader) is not str or not reader or not is_worker(reader):
        raise InvalidSetting("reader", reader, "1 to 255 printable characters")
    if position is not None and (type(position.seq) is not int or not 0 <= position.seq <= _LARGEST_SEQ):
        raise InvalidSetting("position.seq", position.seq, f"0 to {_LARGEST_SEQ:,}")


def check_actor(actor: str | None) -> str | None:
    """Refuse who cannot be kept in the journal."""
    if actor is not None and (type(actor) is not str or not actor or not is_worker(actor)):
        raise InvalidSetting("actor", actor, "1 to 255 printable characters, or none")
    return actor


def check_app_version(version: str | None) -> str | None:
    """Refuse a version of an application that the journal cannot keep."""
    if version is not None and not (
        type(version) is str and 0 < len(version) <= _LONGEST_VERSION and version.isprintable()
    ):
        raise InvalidSetting("app_version", version, f"1 to {_LONGEST_VERSION} printable characters, or none")
    return version


def check_hold(event: Event, hold: bytes | None) -> None:
    """Refuse to write down what is no pause, and more about it than a journal should keep."""
    if event not in HOLDS:
        raise InvalidSetting("event", event, "paused, draining or resumed")
    if hold is not None and (type(hold) is not bytes or len(hold) > _LONGEST_HOLD):
        raise InvalidSetting("hold", hold, f"at most {_LONGEST_HOLD:,} bytes, or none")


def number_of(text: str) -> int | None:
    """Return the number that ends an id of ours; None when it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS else None


def lives_until_ms(ttl: timedelta | None, now_ms: int) -> int | None:
    """Return when a shared value is past its ttl; None for never."""
    return None if ttl is None else now_ms + milliseconds(bounded(ttl))


def groups_or_default(groups: Sequence[GroupSpec], *, exists: bool) -> Sequence[GroupSpec]:
    """Return the groups to declare: a new queue has at least `default`, so that nothing published is discarded."""
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise InvalidSetting("groups", names, "each group once")
    return groups or (() if exists else (GroupSpec(name=DEFAULT_GROUP),))


def no_replicas(min_replicas: int | None) -> None:
    """Refuse to wait for replicas that a broker does not have."""
    if min_replicas:
        raise InvalidSetting("min_replicas", min_replicas, f"0 {_MORE}")


def check_replicas(min_replicas: int | None) -> None:
    """Refuse an impossible number of replicas."""
    if min_replicas is not None and min_replicas < 0:
        raise InvalidSetting("min_replicas", min_replicas, "0 or more, or none for what the queue says")


def one_server_only(spec: QueueSpec) -> None:
    """Refuse what only a broker of several servers can do."""
    for setting, only in (("partitions", 1), ("min_replicas", 0)):
        if (value := getattr(spec, setting)) != only:
            raise InvalidSetting(setting, value, f"{only} {_MORE}")
