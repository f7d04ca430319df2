"""Bugs planted in the client's side of the Redis broker: connections, pulls, the inbox, what runs beside the calls."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

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
)
