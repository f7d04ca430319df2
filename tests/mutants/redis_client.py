"""Bugs planted in the client's side of the Redis broker: connections, pulls, the inbox, what runs beside the calls."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

REMOVED: Final = "tests/brokers/redis/test_redis_removed_queues.py::"
CONNECTIONS: Final = "tests/brokers/redis/test_redis_connections.py::"

MUTANTS: Final = (
    Mutant(
        name="redis client: a connection waits for a reply that was read already",
        file="brokers/redis/client/connection.py",
        old="        if self._waiting:\n            self._when_quiet = then\n        else:\n            then(self)\n",
        new="        self._when_quiet = then\n",
        tests=(f"{CONNECTIONS}test_a_call_cancelled_at_any_moment_gives_its_connection_back",),
    ),
    Mutant(
        name="redis client: the room for a connection is lost with the call that was to open it",
        file="brokers/redis/client/pool.py",
        old="                else:\n                    self._pass_on()\n",
        new="",
        tests=(f"{CONNECTIONS}test_whoever_waits_for_a_connection_is_served_when_one_before_him_is_cancelled",),
    ),
    Mutant(
        name="redis client: removed queues are looked at every time",
        file="brokers/redis/journal.py",
        old="        await self._catalog.set_removed_aside()\n",
        new="",
        tests=(f"{REMOVED}test_an_upkeep_of_many_removed_queues_costs_what_one_of_none_costs",),
    ),
    Mutant(
        name="redis client: a queue that is being declared is set aside as removed",
        file="brokers/redis/layout/catalog.py",
        old="                if present is None or not await self.list.has(spec.name):\n"
        "                    await self.list.add(spec.name)\n",
        new="",
        tests=(f"{REMOVED}test_a_queue_declared_while_it_is_set_aside_stays_listed",),
    ),
    Mutant(
        name="redis client: a removed queue's empty journal stays",
        file="brokers/redis/lua/trim.lua",
        old="if not oldest and not kept[4] then redis.call('UNLINK', journal, KEYS[3]) end\n",
        new="",
        tests=(f"{REMOVED}test_a_removed_queue_whose_journal_is_gone_leaves_its_counters_alone",),
    ),
)
