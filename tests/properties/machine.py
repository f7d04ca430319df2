"""The comparison itself: every step is taken on both sides, and everything that can be seen must be equal."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from godwit.core.clock import ManualClock
from godwit.core.errors import GodwitError, GroupNotFound, PartialPublish, QueueFull
from godwit.core.names import GroupName, QueueName
from godwit.core.projection import Projection
from godwit.core.queues import GroupSpec, QueueSpec
from tests.properties.lifecycle import LifecycleWatch
from tests.properties.sides import BrokerSide, Side, state_of
from tests.properties.strategies import (
    GROUP_SETTINGS,
    GROUPS,
    LAYOUTS,
    QUEUE_SETTINGS,
    QUEUES,
    SHORT_MS,
    group_spec,
    ms,
    queue_spec,
)


class Comparison(RuleBasedStateMachine):
    """One broker (the subject) beside another side that is known to be right."""

    seen: ClassVar[Counter[str]]
    """How often each step had each outcome, and each event was journaled, over all examples of a run."""

    subject: BrokerSide
    reference: Side

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.open_sides()
        self.projections = {name: Projection() for name in QUEUES}
        self.lifecycle = LifecycleWatch()
        self.layouts: dict[str, tuple[int, bool, bool]] = {}
        self.delivered = 0
        self.held: list[int] = []
        self.ids: list[tuple[str, str]] = []
        self.buried: dict[tuple[str, str, int], None] = {}

    def open_sides(self) -> None:
        """Make `subject` and `reference`."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.subject.close()
        if isinstance(self.reference, BrokerSide):
            self.reference.close()
        self.loop.close()

    def both(self, step: str, *arguments: Any) -> Any:
        """Take a step on both sides; the outcomes must be equal. Return the value, or None after an error."""
        mine, yours = (outcome(side, step, arguments) for side in (self.subject, self.reference))
        assert mine == yours, f"{step}{arguments}: {mine} here, {yours} there"
        self.seen[f"{step} {mine[0]}"] += 1
        return mine[1] if mine[0] == "ok" else None

    # Queues and groups

    @initialize(layouts=st.tuples(LAYOUTS, LAYOUTS, LAYOUTS), settings=QUEUE_SETTINGS, group=GROUP_SETTINGS)
    def begin(self, layouts: tuple[Any, ...], settings: dict[str, Any], group: dict[str, Any]) -> None:
        self.layouts = dict(zip(QUEUES, layouts, strict=True))
        self.define("a", settings, {"g": group, "h": {}}, feeds=False)

    @rule(
        name=st.sampled_from(QUEUES),
        settings=QUEUE_SETTINGS,
        groups=st.dictionaries(st.sampled_from(GROUPS), GROUP_SETTINGS, min_size=1),
        feeds=st.booleans(),
    )
    def declare(self, name: str, settings: dict[str, Any], groups: dict[str, Any], feeds: bool) -> None:
        self.define(name, settings, groups, feeds=feeds)

    def define(self, name: str, settings: dict[str, Any], groups: dict[str, Any], *, feeds: bool) -> None:
        lanes, *ordered = self.layouts[name]
        specs = [group_spec(group, groups[group], ordered=ordered[GROUPS.index(group)]) for group in sorted(groups)]
        self.both("declare", queue_spec(name, lanes, settings, feeds=feeds), specs)

    @rule(name=st.sampled_from(QUEUES))
    def change_lanes(self, name: str) -> None:
        """Ask for what cannot be: other lanes under messages."""
        if name in self.subject.stats():
            changed = QueueSpec(name=QueueName(name), lanes=5 - self.layouts[name][0])
            before = self.subject.stats()
            assert outcome(self.subject, "declare", (changed, [GroupSpec(name=GroupName("g"))]))[0] == "AlreadyExistsError"
            assert self.subject.stats() == before
            self.seen["change lanes refused"] += 1

    # Time

    @rule(steps=st.integers(1, 8))
    def let_pass(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.advance(ms(100))
            self.both("maintain")
        self.seen["time passed"] += 1

    @rule(gap=st.sampled_from(SHORT_MS))
    def nobody_looks(self, gap: int) -> None:
        self.clock.advance(ms(gap))
        self.seen["outage"] += 1

    @rule()
    def maintain(self) -> None:
        self.both("maintain")

    @rule()
    def restart(self) -> None:
        self.both("restart")

    # What must be true after every step

    @invariant()
    def counts_agree(self) -> None:
        mine = self.subject.stats()
        assert mine == self.reference.stats()
        for _, _, groups in mine.values():
            assert all(number >= 0 for numbers in groups.values() for number in numbers)

    @invariant()
    def copies_agree_with_the_other_side_and_with_the_journal(self) -> None:
        alive = self.subject.stats()
        for name in QUEUES:
            if name not in alive and name not in self.known_shards():
                continue
            self.follow(name)
            if name not in alive:
                assert self.projections[name].copies == {}
                continue
            snapshot = self.subject.snapshot(name)
            assert {copy.address: copy for copy in snapshot} == self.projections[name].copies
            assert {copy.address: state_of(copy) for copy in snapshot} == self.reference.copies(name)
            tokens = [copy.delivery_id for copy in snapshot if copy.state == "leased"]
            assert None not in tokens
            assert len(set(tokens)) == len(tokens)

    def known_shards(self) -> set[str]:
        return {shard.partition("#")[0] for shard in self.loop.run_until_complete(self.subject.broker.journal.shards())}

    def follow(self, name: str) -> None:
        """Apply what is new in the journal."""
        rows = self.subject.new_rows(name)
        for row in rows:
            self.seen[f"event {row['event']}"] += 1
            self.lifecycle.see(row)
            self.projections[name].apply(row)
        self.compare_rows(name, rows)

    def compare_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Compare new journal rows, when the other side has a journal."""
        if isinstance(self.reference, BrokerSide):
            theirs = [self.reference.comparable(row) for row in self.reference.new_rows(name)]
            assert [self.subject.comparable(row) for row in rows] == theirs


def outcome(side: Side, step: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a step came to, as a value: `ok` and its answer, or the error's name and facts."""
    try:
        return ("ok", getattr(side, step)(*arguments))
    except QueueFull as error:
        return ("QueueFull", error.queue, error.group)
    except PartialPublish as error:
        return ("PartialPublish", error.accepted)
    except GroupNotFound as error:
        return ("GroupNotFound", error.queue, error.group)
    except GodwitError as error:
        return (type(error).__name__, *error.args[:1])
