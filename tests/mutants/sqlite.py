"""Bugs planted in the SQLite broker."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance


def seen_by(*names: str) -> tuple[str, ...]:
    """Name conformance tests (`module::test`) as they run over the SQLite broker."""
    return conformance("sqlite", names)


def crash_at(point: str) -> tuple[str, ...]:
    """Name the test that lets the broker die there."""
    return (f"tests/faults/test_fault_points.py::test_a_crash_leaves_the_step_it_hit_whole_or_absent[{point}]",)


MUTANTS: Final = (
    Mutant(
        name="sqlite: an ack id stays valid after it was used",
        file="brokers/sqlite/settle.py",
        old="        del block.open[lease.place]\n        block.changed = True\n",
        new="",
        tests=seen_by("promise_03_fencing.py::test_an_ack_id_is_valid_once[ack]"),
    ),
    Mutant(
        name="sqlite: a lease that was taken back can still be settled",
        file="brokers/sqlite/maintain.py",
        old="            del block.open[lease.place]\n            due.append((block, lease))\n",
        new="            due.append((block, lease))\n",
        tests=seen_by("promise_03_fencing.py::test_a_late_ack_does_not_settle_the_next_holders_delivery"),
    ),
    Mutant(
        name="sqlite: a returned message goes to the tail",
        file="brokers/sqlite/layout/copies.py",
        old="    copy.returned = 1\n",
        new="    copy.returned = 0\n",
        tests=seen_by("promise_07_order.py::test_a_retried_message_comes_before_those_never_delivered"),
    ),
    Mutant(
        name="sqlite: other processes are not woken",
        file="brokers/sqlite/broker.py",
        old="            self._wake_socket.ring(ready)\n",
        new="",
        tests=("tests/faults/test_lost_wakeups.py::test_no_wake_up_is_lost[300]",),
    ),
    Mutant(
        name="sqlite: what a lost pull took is not handed back",
        file="brokers/sqlite/broker.py",
        old="lost=self._hand_back)\n        if not found and wait:",
        new=")\n        if not found and wait:",
        tests=crash_at("sqlite.hand_back:1"),
    ),
    Mutant(
        name="sqlite: ids are remembered though their chunk was refused",
        file="brokers/sqlite/layout/ids.py",
        old="            seen.add(envelope.id)\n",
        new=(
            "            seen.add(envelope.id)\n"
            "            work.execute(UPSERT_ID, (queue.id, envelope.id, now_ms + 600_000, 0, 0, None))\n"
        ),
        tests=seen_by("promise_01_durable_publish.py::test_publishing_again_after_a_partial_publish_is_safe"),
    ),
    Mutant(
        name="sqlite: a crash is not counted",
        file="brokers/sqlite/maintain.py",
        old="        copy.crashes += 1\n",
        new="",
        tests=seen_by("promise_05_counters.py::test_a_lease_that_runs_out_counts_as_a_crash"),
    ),
    Mutant(
        name="sqlite: handing back burns an attempt",
        file="brokers/sqlite/settle.py",
        old="            copy.attempt -= 1\n",
        new="",
        tests=seen_by("promise_05_counters.py::test_handing_back_counts_as_nothing"),
    ),
    Mutant(
        name="sqlite: every delivery is the first attempt",
        file="brokers/sqlite/pull.py",
        old="copy.attempt + 1,",
        new="1,",
        tests=seen_by("promise_05_counters.py::test_a_retry_counts_as_a_failure"),
    ),
    Mutant(
        name="sqlite: an expired message is delivered",
        file="brokers/sqlite/maintain.py",
        old="    if group.expiring:\n",
        new="    if group.expiring < 0:\n",
        tests=seen_by("promise_09_expiry.py::test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered"),
    ),
    Mutant(
        name="sqlite: a nack releases the ordering key",
        file="brokers/sqlite/layout/copies.py",
        old="        store_alone(work, group, copy)\n    wait(work, group, copy, now_ms)\n",
        new=(
            "        store_alone(work, group, copy)\n    wait(work, group, copy, now_ms)\n"
            "    if copy.key is not None:\n        release_key(work, group, copy.key, now_ms)\n"
        ),
        tests=seen_by("promise_07_order.py::test_the_order_of_a_key_holds_across_every_return[retry]"),
    ),
    Mutant(
        name="sqlite: a delayed head does not block its key",
        file="brokers/sqlite/layout/copies.py",
        old='INTO broker_heads VALUES (?, ?)", row).rowcount:',
        new='INTO broker_heads VALUES (?, ?)", row).rowcount and not group.delayed:',
        tests=seen_by("promise_07_order.py::test_a_delayed_head_blocks_its_key_and_no_other"),
    ),
    Mutant(
        name="sqlite: flow control counts messages only",
        file="brokers/sqlite/pull.py",
        old="bounded = max_bytes is not None or flow_bytes is not None",
        new="bounded = max_bytes is not None",
        tests=seen_by("promise_08_limits.py::test_flow_control_caps_the_bytes_leased"),
    ),
    Mutant(
        name="sqlite: the limit is off by one",
        file="brokers/limits.py",
        old="        if depth >= max_size:",
        new="        if depth > max_size:",
        tests=seen_by("promise_08_limits.py::test_a_publish_over_the_limit_is_refused_naming_the_group"),
    ),
    Mutant(
        name="sqlite: drops are not counted",
        file="brokers/sqlite/publish.py",
        old="        group.dropped += len(rows)\n",
        new="",
        tests=seen_by("promise_08_limits.py::test_a_dropping_group_drops_what_does_not_fit_and_counts_it"),
    ),
    Mutant(
        name="sqlite: the journal's seq restarts when no row is held",
        file="brokers/sqlite/layout/step.py",
        old="        queue.seq += n\n",
        new=(
            '        held = self._chunks or self.execute("SELECT 1 FROM broker_journal").fetchone()\n'
            "        queue.seq = queue.seq + n if held else n\n"
        ),
        tests=seen_by("port_journal.py::test_seq_goes_on_after_everything_was_trimmed"),
    ),
    Mutant(
        name="sqlite: time goes back with the clock",
        file="brokers/sqlite/layout/step.py",
        old="        if clock_ms >= queue.at:\n",
        new="        if True:\n",
        tests=seen_by("port_journal.py::test_at_never_decreases_when_the_clock_jumps_back"),
    ),
    Mutant(
        name="sqlite: depth forgets what is leased",
        file="brokers/sqlite/layout/rows.py",
        old="return self.ready + self.blocked + self.delayed + self.leased",
        new="return self.ready + self.blocked + self.delayed",
        tests=seen_by("promise_11_bookkeeping.py::test_depth_is_that_of_the_group_after_the_step"),
    ),
    Mutant(
        name="sqlite: the journal is written in a transaction of its own",
        file="brokers/sqlite/layout/step.py",
        old="            self.executemany(INSERT_CHUNK, self._chunks)\n",
        new=(
            '            self.execute("COMMIT")\n            self.execute("BEGIN IMMEDIATE")\n'
            "            self.executemany(INSERT_CHUNK, self._chunks)\n"
        ),
        tests=crash_at("sqlite.before_commit:4"),
    ),
    Mutant(
        name="sqlite: a publish does not wait for the disk",
        file="brokers/sqlite/broker.py",
        old='carry_out("publish", lambda engine: engine.publish(envelopes, version), durable=True)',
        new='carry_out("publish", lambda engine: engine.publish(envelopes))',
        tests=("tests/brokers/sqlite/test_writing.py::test_publishes_are_written_through_and_pulls_are_not",),
    ),
    Mutant(
        name="sqlite: a publish is answered before the disk has it",
        file="sqlite_writer/writer_thread.py",
        old="                self._transactions.write_through(calls)  # others go on meanwhile\n",
        new="                pass\n",
        tests=("tests/brokers/sqlite/test_writing.py::test_publishes_are_written_through_and_pulls_are_not",),
    ),
    Mutant(
        name="sqlite: others are kept out while a publish waits for the disk",
        file="sqlite_writer/transactions.py",
        old='            execute("COMMIT")\n',
        new='            execute("COMMIT")\n            self.write_through(calls)\n',
        tests=("tests/brokers/sqlite/test_writing.py::test_others_go_on_while_a_publish_waits_for_the_disk",),
    ),
    Mutant(
        name="sqlite: an outage is not forgiven",
        file="brokers/sqlite/maintain.py",
        old="if group.spec.forgive_outages and gap_ms > 0:",
        new="if False:",
        tests=seen_by("promise_05_counters.py::test_an_outage_moves_open_leases_forward_once_by_one_lease"),
    ),
    Mutant(
        name="sqlite: an outage is forgiven again and again",
        file="brokers/sqlite/maintain.py",
        old="        group.looked_at = now_ms  #",
        new="        #",
        tests=seen_by("promise_05_counters.py::test_an_outage_moves_open_leases_forward_once_by_one_lease"),
    ),
    Mutant(
        name="sqlite: a lease longer than the outage moves too",
        file="brokers/sqlite/maintain.py",
        old='blocks_of(work, group, " AND shortest < ?", gap_ms):\n        for lease in block.open.values():\n'
        "            if lease.length < gap_ms and",
        new="blocks_of(work, group):\n        for lease in block.open.values():\n            if",
        tests=seen_by("promise_05_counters.py::test_of_two_leases_only_the_one_shorter_than_the_outage_moves"),
    ),
    Mutant(
        name="sqlite: a replay keeps the counters",
        file="brokers/sqlite/dead_letters.py",
        old="        copy.errors = letter.errors\n",
        new="        copy.errors, copy.attempt = letter.errors, letter.attempt\n",
        tests=seen_by(
            "port_dead_letters.py::test_a_replayed_letter_is_ready_again_with_counters_at_zero_and_its_history"
        ),
    ),
    Mutant(
        name="sqlite: a dead letter loses its error history",
        file="brokers/sqlite/dead_letters.py",
        old="        errors=decode_errors(letter.errors),\n",
        new="        errors=(),\n",
        tests=seen_by("promise_06_dead_letters.py::test_a_dead_letter_keeps_id_times_key_body_counters_and_history"),
    ),
    Mutant(
        name="sqlite: trimming ignores readers",
        file="brokers/sqlite/journal.py",
        old="(at >= keep_from_ms or last_seq > read_by_all)",
        new="at >= keep_from_ms",
        tests=seen_by("port_journal.py::test_a_committed_reader_holds_trimming_by_age_back"),
    ),
    Mutant(
        name="sqlite: purging removes what is leased",
        file="brokers/sqlite/removal.py",
        old="cleared = clear_group(work, group, waiting_only=True)",
        new="cleared = clear_group(work, group, waiting_only=False)",
        tests=seen_by("cancel_and_purge.py::test_purging_deletes_everything_that_waits_in_every_group_and_counts_it"),
    ),
    Mutant(
        name="sqlite: the low lane starves",
        file="brokers/sqlite/pull.py",
        old="group.pulls % LOWEST_FIRST_EVERY == LOWEST_FIRST_EVERY - 1",
        new="group.pulls < 0",
        tests=seen_by("promise_07_order.py::test_every_tenth_pull_that_delivers_begins_with_the_lowest_lane"),
    ),
    Mutant(
        name="sqlite: a refused chunk is stored in part",
        file="brokers/limits.py",
        old="        if moved or group.overflow is Overflow.REFUSE:",
        new="        if index == 0 and (moved or group.overflow is Overflow.REFUSE):",
        tests=seen_by("promise_01_durable_publish.py::test_a_chunk_is_stored_whole_or_not_at_all"),
    ),
    Mutant(
        name="sqlite: a partial publish does not say what was accepted",
        file="brokers/sqlite/publish.py",
        old="PartialPublish(tuple(receipt.id for receipt in receipts), str(error))",
        new="PartialPublish((), str(error))",
        tests=seen_by("promise_01_durable_publish.py::test_a_later_chunk_that_fails_names_the_ids_accepted"),
    ),
    Mutant(
        name="sqlite: a group added later gets old messages",
        file="brokers/sqlite/layout/rows.py",
        old="return (*(queue.turn,) * 4, *(0,) * (len(_COUNTERS) - 7), letter_seq, 0, now_ms)",
        new="return (0, 0, 0, 0, queue.turn, *(0,) * (len(_COUNTERS) - 8), letter_seq, 0, now_ms)",
        tests=seen_by("promise_01_durable_publish.py::test_a_group_added_later_starts_empty"),
    ),
    Mutant(
        name="sqlite: an address is ignored",
        file="brokers/sqlite/publish.py",
        old="                if message[GROUP] not in (None, group.name) or message[SEQ] in dropped:\n",
        new="                if message[SEQ] in dropped:\n",
        tests=seen_by("promise_01_durable_publish.py::test_an_addressed_message_reaches_that_group_alone"),
    ),
)
