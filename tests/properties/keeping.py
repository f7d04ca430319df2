"""Rules of those who keep the queues: cancelling, purging, removing, replaying, discarding."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.properties.machine import Comparison
from tests.properties.sides import Letter
from tests.properties.strategies import GROUPS, QUEUES, UNITS, often


class Keeping(Comparison):
    """What people and clean-up jobs do."""

    @precondition(lambda self: self.ids)
    @rule(pick=UNITS)
    def cancel(self, pick: int) -> None:
        if self.both("cancel", *self.ids[pick % len(self.ids)]):
            self.seen["cancelled"] += 1

    @rule(queue=st.sampled_from(QUEUES), group=often(None, *GROUPS), sure=UNITS)
    def purge(self, queue: str, group: str | None, sure: int) -> None:
        if sure % 3 == 0:
            self.both("purge", queue, group)

    @rule(queue=st.sampled_from(QUEUES), sure=UNITS)
    def remove_queue(self, queue: str, sure: int) -> None:
        if sure % 3 == 0:
            self.both("remove", queue, None)

    @rule(queue=st.sampled_from(QUEUES), group=st.sampled_from(GROUPS), sure=UNITS)
    def remove_group(self, queue: str, group: str, sure: int) -> None:
        if sure % 3 == 0:
            self.both("remove", queue, group)

    @rule(name=st.sampled_from(QUEUES))
    def list_letters(self, name: str) -> None:
        letters: list[Letter] = self.both("letters", name) or []
        for letter in letters:
            self.buried[letter.address] = None
        self.seen["letters listed"] += len(letters)

    def letters_known(self) -> list[tuple[str, str, int]]:
        for name in self.subject.stats():
            self.list_letters(name)
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
    def discard(self, pick: int) -> None:
        if known := self.letters_known():
            self.both("discard", [known[-1 - pick % len(known)]])
