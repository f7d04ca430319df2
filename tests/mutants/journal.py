"""Bugs planted in what the journal says of actors, versions, correlation ids and attributes."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant, conformance

ACTORS: Final = "port_journal.py::test_what_an_actor_asked_for_names_it"
MARKS: Final = "port_journal.py::test_arrivals_carry_correlation_id_and_attributes_and_so_does_a_replay"
MIXED: Final = "port_journal.py::test_marks_in_one_call_with_messages_without_are_those_of_their_own"
VERSION: Final = "port_journal.py::test_arrivals_and_deliveries_carry_the_version_of_the_application"
SMALL: Final = "port_journal.py::test_who_uses_none_of_it_has_chunks_that_end_with_their_rows"
HOLDS: Final = "port_journal.py::test_pauses_drains_and_their_ends_are_in_the_journal"


MUTANTS: Final = (
    Mutant(
        name="journal: a discard in memory drops its actor",
        file="brokers/memory/dead_letters.py",
        old="Event.DISCARDED, queue.spec.name, group.name, None, group.depth, rows, actor=actor)",
        new="Event.DISCARDED, queue.spec.name, group.name, None, group.depth, rows)",
        tests=conformance("memory", (ACTORS,)),
    ),
    Mutant(
        name="journal: a cancel on SQLite drops its actor",
        file="brokers/sqlite/engine.py",
        old="return self._asked(actor, removal.cancel,",
        new="return self._asked(None, removal.cancel,",
        tests=conformance("sqlite", (ACTORS,)),
    ),
    Mutant(
        name="journal: a purge on Redis drops its actor",
        file="brokers/redis/lua/purge.lua",
        old="{'\\147' .. pack(count, lowest, highest)}, nil, text(ARGV[4]))",
        new="{'\\147' .. pack(count, lowest, highest)})",
        tests=conformance("redis", (ACTORS,)),
    ),
    Mutant(
        name="journal: a removal of a group on RabbitMQ drops its actor",
        file="brokers/rabbitmq/ledger/declare.py",
        old="tx.journal(book, Event.GROUP_REMOVED, taken, None, [removed], actor=actor)",
        new="tx.journal(book, Event.GROUP_REMOVED, taken, None, [removed])",
        tests=conformance("rabbitmq", (ACTORS,)),
        patience_seconds=60,
    ),
    Mutant(
        name="journal: a replay on Redis forgets the marks",
        file="brokers/redis/lua/replay.lua",
        old="if type(origin) == 'table' then length",
        new="if false then length",
        tests=conformance("redis", (MARKS,)),
    ),
    Mutant(
        name="journal: SQLite gives every message of a run the marks of none",
        file="brokers/sqlite/layout/arrival_rows.py",
        old="NO_MARKS if len(message) == MARKS else message[MARKS:]",
        new="NO_MARKS",
        tests=conformance("sqlite", (MARKS,)),
    ),
    Mutant(
        name="journal: a brief row on Redis has no room for marks alone",
        file="brokers/redis/layout/compact_chunks.py",
        old="lineage = (*end, *_MISSING[len(end)]) if end",
        new="lineage = (*end[:4], *_MISSING[4]) if end",
        tests=conformance("redis", (f"{MIXED}[off]",)),
    ),
    Mutant(
        name="journal: a pull on Redis names no version",
        file="brokers/redis/lua/pull.lua",
        old="local who = app_version and {worker, app_version} or worker",
        new="local who = worker",
        tests=conformance("redis", (VERSION,)),
    ),
    Mutant(
        name="journal: every event has the version",
        file="brokers/sqlite/layout/step.py",
        old="self.app_version if event in VERSIONED else None,",
        new="self.app_version,",
        tests=conformance("sqlite", (VERSION,)),
    ),
    Mutant(
        name="journal: chunks end with nulls",
        file="core/journal/chunks.py",
        old="    if actor is None and app_version is None:\n        return _encode(chunk)\n",
        new="    return _encode((*chunk, actor, app_version))\n",
        tests=conformance("memory", (SMALL,)),
    ),
    Mutant(
        name="journal: a pause of a group is one of the whole queue",
        file="brokers/redis/lua/note_hold.lua",
        old="  group, depth = ARGV[4], held\n",
        new="  depth = held\n",
        tests=conformance("redis", (HOLDS,)),
    ),
    Mutant(
        name="journal: the column decoder leaves an actor behind the rows",
        file="core/journal/chunks.py",
        old="    if more <= 0:\n",
        new="    if more <= 1:\n",
        tests=(
            "tests/pipeline/test_column_decoder.py::test_chunks_of_actors_and_versions_are_decoded_by_column_beside_those_without",
        ),
    ),
)
