"""RabbitMQ against a plain model of what is left when its gaps are taken away: no order, no time, one client.

The general comparison moves a clock and asks for the exact order, neither of which RabbitMQ gives. What must be equal
here after every step: who is delivered, acknowledged, given up, replayed, cancelled, with which counters; what the
statistics say; and that the journal tells the live state.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from godwit.brokers.contract import Ack, DeadLetter, Delivery, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.projection import Projection
from godwit.core.journal.shards import Position
from godwit.core.names import GroupName, QueueName
from tests.conformance.harness import LONG, Harness, Q
from tests.properties.coverage import run_until_met

EXAMPLES: Final = 200
"""The same in each run of `./dev test`; others each time with `--hypothesis-profile=soak`."""
GROUPS: Final = ("billing", "mail")
WAIT: Final = timedelta(seconds=3)
KINDS: Final = ("ack", "retry", "postpone", "give up", "hand back")
_GROUP = st.sampled_from(GROUPS)
_PICK = st.integers(0, 9)


class Expected:
    """One copy as it should be."""

    def __init__(self) -> None:
        self.state = "waiting"
        self.attempt = self.failures = 0


class RabbitAgainstAModel(RuleBasedStateMachine):
    """Every rule takes a step on the broker and on the model."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = Path(tempfile.mkdtemp(prefix="godwit-"))
        self.harness = Harness("rabbitmq", self.place)
        self.run(self.harness.start())
        self.run(self.harness.declare(*GROUPS))
        self.copies: dict[str, dict[str, Expected]] = {group: {} for group in GROUPS}
        self.held: list[Delivery] = []
        self.published = self.duplicates = 0
        self.told = Projection()
        self.read_to: Position | None = None

    def run(self, step: Any) -> Any:
        return self.loop.run_until_complete(step)

    def teardown(self) -> None:
        self.run(self.harness.finish())
        self.loop.close()
        shutil.rmtree(self.place)

    def in_state(self, group: str, state: str) -> list[str]:
        return [name for name, copy in self.copies[group].items() if copy.state == state]

    @rule(numbers=st.lists(st.integers(0, 60), min_size=1, max_size=6), group=st.none() | _GROUP)
    def publish(self, numbers: list[int], group: str | None) -> None:
        ids = [f"m{number}" for number in numbers]
        receipts = self.run(self.harness.publish(*ids, group=group))
        fresh = [name for name, receipt in zip(ids, receipts, strict=True) if receipt.fresh]
        known = self.known
        assert fresh == [name for n, name in enumerate(ids) if name not in known and name not in ids[:n]]
        self.published += len(fresh)
        self.duplicates += len(ids) - len(fresh)
        self.seen["duplicates"] += len(ids) - len(fresh)
        for name in fresh:
            known.add(name)
            for one in GROUPS if group is None else (group,):
                self.copies[one][name] = Expected()

    @property
    def known(self) -> set[str]:
        if not hasattr(self, "_known"):
            self._known: set[str] = set()
        return self._known

    @rule(group=_GROUP, limit=st.integers(1, 4))
    def pull(self, group: str, limit: int) -> None:
        waiting = self.in_state(group, "waiting")
        wait = WAIT if waiting else timedelta(0)
        deliveries: list[Delivery] = self.run(self.harness.pull(limit, group=group, lease=LONG, wait=wait))
        assert bool(deliveries) == bool(waiting)
        assert len({one.message_id for one in deliveries}) == len(deliveries) <= limit
        for one in deliveries:
            copy = self.copies[group][one.message_id]
            assert copy.state == "waiting", one
            copy.state = "leased"
            copy.attempt += 1
            assert (one.attempt, one.failures, one.crashes) == (copy.attempt, copy.failures, 0)
        self.held += deliveries
        self.seen["delivered"] += len(deliveries)

    @precondition(lambda self: self.held)
    @rule(picks=st.lists(st.tuples(_PICK, st.sampled_from(KINDS)), min_size=1, max_size=3))
    def settle(self, picks: list[tuple[int, str]]) -> None:
        words: list[Settlement] = []
        for pick, kind in picks:
            if not self.held:
                break
            one = self.held.pop(pick % len(self.held))
            copy = self.copies[one.group][one.message_id]
            self.seen[kind] += 1
            match kind:
                case "ack":
                    words.append(Ack(one.ack_id))
                    del self.copies[one.group][one.message_id]
                case "retry":
                    words.append(Nack(one.ack_id, error=self.harness.error("no")))
                    copy.state, copy.failures = "waiting", copy.failures + 1
                case "postpone":
                    words.append(Postpone(one.ack_id, error=self.harness.error("later")))
                    copy.state = "waiting"
                case "give up":
                    words.append(GiveUp(one.ack_id, FailureKind.PERMANENT, self.harness.error("no")))
                    copy.state, copy.failures = "dead", copy.failures + 1
                case _:
                    words.append(HandBack(one.ack_id))
                    copy.state, copy.attempt = "waiting", copy.attempt - 1
        assert self.run(self.harness.broker.settle(words)) == []
        assert self.run(self.harness.broker.settle(words)) == [word.ack_id for word in words]

    @precondition(lambda self: self.held)
    @rule(pick=_PICK)
    def extend(self, pick: int) -> None:
        one = self.held[pick % len(self.held)]
        assert self.run(self.harness.broker.extend([one.ack_id], LONG)) == []

    @precondition(lambda self: self.known)
    @rule(pick=_PICK)
    def cancel(self, pick: int) -> None:
        name = sorted(self.known)[pick % len(self.known)]
        waited = [group for group in GROUPS if name in self.in_state(group, "waiting")]
        assert self.run(self.harness.broker.cancel(QueueName(Q), name)) == bool(waited)
        for group in waited:
            del self.copies[group][name]
        self.seen["cancelled"] += bool(waited)

    @rule(group=_GROUP, rare=_PICK)
    def purge(self, group: str, rare: int) -> None:
        if rare == 0:
            waiting = self.in_state(group, "waiting")
            assert self.run(self.harness.broker.purge(QueueName(Q), GroupName(group))) == len(waiting)
            for name in waiting:
                del self.copies[group][name]
            self.seen["purged"] += bool(waiting)

    @rule(group=_GROUP, again=st.booleans())
    def letters(self, group: str, again: bool) -> None:
        """Look at a group's dead letters, and replay or discard the oldest."""
        letters = self.run(self.harness.letters(group=GroupName(group)))
        assert {one.envelope.id for one in letters} == set(self.in_state(group, "dead"))
        for one in letters[:1]:
            self.end_letter(group, one, again=again)

    def end_letter(self, group: str, letter: DeadLetter, *, again: bool) -> None:
        port = self.harness.broker.dead_letters
        assert self.run(port.replay([letter.id]) if again else port.discard([letter.id])) == []
        if again:
            self.copies[group][letter.envelope.id] = Expected()
        else:
            del self.copies[group][letter.envelope.id]
        self.seen["replayed" if again else "discarded"] += 1

    @rule(rare=_PICK)
    def restart(self, rare: int) -> None:
        """Close and come back: what was held waits again, and that counts as no failure."""
        if rare == 0:
            self.run(self.harness.restart())
            for one in self.held:
                self.copies[one.group][one.message_id].state = "waiting"
            self.held.clear()
            self.seen["restarted"] += 1

    @invariant()
    def everything_agrees(self) -> None:
        stats = self.run(self.harness.queue_stats())
        assert (stats.published, stats.duplicates) == (self.published, self.duplicates)
        for group in stats.groups:
            states = Counter(copy.state for copy in self.copies[group.name].values())
            assert (group.ready, group.leased, group.dead) == (states["waiting"], states["leased"], states["dead"])
        snapshot = self.run(self.harness.broker.journal.snapshot(QueueName(Q)))
        for row in self.run(self.harness.rows(after=self.read_to)):
            self.told.apply(row)
            self.read_to = Position(row["epoch"], row["seq"])
        assert snapshot.position == self.read_to
        assert {copy.address: copy for copy in snapshot.copies} == self.told.copies


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("rabbitmq")
def test_rabbitmq_does_what_its_model_does() -> None:
    wanted = {*KINDS, "duplicates", "delivered", "cancelled", "purged", "replayed", "discarded", "restarted"}
    run_until_met(RabbitAgainstAModel, wanted, EXAMPLES)
