"""Bugs planted in the RabbitMQ broker, noticed without a server: each mutant would start a node of its own."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

_FOLDER: Final = "tests/brokers/rabbitmq/"


def seen_by(*names: str) -> tuple[str, ...]:
    """Name tests (`module::test`) of the RabbitMQ broker."""
    return tuple(f"{_FOLDER}test_{name}" for name in names)


MUTANTS: Final = (
    Mutant(
        name="rabbitmq: a delay is rounded down",
        file="brokers/rabbitmq/layout/delays.py",
        old="    ticks = -(-min(delay_ms, LONGEST_MS) // UNIT_MS)\n",
        new="    ticks = min(delay_ms, LONGEST_MS) // UNIT_MS\n",
        tests=seen_by(
            "delays.py::test_any_delay_from_100_ms_to_30_days_is_right_within_a_second_or_2_percent_and_never_early"
        ),
    ),
    Mutant(
        name="rabbitmq: a level leads past the next one",
        file="brokers/rabbitmq/layout/delays.py",
        old="below = level_name(level - 1) if level else DUE",
        new="below = level_name(level - 2) if level > 1 else DUE",
        tests=seen_by("delays.py::test_levels_are_declared_from_below_so_that_none_leads_nowhere"),
    ),
    Mutant(
        name="rabbitmq: messages are not persistent",
        file="brokers/rabbitmq/amqp/frames.py",
        old='_PERSISTENT: Final = b"\\x02"',
        new='_PERSISTENT: Final = b"\\x01"',
        tests=seen_by("protocol.py::test_a_publish_is_persistent_mandatory_and_readable_by_any_client"),
    ),
    Mutant(
        name="rabbitmq: an unroutable message is taken for confirmed",
        file="brokers/rabbitmq/amqp/channel.py",
        old="UNROUTABLE if index in self.unroutable else outcome",
        new="outcome",
        tests=seen_by("protocol.py::test_a_window_knows_what_was_confirmed_refused_and_returned"),
    ),
    Mutant(
        name="rabbitmq: an older copy is delivered too",
        file="brokers/rabbitmq/ledger/pull.py",
        old="if header.turn < turn or (",
        new="if (",
        tests=seen_by("ledger.py::test_of_two_copies_the_older_turn_is_dropped"),
    ),
    Mutant(
        name="rabbitmq: a publish sent twice is delivered to two workers",
        file="brokers/rabbitmq/ledger/pull.py",
        old="(place == LEASED and not inbound.redelivered and header.turn == turn)",
        new="False",
        tests=seen_by("ledger.py::test_a_message_is_taken_once_and_a_second_copy_of_it_is_dropped"),
    ),
    Mutant(
        name="rabbitmq: an outage is a crash",
        file="brokers/rabbitmq/ledger/settle.py",
        old="(WAITING, tx.now(book), lease.queue, lease.group, lease.seq, lease.token, LEASED),",
        new="(LEASED, tx.now(book), lease.queue, lease.group, lease.seq, lease.token, LEASED),",
        tests=seen_by("ledger.py::test_a_lost_connection_is_nobodys_crash"),
    ),
    Mutant(
        name="rabbitmq: anybody ends a lease",
        file="brokers/rabbitmq/ledger/settle.py",
        old="DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ? AND token = ? AND place = ?",
        new="DELETE FROM copies WHERE queue = ? AND grp = ? AND seq = ? AND token != ? AND place = ?",
        tests=seen_by("ledger.py::test_a_lease_of_somebody_else_is_not_ended"),
    ),
    Mutant(
        name="rabbitmq: a repeated publish is not recognised when it comes",
        file="brokers/rabbitmq/ledger/pull.py",
        old="if known is not None and known[0] != seq:",
        new="if False:",
        tests=seen_by("ledger.py::test_a_repeated_publish_is_dropped_whichever_copy_comes_first"),
    ),
    Mutant(
        name="rabbitmq: a dead letter is listed once per copy in the dead letter queue",
        file="brokers/rabbitmq/ledger/dead_letters.py",
        old="if known is None and ours(book, inbound):",
        new="if False:",
        tests=seen_by("ledger.py::test_a_dead_letter_is_taken_over_once"),
    ),
)
