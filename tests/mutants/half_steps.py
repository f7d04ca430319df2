"""Bugs planted in what keeps counters, indexes and journal in agreement with what is stored."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

CANCEL: Final = "tests/brokers/redis/test_redis_cancel.py::"

MUTANTS: Final = (
    Mutant(
        name="half steps: a cancellation goes on at its bookmark although more was leased",
        file="brokers/redis/lua/cancel.lua",
        old="  if last and (where == '' or after(last, where)) then where = last end\n",
        new="  if last and where == '' then where = last end\n",
        tests=(f"{CANCEL}test_a_message_leased_between_two_steps_of_its_cancellation_is_not_deleted",),
    ),
)
