"""Checks of a call's arguments that all brokers share; they come before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import MAX_LEASE, Nack, Settlement
from godwit.core.clock import milliseconds
from godwit.core.errors import InvalidSetting
from godwit.core.names import DEFAULT_GROUP
from godwit.core.queues import GroupSpec, QueueSpec

MAX_PULL: Final = 10_000
_MORE: Final = "on this broker (more on Redis: redis://, redis+cluster://)"


def lease_ms(lease: timedelta) -> int:
    """Return a lease's length in milliseconds."""
    length_ms = milliseconds(lease)
    if not 0 < length_ms <= milliseconds(MAX_LEASE):
        raise InvalidSetting("lease", lease, f"more than 0, at most {MAX_LEASE}")
    return length_ms


def check_pull(limit: int, wait: timedelta, max_bytes: int | None) -> None:
    """Refuse impossible pulls."""
    if not 0 < limit <= MAX_PULL:
        raise InvalidSetting("limit", limit, f"1 to {MAX_PULL:,}")
    if wait < timedelta(0):
        raise InvalidSetting("wait", wait, "0 or more")
    if max_bytes is not None and max_bytes < 1:
        raise InvalidSetting("max_bytes", max_bytes, "1 or more, or none")


def check_settlements(settlements: Sequence[Settlement]) -> None:
    """Refuse a call with a retry in the past."""
    for settlement in settlements:
        if isinstance(settlement, Nack) and settlement.delay < timedelta(0):
            raise InvalidSetting("delay", settlement.delay, "0 or more")


def check_limit(limit: int) -> None:
    """Refuse to read nothing, or less."""
    if limit < 1:
        raise InvalidSetting("limit", limit, "1 or more")


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
