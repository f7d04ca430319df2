"""Examples, and more of them until everything that a comparison must have met was met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import ClassVar, Final, Protocol

from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

STEPS: Final = 50
MORE: Final = 3
"""How often as many examples again are drawn, for what is rare and did not come up."""


class Counting(Protocol):
    """A machine that counts what it met."""

    seen: ClassVar[Counter[str]]


def run_until_met(machine: type[Counting], wanted: Collection[str], examples: int) -> None:
    """Run so many examples; fail when something never occurred even in more of them."""
    machine.seen.clear()
    assert issubclass(machine, RuleBasedStateMachine)
    for number in range(1 + MORE):
        drawn = seed(number)(machine) if number else machine
        run_state_machine_as_test(drawn, settings=settings(max_examples=examples, stateful_step_count=STEPS))
        if all(machine.seen[what] for what in wanted):
            return
    raise AssertionError(f"never met: {sorted(what for what in wanted if not machine.seen[what])}")
