"""Bugs planted in what time does to a queue, and in the size of the portions it is done in."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

JUMPS: Final = "tests/faults/test_clock_jumps.py::"
HALF: Final = JUMPS + "test_after_a_jump_forward_and_back_leases_and_retries_go_on_half_as_fast"
WAITS: Final = JUMPS + "test_a_pull_that_waits_gets_what_was_postponed_while_the_clock_was_ahead"
LEDGER: Final = "tests/brokers/rabbitmq/test_ledger.py::"
LARGE: Final = "tests/brokers/test_large_queues.py::"
REMOVED: Final = LARGE + "test_however_many_queues_were_removed_maintenance_costs_the_same"
BURIES: Final = LARGE + "test_a_pull_buries_only_a_portion_of_what_has_expired_and_delivers_none_of_the_rest"
GOES_ON: Final = LARGE + "test_a_pull_that_waits_goes_on_portion_by_portion_while_the_loop_turns"
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
        old="            copy.deadline_ms = group.outage_ms + copy.lease_ms\n",
        new="            copy.deadline_ms += copy.lease_ms\n",
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
    Mutant(
        name="memory: a pull makes all that is due ready at once",
        file="brokers/memory/maintain.py",
        old="        changes += group.due_delays(now_ms, PORTION)\n",
        new="        changes += group.due_delays(now_ms, 1 << 40)\n",
        tests=(LARGE + "test_a_pull_makes_only_a_portion_of_what_is_due_ready[memory]",),
    ),
    Mutant(
        name="memory: a pull buries all that has expired at once",
        file="brokers/memory/maintain.py",
        old="    expired = group.expire(now_ms, PORTION)\n",
        new="    expired = group.expire(now_ms, 1 << 40)\n",
        tests=(f"{BURIES}[memory]",),
    ),
    Mutant(
        name="memory: what has expired beyond a portion is delivered",
        file="brokers/memory/engine.py",
        old="        if group.next_expiry_ms <= now_ms:\n",
        new="        if False:\n",
        tests=(f"{BURIES}[memory]",),
    ),
    Mutant(
        name="memory: a pull takes all leases back at once",
        file="brokers/memory/maintain.py",
        old="    return due[:PORTION]\n",
        new="    return due\n",
        tests=(LARGE + "test_a_pull_takes_only_a_portion_of_the_leases_back_that_ran_out[memory]",),
    ),
    Mutant(
        name="memory: an outage is forgiven to the first portion of the leases only",
        file="brokers/memory/maintain.py",
        old="    if rows:\n        rows.sort(key=lambda row: row[1])\n",
        new="    group.unforgiven.clear()\n    if rows:\n        rows.sort(key=lambda row: row[1])\n",
        tests=(LARGE + "test_an_outage_moves_every_lease_once_however_many_there_are[memory]",),
    ),
    Mutant(
        name="memory: maintenance walks the journals of all removed queues",
        file="brokers/memory/engine.py",
        old="        for _ in self.trim(removed=REMOVED_SHARDS):\n",
        new="        for _ in self.trim():\n",
        tests=(f"{REMOVED}[memory]",),
    ),
    Mutant(
        name="a pull that has something at once keeps the event loop to itself",
        file="brokers/listener.py",
        old="                await asyncio.sleep(0)  # it may be more than one portion of maintenance\n",
        new="                pass\n",
        tests=(GOES_ON,),
    ),
    Mutant(
        name="sqlite: a pull makes all that is due ready at once",
        file="brokers/sqlite/maintain.py",
        old="ORDER BY ord, seq LIMIT {PORTION}",
        new="ORDER BY ord, seq",
        tests=(LARGE + "test_a_pull_makes_only_a_portion_of_what_is_due_ready[sqlite]",),
    ),
    Mutant(
        name="sqlite: a pull buries all that has expired at once",
        file="brokers/sqlite/maintain.py",
        old="    while len(rows) < PORTION and (found",
        new="    while (found",
        tests=(f"{BURIES}[sqlite]",),
    ),
    Mutant(
        name="sqlite: what has expired beyond a portion is delivered",
        file="brokers/sqlite/pull.py",
        old="    if has_expired(work, group, now_ms):\n",
        new="    if False:\n",
        tests=(f"{BURIES}[sqlite]",),
    ),
    Mutant(
        name="sqlite: a pull takes all leases back at once",
        file="brokers/sqlite/maintain.py",
        old=" AND due <= ? ORDER BY due LIMIT {BLOCKS}",
        new=" AND due <= ?",
        tests=(LARGE + "test_a_pull_takes_only_a_portion_of_the_leases_back_that_ran_out[sqlite]",),
    ),
    Mutant(
        name="sqlite: maintenance ends after the first portion",
        file="brokers/sqlite/portions.py",
        old="            if is_due(work, group, min(now_ms, place.until_ms)):\n",
        new="            if False:\n",
        tests=(LARGE + "test_a_pull_makes_only_a_portion_of_what_is_due_ready[sqlite]",),
    ),
    Mutant(
        name="sqlite: maintenance walks the journals of all removed queues",
        file="brokers/sqlite/engine.py",
        old="journal.Trimmer(removed=journal.REMOVED_SHARDS)",
        new="journal.Trimmer(removed=None)",
        tests=(f"{REMOVED}[sqlite]",),
    ),
    Mutant(
        name="rabbitmq: maintenance walks the journals of all removed queues",
        file="brokers/rabbitmq/ledger/queries.py",
        old=' ORDER BY random() LIMIT ?", (removed,))\n',
        new=' LIMIT -1")\n',
        tests=(LEDGER + "test_maintenance_looks_at_a_few_journals_of_removed_queues_and_a_trim_at_all",),
    ),
    Mutant(
        name="sqlite: what a cancelled pull got in the same turn stays leased",
        file="sqlite_writer/writer.py",
        old="            if lost is not None and future.done() and not",
        new="            if False and not",
        tests=(
            "tests/conformance/test_cancelled_calls.py::test_a_call_may_be_cancelled_at_any_point[pull_in_parts-sqlite]",
        ),
        patience_seconds=30,
    ),
    Mutant(
        name="sqlite: a close leaves the socket open",
        file="brokers/sqlite/broker.py",
        old="            self._wake_socket.close(self._loop)\n",
        new="            pass\n",
        tests=(
            "tests/conformance/test_cancelled_calls.py::test_a_call_may_be_cancelled_at_any_point[open_and_close-sqlite]",
        ),
    ),
)
