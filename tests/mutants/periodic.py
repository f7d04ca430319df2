"""Bugs planted in what a process does again and again, and in the defaults that it begins with."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

STEPS: Final = "tests/core/test_periodic.py::"

MUTANTS: Final = (
    Mutant(
        name="periodic: an error that is none of Godwit's ends the step",
        file="core/periodic.py",
        old="            except BaseException as error:  # noqa: BLE001 - it must be done again,",
        new="            except AttributeError as error:  # it must be done again,",
        tests=(f"{STEPS}test_an_error_of_any_other_kind_is_counted_and_the_step_goes_on",),
    ),
    Mutant(
        name="periodic: a step may take as long as it likes",
        file="core/periodic.py",
        old="async with asyncio.timeout(limit):",
        new="async with asyncio.timeout(None):",
        tests=(f"{STEPS}test_a_step_that_takes_too_long_counts_as_one_without_an_answer",),
    ),
    Mutant(
        name="periodic: what a step says about its next turn is not heard",
        file="core/periodic.py",
        old="pause = wished if isinstance(wished, timedelta) else every",
        new="pause = every",
        tests=(f"{STEPS}test_a_step_may_say_how_long_to_wait_for_its_next_turn",),
    ),
    Mutant(
        name="defaults: a worker has a grace of its own",
        file="runtime/worker/worker.py",
        old="    grace: timedelta = DEFAULTS.consumer.shutdown_grace\n",
        new="    grace: timedelta = DEFAULTS.consumer.lease\n",
        tests=("tests/config/test_defaults.py::test_what_a_constructor_takes_for_granted_is_the_setting",),
    ),
)
