"""Bugs planted in the memory engine, and in the rules that all brokers share."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance


def seen_by(*names: str) -> tuple[str, ...]:
    """Name conformance tests (`module::test`) as they run over the memory broker."""
    return conformance("memory", names)


MUTANTS: Final = (
    Mutant(
        name="no fence: any ack id of a group settles its oldest lease",
        file="brokers/memory/settle.py",
        old="copy = held.pop(settlement.ack_id, None)",
        new="copy = held.pop(settlement.ack_id, None) or (held.popitem()[1] if held else None)",
        tests=seen_by("promise_03_fencing.py::test_a_late_ack_does_not_settle_the_next_holders_delivery"),
    ),
    Mutant(
        name="a stale ack id stops the rest of its batch",
        file="brokers/memory/settle.py",
        old="            refused.append(settlement.ack_id)\n            continue\n",
        new="            refused.append(settlement.ack_id)\n            break\n",
        tests=seen_by("promise_03_fencing.py::test_a_batch_settles_what_is_valid_and_returns_the_rest_in_order"),
    ),
    Mutant(
        name="a returned message goes to the tail",
        file="brokers/memory/group.py",
        old="        copy.returned = True\n",
        new="        copy.returned = False\n",
        tests=seen_by("promise_07_order.py::test_a_retried_message_comes_before_those_never_delivered"),
    ),
    Mutant(
        name="a publish wakes nobody",
        file="brokers/memory/broker.py",
        old="engine.publish(envelopes, self.app_version))\n        finally:\n            self.notify()",
        new="engine.publish(envelopes, self.app_version))\n        finally:\n            pass",
        tests=seen_by("waiting_pulls.py::test_a_publish_wakes_a_waiting_pull"),
        patience_seconds=5,
    ),
    Mutant(
        name="dedup entries are kept though the chunk was refused",
        file="brokers/memory/queue.py",
        old="        dropped = {group.name: self._misfits(",
        new="        self._remember(fresh, now_ms)\n        dropped = {group.name: self._misfits(",
        tests=seen_by("promise_08_limits.py::test_a_refused_publish_leaves_no_trace"),
    ),
    Mutant(
        name="the dedup window counts from acceptance even when the message is due later",
        file="brokers/memory/queue.py",
        old="known[envelope.id] = until = envelope.deliver_at_ms + window_ms",
        new="known[envelope.id] = until = now_until",
        tests=seen_by("promise_10_deduplication.py::test_the_window_counts_from_deliver_at_when_that_is_later"),
    ),
    Mutant(
        name="a crash is not counted",
        file="brokers/memory/maintain.py",
        old="        copy.crashes += 1\n",
        new="",
        tests=seen_by("promise_05_counters.py::test_a_lease_that_runs_out_counts_as_a_crash"),
    ),
    Mutant(
        name="handing back burns an attempt",
        file="brokers/memory/settle.py",
        old="            copy.attempt -= 1\n",
        new="",
        tests=seen_by("promise_05_counters.py::test_handing_back_counts_as_nothing"),
    ),
    Mutant(
        name="the attempt is reset by a return",
        file="brokers/memory/group.py",
        old="        copy.returned = True\n",
        new="        copy.returned, copy.attempt = True, 0\n",
        tests=seen_by("promise_05_counters.py::test_a_retry_counts_as_a_failure"),
    ),
    Mutant(
        name="a failure counts as a crash too",
        file="brokers/memory/settle.py",
        old="            copy.failures += not isinstance(settlement, Postpone)\n",
        new="            copy.failures += 1\n            copy.crashes += 1\n",
        tests=seen_by("promise_05_counters.py::test_a_retry_counts_as_a_failure"),
    ),
    Mutant(
        name="poison one crash late",
        file="brokers/memory/maintain.py",
        old="copy.crashes >= spec.max_crashes",
        new="copy.crashes > spec.max_crashes",
        tests=seen_by("promise_05_counters.py::test_max_crashes_isolates_a_message_as_poison"),
    ),
    Mutant(
        name="an expired message is delivered",
        file="brokers/memory/maintain.py",
        old="    if group.next_expiry_ms <= now_ms:\n",
        new="    if group.next_expiry_ms < 0:\n",
        tests=seen_by("promise_09_expiry.py::test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered"),
    ),
    Mutant(
        name="ttl counts from creation although the message is due later",
        file="core/messages/envelope.py",
        old="(self.created_at_ms if self.deliver_at_ms is None else self.deliver_at_ms) + ttl_ms",
        new="self.created_at_ms + ttl_ms",
        tests=seen_by("promise_09_expiry.py::test_ttl_counts_from_deliver_at_when_the_message_is_due_later"),
    ),
    Mutant(
        name="a nack releases the ordering key",
        file="brokers/memory/group.py",
        old="  # its first entry may be gone\n        self.wait(copy, now_ms)\n",
        new="\n        self.wait(copy, now_ms)\n        self._release(copy, now_ms)\n",
        tests=seen_by("promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[retry]"),
    ),
    Mutant(
        name="a delayed head does not block its key",
        file="brokers/memory/group.py",
        old="            if waiting is not None:\n                waiting.append(copy)",
        new="            if waiting is not None and waiting[0].place != DELAYED:\n                waiting.append(copy)",
        tests=seen_by("promise_07_order.py::test_a_delayed_head_blocks_its_key_and_no_other"),
    ),
    Mutant(
        name="flow control counts messages only",
        file="brokers/memory/engine.py",
        old="bounded = max_bytes is not None or flow.max_bytes is not None",
        new="bounded = max_bytes is not None",
        tests=seen_by("promise_08_limits.py::test_flow_control_caps_the_bytes_leased"),
    ),
    Mutant(
        name="flow control does not know what is leased already",
        file="brokers/memory/engine.py",
        old="limit = min(limit, flow.max_messages - group.leased)",
        new="limit = min(limit, flow.max_messages)",
        tests=seen_by("promise_08_limits.py::test_flow_control_caps_the_messages_leased_over_all_workers"),
    ),
    Mutant(
        name="the limit is off by one",
        file="brokers/limits.py",
        old="        if depth >= max_size:",
        new="        if depth > max_size:",
        tests=seen_by("promise_08_limits.py::test_a_publish_over_the_limit_is_refused_naming_the_group"),
    ),
    Mutant(
        name="drops are not counted",
        file="brokers/memory/queue.py",
        old="        group.dropped += len(dropped_rows)\n",
        new="",
        tests=seen_by("promise_08_limits.py::test_a_dropping_group_drops_what_does_not_fit_and_counts_it"),
    ),
    Mutant(
        name="the journal's seq is the number of rows held",
        file="brokers/memory/journal.py",
        old="        first = self.seq + 1\n",
        new="        self.seq = sum(1 + c[1] - c[0] for c in self.chunks[self.start:])\n        first = self.seq + 1\n",
        tests=seen_by("port_journal.py::test_seq_goes_on_after_everything_was_trimmed"),
    ),
    Mutant(
        name="time goes back with the clock",
        file="brokers/memory/journal.py",
        old="self.at_ms, self.lag = advanced(self.at_ms, clock_ms, self.lag)",
        new="self.at_ms = clock_ms",
        tests=seen_by("port_journal.py::test_at_never_decreases_when_the_clock_jumps_back"),
    ),
    Mutant(
        name="depth forgets what is leased",
        file="brokers/memory/group.py",
        old="return self.ready + self.blocked + self.delayed_count + self.leased",
        new="return self.ready + self.blocked + self.delayed_count",
        tests=seen_by("promise_11_bookkeeping.py::test_depth_is_that_of_the_group_after_the_step"),
    ),
    Mutant(
        name="an outage is not forgiven",
        file="brokers/memory/maintain.py",
        old="if group.spec.forgive_outages and gap_ms > min(group.leases):",
        new="if False:",
        tests=seen_by("promise_05_counters.py::test_an_outage_moves_open_leases_forward_once_by_one_lease"),
    ),
    Mutant(
        name="an outage is forgiven again and again",
        file="brokers/memory/maintain.py",
        old="    group.looked_after_ms = now_ms\n",
        new="",
        tests=seen_by("promise_05_counters.py::test_an_outage_moves_open_leases_forward_once_by_one_lease"),
    ),
    Mutant(
        name="a replay keeps the counters",
        file="brokers/memory/dead_letters.py",
        old="        copy.errors = letter.errors\n",
        new="        copy.errors, copy.attempt = letter.errors, letter.attempt\n",
        tests=seen_by(
            "port_dead_letters.py::test_a_replayed_letter_is_ready_again_with_counters_at_zero_and_its_history"
        ),
    ),
    Mutant(
        name="a dead letter loses its error history",
        file="brokers/memory/dead_letters.py",
        old="        errors=copy.errors,\n",
        new="        errors=(),\n",
        tests=seen_by("promise_06_dead_letters.py::test_a_dead_letter_keeps_id_times_key_body_counters_and_history"),
    ),
    Mutant(
        name="trimming ignores readers",
        file="brokers/memory/journal.py",
        old="(oldest.at_ms >= keep_from_ms or oldest.last_seq > read_by_all)",
        new="oldest.at_ms >= keep_from_ms",
        tests=seen_by("port_journal.py::test_a_committed_reader_holds_trimming_by_age_back"),
    ),
    Mutant(
        name="purging removes what is leased",
        file="brokers/memory/engine.py",
        old="waiting = [copy for copy in all_copies(one) if copy.place <= BLOCKED]",
        new="waiting = [copy for copy in all_copies(one) if copy.place <= LEASED]",
        tests=seen_by("cancel_and_purge.py::test_purging_deletes_everything_that_waits_in_every_group_and_counts_it"),
    ),
    Mutant(
        name="cancelling removes what is leased",
        file="brokers/memory/engine.py",
        old="                if copy.place <= BLOCKED:\n                    group.withdraw(copy)",
        new="                if copy.place <= LEASED:\n                    group.withdraw(copy)",
        tests=seen_by("cancel_and_purge.py::test_a_leased_copy_is_not_cancelled"),
    ),
    Mutant(
        name="the low lane starves",
        file="brokers/memory/pull.py",
        old="group.pulls % LOWEST_FIRST_EVERY == LOWEST_FIRST_EVERY - 1",
        new="group.pulls < 0",
        tests=seen_by("promise_07_order.py::test_every_tenth_pull_that_delivers_begins_with_the_lowest_lane"),
    ),
    Mutant(
        name="a refused chunk is stored in part",
        file="brokers/limits.py",
        old="        if moved or group.overflow is Overflow.REFUSE:",
        new="        if index == 0 and (moved or group.overflow is Overflow.REFUSE):",
        tests=seen_by("promise_01_durable_publish.py::test_a_chunk_is_stored_whole_or_not_at_all"),
    ),
    Mutant(
        name="a partial publish does not say what was accepted",
        file="brokers/memory/engine.py",
        old="raise PartialPublish(tuple(receipt.id for receipt in receipts), str(error)) from error",
        new="raise PartialPublish((), str(error)) from error",
        tests=seen_by("promise_01_durable_publish.py::test_a_later_chunk_that_fails_names_the_ids_accepted"),
    ),
    Mutant(
        name="an address is ignored",
        file="brokers/memory/queue.py",
        old="            addressed = envelope.group is not None\n",
        new="            addressed = False\n",
        tests=seen_by("promise_01_durable_publish.py::test_an_addressed_message_reaches_that_group_alone"),
    ),
    Mutant(
        name="a lease longer than the outage moves too",
        file="brokers/memory/maintain.py",
        old="            if length_ms < gap_ms:\n",
        new="            if True:\n",
        tests=seen_by("promise_05_counters.py::test_of_two_leases_only_the_one_shorter_than_the_outage_moves"),
    ),
)
