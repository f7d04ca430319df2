"""Bugs planted in the Redis broker, most of them in its scripts."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

OUTAGES: Final = "tests/brokers/redis/test_redis_outages.py::"
CONNECTIONS: Final = "tests/brokers/redis/test_redis_connections.py::"
INBOX: Final = "tests/brokers/redis/test_redis_inbox.py::"


def seen_by(*names: str) -> tuple[str, ...]:
    """Name conformance tests (`module::test`) as they run over the Redis broker."""
    return conformance("redis", names)


MUTANTS: Final = (
    Mutant(
        name="redis: an ack is not fenced by its lease",
        file="brokers/redis/lua/_copies.lua",
        old="  if not score then return nil end\n",
        new="  score = score or 0\n",
        tests=(f"{OUTAGES}test_a_late_ack_of_a_second_delivery_does_not_settle_the_third",),
    ),
    Mutant(
        name="redis: a fast ack is not fenced by its lease",
        file="brokers/redis/lua/ack.lua",
        old="  if not scores[i] then refused[#refused + 1] = i end\n",
        new="",
        tests=(f"{OUTAGES}test_a_fast_ack_of_a_lease_that_is_gone_changes_nothing",),
    ),
    Mutant(
        name="redis: a returned message goes to the tail",
        file="brokers/redis/lua/_copies.lua",
        old="  c.entry, c.ready, c.returned = nil, ready_at, 1\n",
        new="  c.entry, c.ready, c.returned = nil, ready_at, 0\n",
        tests=seen_by("promise_07_order.py::test_a_retried_message_comes_before_those_never_delivered"),
    ),
    Mutant(
        name="redis: a publish of several messages wakes nobody",
        file="brokers/redis/lua/arrive.lua",
        old="  if group[RUNG] == 0 or rotates or n > 1 then call('ZADD', KEYS[6 + (g - 1) * BLOCK], 0, 'w') end\n",
        new="",
        tests=(f"{OUTAGES}test_a_publish_wakes_a_waiting_pull_long_before_the_next_look[2]",),
    ),
    Mutant(
        name="redis: a publish of one message wakes nobody",
        file="brokers/redis/lua/arrive_one.lua",
        old="  call('ZADD', KEYS[6], 0, 'w')\n",
        new="",
        tests=(f"{OUTAGES}test_a_publish_wakes_a_waiting_pull_long_before_the_next_look[1]",),
    ),
    Mutant(
        name="redis: a pull that leaves messages behind wakes nobody",
        file="brokers/redis/lua/pull.lua",
        old="    if room then\n",
        new="    if false then\n",
        tests=(f"{OUTAGES}test_what_a_pull_leaves_behind_wakes_the_next_long_before_its_look",),
    ),
    Mutant(
        name="redis: ids are remembered though their chunk was refused",
        file="brokers/redis/lua/publish.lua",
        old="          return {'full', group.name, limit}\n",
        new=(
            "          for j = 1, n do redis.call('HSET', KEYS[3], ARGV[marks + j], now + window) end\n"
            "          generation, until0 = 0, now + window\n"
            "          save()\n"
            "          return {'full', group.name, limit}\n"
        ),
        tests=seen_by("promise_08_limits.py::test_a_refused_publish_leaves_no_trace"),
    ),
    Mutant(
        name="redis: a delivery is not in the journal",
        file="brokers/redis/lua/pull.lua",
        old="      .. table.concat(rows), taken)\n",
        new="      .. table.concat(rows), 0)\n",
        tests=seen_by("promise_11_bookkeeping.py::test_delivering_and_acking_are_in_the_journal_with_their_times"),
    ),
    Mutant(
        name="redis: an acked message stays in its stream",
        file="brokers/redis/lua/ack.lua",
        old="      drop('XDEL', KEYS[b + LANE + from - 48], ARGV[refs + i])\n",
        new="",
        tests=(f"{OUTAGES}test_a_full_server_refuses_publishes_drains_and_takes_publishes_again",),
    ),
    Mutant(
        name="redis: limits are not looked at",
        file="brokers/redis/lua/arrive.lua",
        old="  if (max_size > 0 and depth > max_size) or (max_bytes > 0 and bytes > max_bytes) then return 2 end\n",
        new="",
        tests=seen_by("promise_08_limits.py::test_a_publish_over_the_limit_is_refused_naming_the_group"),
    ),
    Mutant(
        name="redis: an outage counts as a crash",
        file="brokers/redis/lua/_care.lua",
        old="    if conf.fo == '1' and gap > tonumber(conf.shortest or 0) then\n",
        new="    if false then\n",
        tests=(f"{OUTAGES}test_a_lease_that_ran_out_while_the_server_was_away_is_moved_not_taken_back",),
    ),
    Mutant(
        name="redis: a restarted server goes unnoticed",
        file="brokers/redis/lua/_care.lua",
        old="    if run ~= '' and conf.run ~= run then gap = math.huge end\n",
        new="",
        tests=(f"{OUTAGES}test_a_restart_of_the_server_is_nobodys_crash",),
    ),
    Mutant(
        name="redis: a full server cannot be drained",
        file="brokers/redis/lua/pull.lua",
        old="redis.call('HDEL', meta, '') -- allowed above maxmemory; what follows then is, too\n",
        new="",
        tests=(f"{OUTAGES}test_a_full_server_refuses_publishes_drains_and_takes_publishes_again",),
    ),
    Mutant(
        name="redis: what a lost pull leased is not handed back",
        file="brokers/redis/pull.py",
        old="            await self._give_back(order, partition, token, error.__cause__.client)\n",
        new="",
        tests=(f"{OUTAGES}test_what_a_pull_leased_whose_reply_was_lost_is_handed_back_at_once",),
    ),
    Mutant(
        name="redis: scripts are not loaded again",
        file="brokers/redis/client/routes.py",
        old='        if what is not None and any(refusal.word == "NOSCRIPT" for refusal in refusals.values()):\n',
        new='        if what is not None and any(refusal.word == "NEVER" for refusal in refusals.values()):\n',
        tests=(f"{OUTAGES}test_scripts_are_loaded_again_after_the_server_forgot_them",),
    ),
    Mutant(
        name="redis: the pool opens as many connections as it likes",
        file="brokers/redis/client/pool.py",
        old="        if self.open_connections < self.size:\n",
        new="        if self.open_connections < 1_000:\n",
        tests=(f"{CONNECTIONS}test_an_exhausted_pool_gives_up_after_its_wait_with_a_typed_error",),
    ),
    Mutant(
        name="redis: two processes move an entry of the inbox twice",
        file="brokers/redis/lua/publish.lua",
        old="    if #redis.call('XRANGE', KEYS[6], entry, entry) == 0 then out[i] = true end\n",
        new="",
        tests=(f"{INBOX}test_an_entry_that_another_process_moved_is_passed_over",),
    ),
    Mutant(
        name="redis: an expired message is delivered",
        file="brokers/redis/lua/_care.lua",
        old="  changes = changes + expire(b, name) + due_delays(b)\n",
        new="  changes = changes + due_delays(b)\n",
        tests=seen_by("promise_09_expiry.py::test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered"),
    ),
    Mutant(
        name="redis: what expires in order is never looked for",
        file="brokers/redis/lua/arrive.lua",
        old="          reply = try('ZADD', KEYS[b + 2], expiry, 'L' .. lane)\n",
        new="",
        tests=seen_by("promise_09_expiry.py::test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered"),
    ),
    Mutant(
        name="redis: a repetition is stored by the fast way",
        file="brokers/redis/lua/arrive.lua",
        old="        if found[i] and tonumber(found[i]) > now then return 2 end\n",
        new="",
        tests=seen_by("promise_10_deduplication.py::test_a_repeated_id_is_answered_and_not_stored_again"),
    ),
)
