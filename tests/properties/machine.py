"""The comparison itself: every step is taken on both sides, and everything that can be seen must be equal."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from godwit.core.clock import ManualClock
from godwit.core.errors import GodwitError, GroupNotFound, PartialPublish, QueueFull
from godwit.core.journal.projection import Projection
from tests.conformance.harness import Row
from tests.properties.lifecycle import LifecycleWatch
from tests.properties.sides import BrokerSide, Side, Sight, states_of
from tests.properties.strategies import (
    GROUP_SETTINGS,
    GROUPS,
    LAYOUTS,
    LEASES_MS,
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
        self.alive: dict[str, Any] = {}
        """The statistics of the subject after the last step."""
        self.delivered = 0
        self.held: list[int] = []
        self.ids: list[tuple[str, str]] = []
        self.buried: dict[tuple[str, str, int], None] = {}

    def open_sides(self) -> None:
        """Make `subject` and `reference`."""
        raise TypeError(f"{type(self).__name__} must open its two sides")

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

    @initialize(
        layouts=st.tuples(LAYOUTS, LAYOUTS, LAYOUTS),
        settings=st.tuples(*[QUEUE_SETTINGS] * 3),
        groups=st.tuples(*[GROUP_SETTINGS] * 2),
        feeds=st.booleans(),
    )
    def begin(self, layouts: Any, settings: Any, groups: Any, feeds: bool) -> None:
        self.layouts = dict(zip(QUEUES, layouts, strict=True))
        for name, chosen in zip(QUEUES[: 3 if feeds else 2], settings, strict=False):
            self.define(name, chosen, dict(zip(GROUPS, groups, strict=True)), feeds=feeds)

    def define(self, name: str, settings: dict[str, Any], groups: dict[str, Any], *, feeds: bool) -> None:
        lanes, *ordered = self.layouts[name]
        specs = [group_spec(group, groups[group], ordered=ordered[GROUPS.index(group)]) for group in sorted(groups)]
        self.both("declare", queue_spec(name, lanes, settings, feeds=feeds), specs)

    def places(self) -> list[tuple[str, str]]:
        """Return every queue and group there is, those with something ready first."""
        found = [
            (-numbers[0], name, group)
            for name, (_, _, groups) in self.alive.items()
            for group, numbers in groups.items()
        ]
        return [(name, group) for _, name, group in sorted(found)]

    # Time

    @rule(steps=st.integers(1, 8))
    def let_pass(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.advance(ms(100))
            self.both("maintain")
        self.seen["time passed"] += 1

    @rule(gap=st.sampled_from(SHORT_MS), lease_ms=st.sampled_from((None, *LEASES_MS)))
    def nobody_looks(self, gap: int, lease_ms: int | None) -> None:
        """Let time pass while no process looks after the groups; workers may renew their leases meanwhile."""
        self.clock.advance(ms(gap))
        if lease_ms and self.held:
            self.both("extend", self.held, lease_ms)
            self.clock.advance(ms(50))
        self.seen["outage"] += 1

    @rule()
    def maintain(self) -> None:
        self.both("maintain")

    # What must be true after every step

    @invariant()
    def everything_agrees_with_the_other_side_and_with_the_journal(self) -> None:
        sight = self.subject.look()
        self.alive = sight.stats
        for _, _, groups in self.alive.values():
            assert all(number >= 0 for numbers in groups.values() for number in numbers)
        for name, rows in sight.rows.items():
            self.follow(name, rows)
        if isinstance(self.reference, BrokerSide):
            theirs = self.reference.look()
            assert self.alive == theirs.stats
            self.compare_rows(sight, theirs)
            copies = {name: states_of(seen) for name, seen in theirs.copies.items()}
        else:
            assert self.alive == self.reference.stats()
            copies = {name: self.reference.copies(name) for name in self.alive}
        assert {name: states_of(seen) for name, seen in sight.copies.items()} == copies
        for name, projection in self.projections.items():
            seen = sight.copies.get(name, ())
            assert {copy.address: copy for copy in seen} == projection.copies
            tokens = [copy.delivery_id for copy in seen if copy.state == "leased"]
            assert None not in tokens
            assert len(set(tokens)) == len(tokens)

    def follow(self, name: str, rows: list[Row]) -> None:
        """Apply what is new in the journal."""
        for row in rows:
            self.seen[f"event {row['event']}"] += 1
            self.lifecycle.see(row)
            self.projections[name].apply(row)

    def compare_rows(self, sight: Sight, theirs: Sight) -> None:
        """Compare new journal rows of two sides that both have a journal."""
        reference = cast("BrokerSide", self.reference)
        for name in self.projections:
            mine, yours = sight.rows.get(name, []), theirs.rows.get(name, [])
            assert [*map(self.subject.comparable, mine)] == [*map(reference.comparable, yours)], name


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
