"""Bugs planted in the client's side of the Redis broker: connections, pulls, the inbox, what runs beside the calls."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

REMOVED: Final = "tests/brokers/redis/test_redis_removed_queues.py::"
LOST: Final = "tests/brokers/redis/test_redis_lost_replies.py::"
UPKEEP: Final = "tests/brokers/redis/test_redis_upkeep.py::"
AWAY: Final = "tests/brokers/redis/topologies/test_one_away.py::"
CONNECTIONS: Final = "tests/brokers/redis/test_redis_connections.py::"

WAITING: Final = "tests/conformance/test_waiting_pulls.py::"

MUTANTS: Final = (
    Mutant(
        name="redis client: a short lease is looked at only when it ends",
        file="brokers/redis/listen/listeners.py",
        old="now + left / 2 if left > SOON_SECONDS else spot.due",
        new="spot.due",
        tests=(f"{WAITING}test_a_short_lease_that_an_outage_moved_ends_for_a_pull_that_waits[redis-sentinel]",),
    ),
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
    Mutant(
        name="redis client: a settlement whose reply was lost is called refused",
        file="brokers/redis/lost_reply.py",
        old="        if ended.get(member) in events:\n",
        new="        if False:\n",
        tests=(f"{LOST}test_settlements_whose_reply_was_lost_are_not_called_refused",),
    ),
    Mutant(
        name="redis client: whatever the journal tells of a lease excuses a late settlement",
        file="brokers/redis/lost_reply.py",
        old="        if ended.get(member) in events:\n",
        new="        if member in ended:\n",
        tests=(f"{LOST}test_a_settlement_that_came_too_late_is_refused_also_when_its_reply_was_lost",),
    ),
    Mutant(
        name="redis client: a shared value does not know who wrote it",
        file="brokers/redis/lua/shared.lua",
        old="  if entry and entry[4] == ARGV[7] then return entry[1] end\n",
        new="",
        tests=(f"{LOST}test_a_shared_value_whose_reply_was_lost_has_the_version_it_was_given",),
    ),
    Mutant(
        name="redis client: a call that is sent again gets no answer of its first run",
        file="brokers/redis/lua/_receipt.lua",
        old="  if name == named then return answer end\n",
        new="",
        tests=(
            f"{LOST}test_a_cancellation_a_purge_and_a_removal_whose_replies_were_lost_say_what_they_did",
            f"{LOST}test_letters_that_were_replayed_or_discarded_although_the_reply_was_lost_are_not_called_missing",
        ),
    ),
    Mutant(
        name="redis client: a pull that was given up runs later",
        file="brokers/redis/client/client.py",
        old="            same = lost.id and server.run_id == lost.run_id\n",
        new="            same = False\n",
        tests=(f"{LOST}test_a_pull_that_was_given_up_leases_nothing_afterwards",),
    ),
    Mutant(
        name="redis client: closing waits for the thread that renews leases",
        file="brokers/redis/renew.py",
        old="if self._lock.acquire(blocking=False):",
        new="if self._lock.acquire():",
        tests=(f"{LOST}test_closing_does_not_wait_for_a_thread_whose_server_stands_still",),
    ),
    Mutant(
        name="redis client: a round of upkeep does not end before all inboxes are empty",
        file="brokers/redis/maintain.py",
        old="            if time.monotonic() >= until:\n",
        new="            if False:\n",
        tests=(f"{UPKEEP}test_inboxes_that_do_not_end_leave_the_rest_of_a_round_its_turn",),
    ),
    Mutant(
        name="redis client: without the server of the list of queues there are none",
        file="brokers/redis/layout/queue_list.py",
        old="            if before is None:\n                raise\n",
        new="            raise\n",
        tests=(f"{AWAY}test_one_master_that_is_gone_stops_no_queue_of_the_others[godwit:queues]",),
    ),
    Mutant(
        name="redis client: nobody maintains what is left of a cluster without the shared values",
        file="runtime/worker/maintenance.py",
        old="        except BrokerUnavailable:\n            return True\n",
        new="        except BrokerUnavailable:\n            return False\n",
        tests=(f"{AWAY}test_one_master_that_is_gone_stops_no_queue_of_the_others[godwit:{{#shared}}:values]",),
    ),
    Mutant(
        name="redis client: a refusal while connecting is no error of the library",
        file="brokers/redis/client/client.py",
        old="            except Refused as error:  # by a server that was connected to just now\n"
        "                failure = error\n",
        new="",
        tests=(f"{CONNECTIONS}test_a_password_that_was_changed_meanwhile_is_an_error_of_the_library",),
    ),
)
