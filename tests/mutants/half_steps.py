"""Bugs planted in what keeps counters, indexes and journal in agreement with what is stored."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

CANCEL: Final = "tests/brokers/redis/test_redis_cancel.py::"
RECOUNT: Final = "tests/brokers/redis/test_redis_recount.py::"
MENDED: Final = f"{RECOUNT}test_what_does_not_agree_with_what_is_stored_is_mended_and_the_queue_goes_on"
LARGE: Final = "tests/brokers/redis/test_redis_large_numbers.py::"
OUTAGES: Final = "tests/brokers/redis/test_redis_outages.py::"
STEPS: Final = "tests/brokers/redis/test_redis_half_steps.py::"
SQLITE: Final = "tests/brokers/sqlite/test_half_steps.py::"
WHOLE: Final = f"{SQLITE}test_a_step_that_fails_at_any_statement_leaves_nothing_behind_and_works_then"
SHOWN: Final = f"{SQLITE}test_counters_that_disagree_with_what_is_stored_are_shown_and_mended"

MUTANTS: Final = (
    Mutant(
        name="half steps: a cancellation goes on at its bookmark although more was leased",
        file="brokers/redis/lua/cancel.lua",
        old="  if last and (where == '' or after(last, where)) then where = last end\n",
        new="  if last and where == '' then where = last end\n",
        tests=(f"{CANCEL}test_a_message_leased_between_two_steps_of_its_cancellation_is_not_deleted",),
    ),
    Mutant(
        name="half steps: counters are never compared with what is stored",
        file="brokers/redis/lua/maintain.lua",
        old="if doubtful(b, held) then",
        new="if false then",
        tests=(f"{MENDED}[a copy is not counted-g]",),
    ),
    Mutant(
        name="half steps: a copy that waits nowhere stays there",
        file="brokers/redis/lua/recount.lua",
        old="      if not lease and waits == 0 then orphan(c) end\n",
        new="",
        tests=(f"{MENDED}[copies that wait nowhere-keyed]",),
    ),
    Mutant(
        name="half steps: what lies before the bookmark without a lease stays there",
        file="brokers/redis/lua/recount.lua",
        old="        orphan(c)\n      elseif",
        new="      elseif",
        tests=(f"{MENDED}[leases that are gone-g]",),
    ),
    Mutant(
        name="half steps: a head without a copy blocks its key for ever",
        file="brokers/redis/lua/recount.lua",
        old="    release(b, {key = known[n], seq = 0})\n",
        new="",
        tests=(f"{MENDED}[heads of nothing-keyed]",),
    ),
    Mutant(
        name="half steps: a deletion that was refused twice is forgotten",
        file="brokers/redis/lua/_step.lua",
        old="        for b in pairs(gauges) do redis.call('HSET', KEYS[b + 1], 'recount', 1) end\n",
        new="",
        tests=(f"{STEPS}test_a_deletion_that_cannot_be_carried_out_is_made_good_by_the_upkeep",),
    ),
    Mutant(
        name="half steps: a script that fails half-way is not taken back",
        file="brokers/redis/lua/_whole.lua",
        old="for n = #undone, 1, -1 do pcall(undone[n]) end\n",
        new="",
        tests=(f"{STEPS}test_a_script_that_fails_at_any_command_has_done_all_or_nothing[redis-settle]",),
    ),
    Mutant(
        name="half steps: sqlite: a cancelled copy stays in the bytes of its group",
        file="brokers/sqlite/removal.py",
        old="    group.bytes -= messages[index][SIZE]\n",
        new="",
        tests=(f"{WHOLE}[cancel]",),
    ),
    Mutant(
        name="half steps: sqlite: what expired stays counted as expiring",
        file="brokers/sqlite/layout/copies.py",
        old="    if copy.expiry is not None:\n        group.expiring -= 1\n",
        new="",
        tests=(f"{WHOLE}[maintain]",),
    ),
    Mutant(
        name="half steps: sqlite: counters are never compared with what is stored",
        file="brokers/sqlite/broker.py",
        old="        if began >= self._recount_at:\n",
        new="        if False:\n",
        tests=(SHOWN,),
    ),
    Mutant(
        name="half steps: sqlite: counters that disagree stay as they are",
        file="brokers/sqlite/layout/recount.py",
        old="        setattr(group, counter, counted)\n",
        new="        del counted\n",
        tests=(SHOWN,),
    ),
    Mutant(
        name="half steps: sqlite: the doctor does not see counters that disagree",
        file="admin/doctor/sqlite.py",
        old="    if wrong:\n",
        new="    if False:\n",
        tests=(SHOWN,),
    ),
    Mutant(
        name="half steps: a chunk tells of 127 groups at most",
        file="brokers/redis/lua/arrive.lua",
        old="string.char(0xdc) .. struct.pack('>I2', 2 * groups)",
        new="'\\220\\0' .. string.char(2 * groups)",
        tests=(f"{LARGE}test_every_group_of_many_gets_what_was_confirmed[128]",),
    ),
    Mutant(
        name="half steps: only the first leases are forgiven an outage",
        file="brokers/redis/lua/_care.lua",
        old="  if #open >= 2 * FORGIVE then\n    put(",
        new="  if false then\n    put(",
        tests=(f"{LARGE}test_more_leases_than_two_bytes_count_outlive_an_outage",),
        patience_seconds=60,
    ),
    Mutant(
        name="half steps: a journal is not trimmed above maxmemory",
        file="brokers/redis/lua/trim.lua",
        old="  redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too\n",
        new="",
        tests=(f"{OUTAGES}test_what_frees_memory_works_above_maxmemory",),
    ),
    Mutant(
        name="half steps: no reader of a journal can register above maxmemory",
        file="brokers/redis/lua/commit.lua",
        old="redis.call('HDEL', KEYS[2], '') -- allowed above maxmemory; what follows then is, too\n",
        new="",
        tests=(f"{OUTAGES}test_what_frees_memory_works_above_maxmemory",),
    ),
)
