"""Bugs planted in what time does to a queue, and in the size of the portions it is done in."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

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
)
