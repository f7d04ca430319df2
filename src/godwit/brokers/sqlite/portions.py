"""Maintenance in portions: each is a step of its own, between which others write and event loops turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from godwit.brokers.sqlite import dead_letters
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.maintain import PORTION, is_due, maintain_group


class Stage(Enum):
    """What maintenance is at."""

    GROUPS = auto()
    DEAD_LETTERS = auto()
    PAST = auto()
    """Ids, shared values and journals."""
    DONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """How far maintenance has come."""

    until_ms: int
    """What becomes due after this is for the next time."""
    stage: Stage = Stage.GROUPS
    done: tuple[int, int] = (0, 0)
    """The last queue and group that are looked after."""
    changes: int = 0


def look_after(work: SqliteStep, place: Maintained) -> Maintained:
    """Look after groups beyond the place, until there were enough changes."""
    changes = place.changes
    for queue in work.queues():
        for group in work.groups(queue).values():
            if (queue.id, group.id) <= place.done:
                continue
            now_ms = work.now(queue)
            changes += maintain_group(work, group, now_ms)
            if is_due(work, group, min(now_ms, place.until_ms)):
                return replace(place, done=(queue.id, group.id - 1), changes=changes)
            if changes - place.changes >= PORTION:
                return replace(place, done=(queue.id, group.id), changes=changes)
    return replace(place, stage=Stage.DEAD_LETTERS, done=(0, 0), changes=changes)


def feed(work: SqliteStep, place: Maintained) -> Maintained:
    """Feed the dead letter queue of the next queue that has something for it."""
    for queue in work.queues():
        if (queue.id, 0) > place.done and (moved := dead_letters.feed(work, queue)):
            return replace(place, done=(queue.id - 1, 0), changes=place.changes + moved)
    return replace(place, stage=Stage.PAST, done=(0, 0))
