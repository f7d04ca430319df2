"""Declaring queues and groups, and removing them with all they hold."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from godwit.brokers.arguments import groups_or_default, one_server_only
from godwit.brokers.sqlite.layout.rows import INSERT_GROUP, QueueRow, new_group_values
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.removal import clear_group
from godwit.core.errors import AlreadyExistsError
from godwit.core.journal.rows import declared_row, removal_row
from godwit.core.journal.shards import shard_name
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GROUP_FIXED, QUEUE_FIXED, GroupSpec, QueueSpec, changed_setting


def declare(work: SqliteStep, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
    """Create a queue and groups, or change their settings."""
    queue = work.find_queue(spec.name)
    one_server_only(spec)
    wanted = groups_or_default(groups, exists=queue is not None)
    if queue is not None:
        _check_fixed(work, queue, spec, wanted)
        work.execute("UPDATE broker_queues SET spec = ? WHERE id = ?", (msgspec.json.encode(spec), queue.id))
        queue.spec = spec
    else:
        queue = _create(work, spec)
    now_ms = work.now(queue)
    known = set(work.groups(queue))
    for group in wanted:
        encoded = msgspec.json.encode(group)
        if group.name in known:
            change = "UPDATE broker_groups SET spec = ? WHERE queue_id = ? AND name = ?"
            work.execute(change, (encoded, queue.id, group.name))
        else:
            values = new_group_values(queue, _former_letters(work, queue, group.name), now_ms)
            work.execute(INSERT_GROUP, (queue.id, group.name, encoded, *values))
    work.reload(queue)  # once: of many groups each would read all
    for group in wanted:
        if group.name not in known:
            encoded = msgspec.json.encode(group)
            work.journal(queue, Event.GROUP_CREATED, work.group(queue, group.name), None, [declared_row(encoded)])


def _former_letters(work: SqliteStep, queue: QueueRow, name: GroupName) -> int:
    """Return how many dead letters a removed group of this name had."""
    former = "SELECT seq FROM broker_letter_seqs WHERE shard_id = ? AND name = ?"
    row = work.execute(former, (queue.shard_id, name)).fetchone()
    return int(row[0]) if row is not None else 0


def _check_fixed(work: SqliteStep, queue: QueueRow, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
    if differs := changed_setting(queue.spec, spec, QUEUE_FIXED):
        raise AlreadyExistsError("QueueRow", spec.name, differs)
    for group in groups:
        known = work.groups(queue).get(group.name)
        if known is not None and (differs := changed_setting(known.spec, group, GROUP_FIXED)):
            raise AlreadyExistsError("Group", group.name, differs)


def _create(work: SqliteStep, spec: QueueSpec) -> QueueRow:
    shard = shard_name(spec.name)
    work.execute(
        "INSERT OR IGNORE INTO broker_shards VALUES (NULL, ?, ?, 0, 0, 0, 1, 0, 0, 0, 0, 0)",
        (shard, secrets.token_hex(8)),
    )
    work.execute("UPDATE broker_shards SET turn = 0, published = 0, duplicates = 0 WHERE name = ?", (shard,))
    encoded = msgspec.json.encode(spec)
    work.execute(
        "INSERT INTO broker_queues (name, spec, shard_id) SELECT ?, ?, id FROM broker_shards WHERE name = ?",
        (spec.name, encoded, shard),
    )
    queue = work.queue(spec.name)
    work.now(queue)
    work.journal(queue, Event.QUEUE_CREATED, None, None, [declared_row(encoded)])
    return queue


def remove(work: SqliteStep, name: QueueName, group_name: GroupName | None) -> None:
    """Remove a queue, or one group, with all it holds."""
    queue = work.queue(name)
    groups = list(work.groups(queue).values()) if group_name is None else [work.group(queue, group_name)]
    work.now(queue)
    seqs: list[int] = []
    count = 0
    for group in groups:
        cleared = clear_group(work, group, waiting_only=False)
        count += cleared.copies
        seqs += cleared.seqs
        work.execute("DELETE FROM broker_groups WHERE id = ?", (group.id,))
        former = (queue.shard_id, group.name, group.letter_seq)
        work.execute("INSERT OR REPLACE INTO broker_letter_seqs VALUES (?, ?, ?)", former)
        work.drop_group(group)
    row = removal_row(seqs, count)
    work.ready.add(name)  # pulls that wait there end with an error
    if group_name is not None:
        work.journal(queue, Event.GROUP_REMOVED, None, None, [row], depth=0, group_name=group_name)
        return
    work.journal(queue, Event.QUEUE_REMOVED, None, None, [row], depth=0)
    work.execute("DELETE FROM broker_queues WHERE id = ?", (queue.id,))
    work.execute("DELETE FROM broker_ids WHERE queue_id = ?", (queue.id,))
    work.execute("DELETE FROM broker_repeats WHERE queue_id = ?", (queue.id,))
    work.drop_queue(queue)
