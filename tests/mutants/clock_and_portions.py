"""Bugs planted in what time does to a queue, and in the size of the portions it is done in."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

JUMPS: Final = "tests/faults/test_clock_jumps.py::"
HALF: Final = JUMPS + "test_after_a_jump_forward_and_back_leases_and_retries_go_on_half_as_fast"
WAITS: Final = JUMPS + "test_a_pull_that_waits_gets_what_was_postponed_while_the_clock_was_ahead"
REPEATED: Final = "tests/brokers/test_repeated_ids.py::"
COSTS: Final = REPEATED + "test_an_id_published_again_and_again_costs_what_as_many_ids_cost"

ADDING_UP: Final = (
    "promise_05_counters.py::test_outages_do_not_add_up_so_that_a_silent_worker_gives_back_one_lease_after_the_last"
)
LONG_OUTAGE: Final = (
    "promise_05_counters.py::test_after_an_outage_of_many_leases_the_worker_still_has_one_lease_from_then_on"
)


MUTANTS: Final = (
    Mutant(
        name="memory: outages add up",
        file="brokers/memory/maintain.py",
        old="            copy.deadline_ms = now_ms + length_ms\n",
        new="            copy.deadline_ms += length_ms\n",
        tests=conformance("memory", (LONG_OUTAGE,)),
    ),
    Mutant(
        name="sqlite: an outage moves a lease by one length from its old deadline",
        file="brokers/sqlite/maintain.py",
        old="                lease.until = now_ms + lease.length\n",
        new="                lease.until += lease.length\n",
        tests=conformance("sqlite", (LONG_OUTAGE,)),
    ),
    Mutant(
        name="redis: outages add up",
        file="brokers/redis/lua/_care.lua",
        old="    local deadline = c and at + c.length\n",
        new="    local deadline = c and c.deadline + c.length\n",
        tests=conformance("redis", (ADDING_UP, LONG_OUTAGE)),
    ),
    Mutant(
        name="rabbitmq: outages add up",
        file="brokers/rabbitmq/leases.py",
        old="                    lease.deadline_ms = now_ms + lease.length_ms\n",
        new="                    lease.deadline_ms += lease.length_ms\n",
        tests=conformance("rabbitmq", (LONG_OUTAGE,)),
    ),
    Mutant(
        name="core: the time of a queue that is ahead of the clock stands still",
        file="core/journal/queue_time.py",
        old="    if lag is not None and (time_ms := lag.time_ms(clock_ms)) >= at_ms:\n",
        new="    if lag is not None and (time_ms := lag.time_ms(clock_ms)) > at_ms + 86_400_000:\n",
        tests=("tests/core/test_queue_time.py", f"{HALF}[memory]", f"{HALF}[sqlite]"),
    ),
    Mutant(
        name="core: a lag of an earlier jump counts for ever",
        file="core/journal/queue_time.py",
        old="    return at_ms, ClockLag(at_ms, clock_ms)\n",
        new="    return at_ms, lag or ClockLag(at_ms, clock_ms)\n",
        tests=("tests/core/test_queue_time.py",),
    ),
    Mutant(
        name="memory: a waiting pull sleeps until the clock comes to the queue's time",
        file="brokers/memory/engine.py",
        old="        return earliest if lag is None else lag.reached_ms(earliest)\n",
        new="        return earliest\n",
        tests=(f"{WAITS}[memory]",),
        patience_seconds=10,
    ),
    Mutant(
        name="sqlite: where the clock fell behind is forgotten",
        file="brokers/sqlite/layout/step.py",
        old="            if counts != lag:\n",
        new="            if False:\n",
        tests=(f"{HALF}[sqlite]",),
    ),
    Mutant(
        name="sqlite: a waiting pull sleeps until the clock comes to the queue's time",
        file="brokers/sqlite/layout/step.py",
        old="        return due_ms if lag is None else lag.reached_ms(due_ms)\n",
        new="        return due_ms\n",
        tests=(f"{WAITS}[sqlite]",),
        patience_seconds=10,
    ),
    Mutant(
        name="redis: a step's time stands still while the clock is behind",
        file="brokers/redis/lua/_step.lua",
        old="    went = at + math.floor((clock - since) / 2)\n",
        new="    went = at\n",
        tests=(f"{HALF}[redis]",),
    ),
    Mutant(
        name="rabbitmq: a ledger's time stands still while the clock is behind",
        file="brokers/rabbitmq/ledger/transaction.py",
        old="            self._go_on(book)\n",
        new="            pass\n",
        tests=(f"{WAITS}[rabbitmq]",),
        patience_seconds=15,
    ),
    Mutant(
        name="rabbitmq: a lease ends where it was to end before the clock went back",
        file="brokers/rabbitmq/leases.py",
        old="                lease.deadline_ms = min(lease.deadline_ms, now_ms + lease.length_ms)\n",
        new="                pass\n",
        tests=(f"{WAITS}[rabbitmq]",),
        patience_seconds=15,
    ),
    Mutant(
        name="memory: the newest copy of an id is walked back to each older one",
        file="brokers/memory/group.py",
        old="        newer, older = copy.newer, copy.twin\n",
        new=(
            "        newer, older = self.by_id[copy.envelope.id], copy.twin\n"
            "        while newer is not copy and newer.twin is not copy:\n"
            "            newer = newer.twin\n"
            "        newer = None if newer is copy else newer\n"
        ),
        tests=(f"{COSTS}[memory]",),
    ),
    Mutant(
        name="sqlite: what leads to older messages of an id is never forgotten",
        file="brokers/sqlite/layout/ids.py",
        old="        self._forget_repeats(work)\n",
        new="        pass\n",
        tests=(REPEATED + "test_what_leads_to_messages_that_are_gone_is_forgotten",),
    ),
    Mutant(
        name="sqlite: a message published again under its id cannot be cancelled any more",
        file="brokers/sqlite/layout/ids.py",
        old="            work.execute(INSERT_REPEAT, (queue.id, id, seq, run))\n",
        new="            pass\n",
        tests=(
            f"{COSTS}[sqlite]",
            *conformance(
                "sqlite", ("cancel_and_purge.py::test_cancel_finds_every_message_of_an_id_published_twice_in_one_call",)
            ),
        ),
    ),
)
