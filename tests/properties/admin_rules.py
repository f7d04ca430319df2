"""Rules of those who keep the queues: declaring, cancelling, purging, removing, replaying, discarding, restarting."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.properties.machine import Comparison, outcome
from tests.properties.sides import Letter
from tests.properties.strategies import GROUP_SETTINGS, GROUPS, QUEUE_SETTINGS, QUEUES, UNITS, Draft

STRANGER = Draft(0, "nowhere", 50, None, None, None, None, 10)
CROWDING = Draft(1_000, "", 50, None, None, None, None, 10)
CROWD = 6
"""As many as the largest limit that is drawn."""
RARE = (
    "pause", "drain", "resume", "purge queue", "purge group", "remove queue", "remove group", "change lanes", "restart",
    "wrong name",
)  # fmt: skip


class Keeping(Comparison):
    """What people and clean-up jobs do."""

    @rule(
        name=st.sampled_from(QUEUES),
        settings=QUEUE_SETTINGS,
        groups=st.dictionaries(st.sampled_from(GROUPS), GROUP_SETTINGS, min_size=1),
        feeds=st.booleans(),
    )
    def declare(self, name: str, settings: dict[str, Any], groups: dict[str, Any], feeds: bool) -> None:
        self.define(name, settings, groups, feeds=feeds)

    @rule(what=st.sampled_from(RARE), queue=st.sampled_from(QUEUES), group=st.sampled_from(GROUPS), pick=UNITS)
    def keep_house(self, what: str, queue: str, group: str, pick: int) -> None:
        """Do one of the things that happen seldom, so that most examples are about messages."""
        match what:
            case "pause":
                self.both("hold", Event.PAUSED, queue, group)
            case "drain":
                self.both("hold", Event.DRAINING, queue, None)
            case "resume":
                self.both("hold", Event.RESUMED, queue, None)
            case "purge queue":
                self.both("purge", queue, None)
            case "purge group":
                self.both("purge", queue, group)
            case "remove queue" if pick % 2:
                self.both("remove", queue, None)
            case "remove group" if pick % 2:
                self.both("remove", queue, group)
            case "change lanes":
                self.change_lanes(queue)
            case "restart":
                self.both("restart")
            case "wrong name":
                self.both("pull", queue, "nobody", "w1", 1, 300, None)
                self.both("pull", "nowhere", group, "w1", 1, 300, None)
                self.both("purge", "nowhere", None)
                self.both("purge", queue, "nobody")
                self.both("remove", "nowhere", None)
                self.both("remove", queue, "nobody")
                self.both("cancel", "nowhere", "m1")
                self.both("letters", "nowhere")
                now_ms = self.clock.now_ms()
                self.both("publish", [STRANGER.envelope(now_ms)])
                self.both("publish", [STRANGER._replace(queue=queue, group="nobody").envelope(now_ms)])

    def change_lanes(self, name: str) -> None:
        """Ask for what cannot be: other lanes under messages."""
        before = self.subject.stats()
        if name in before and any(numbers[0] for numbers in before[name][2].values()):
            changed = QueueSpec(name=QueueName(name), lanes=5 - self.layouts[name][0])
            refusal = outcome(self.subject, "declare", (changed, [GroupSpec(name=GroupName("new"))]))
            assert refusal[0] == "AlreadyExistsError"
            self.seen["change lanes refused"] += 1

    @precondition(lambda self: self.ids)
    @rule(pick=UNITS)
    def cancel(self, pick: int) -> None:
        if self.both("cancel", *self.ids[-1 - pick % len(self.ids)]):
            self.seen["cancelled"] += 1

    def letters_known(self) -> list[tuple[str, str, int]]:
        """List all letters on both sides, and return every address there ever was."""
        for name in self.alive:
            letters: list[Letter] = self.both("letters", name)
            self.seen["letters listed"] += len(letters)
            self.buried.update((letter.address, None) for letter in letters)
        return list(self.buried)

    @rule(pick=UNITS, count=st.integers(1, 3))
    def replay(self, pick: int, count: int) -> None:
        """Replay any letters there ever were, some of them gone."""
        if known := self.letters_known():
            chosen = [known[-1 - (pick + n) % len(known)] for n in range(count)]
            missing = self.both("replay", chosen)
            self.seen["replayed"] += missing is not None and len(missing) < count
            self.seen["replay of nothing"] += bool(missing)

    @rule(pick=UNITS)
    def replay_into_a_crowd(self, pick: int) -> None:
        """Fill the queue of a letter first: where its size is limited there is no room for it then."""
        if known := self.letters_known():
            chosen = known[-1 - pick % len(known)]
            for _ in range(CROWD):
                draft = CROWDING._replace(id=CROWDING.id + len(self.ids), queue=chosen[0])
                envelope = draft.envelope(self.clock.now_ms())
                self.both("publish", [envelope])
                self.ids.append((envelope.queue, envelope.id))
            self.both("replay", [chosen])

    @rule(pick=UNITS)
    def discard(self, pick: int) -> None:
        if known := self.letters_known():
            self.both("discard", [known[-1 - pick % len(known)]])
