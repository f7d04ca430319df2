"""What the model is made of: copies in plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from godwit.core.messages.envelope import Envelope
from godwit.core.queues import GroupSpec, QueueSpec
from tests.properties.sides import Address

WAITING = ("ready", "delayed", "blocked")
FOREVER = 1 << 62


@dataclass(eq=False)
class Copy:
    """One group's copy of a message."""

    queue: str
    group: str
    envelope: Envelope
    seq: int
    lane: int
    ready_at: int
    expires: int
    place: str = "new"
    returned: bool = False
    turn: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    errors: tuple[str, ...] = ()
    number: int = -1
    deadline: int = 0
    length: int = 0
    kind: str = ""
    dead_at: int = 0
    death: int = 0

    @property
    def address(self) -> Address:
        return (self.queue, self.group, self.seq)


@dataclass(eq=False)
class Group:
    """A group and its copies, in no particular order."""

    spec: GroupSpec
    looked_after: int
    copies: list[Copy] = field(default_factory=list)
    pulls: int = 0
    dropped: int = 0

    def at(self, *places: str) -> list[Copy]:
        return [copy for copy in self.copies if copy.place in places]

    @property
    def open(self) -> list[Copy]:
        return self.at(*WAITING, "leased")


@dataclass(eq=False)
class Queue:
    """A queue, its groups and the ids it remembers."""

    spec: QueueSpec
    groups: dict[str, Group] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    published: int = 0
    duplicates: int = 0


def counters_of(copy: Copy) -> tuple[int, int, int]:
    return (copy.attempt, copy.failures, copy.crashes)


def numbers_in(spec: QueueSpec, group: Group) -> tuple[Any, ...]:
    size, leased = (sum(copy.envelope.size for copy in copies) for copies in (group.open, group.at("leased")))
    full = len(group.open) >= (spec.max_size or FOREVER) or size >= (spec.max_bytes or FOREVER)
    places = ("ready", "blocked", "delayed", "leased", "dead")
    return (*(len(group.at(place)) for place in places), size, leased, group.dropped, full)
