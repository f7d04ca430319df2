"""Publishing: a chunk becomes runs, ids, copies and journal chunks, or nothing at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from godwit.brokers.chunks import addresses, publish_chunks
from godwit.brokers.contract import Receipt
from godwit.brokers.limits import Fill, fits, misfits
from godwit.brokers.sqlite.layout.arrival_rows import arrival_rows
from godwit.brokers.sqlite.layout.copies import admit, new_copy
from godwit.brokers.sqlite.layout.ids import insert_ids, upsert_ids, without_known
from godwit.brokers.sqlite.layout.rows import ASIDE, GroupRow, QueueRow
from godwit.brokers.sqlite.layout.run_plan import Drops, RunPlan
from godwit.brokers.sqlite.layout.runs import GROUP, ID, SEQ, SIZE
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.errors import GodwitError, PartialPublish, QueueFull
from godwit.core.journal.rows import dropped_row, duplicate_row
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import Envelope


def publish(work: SqliteStep, envelopes: Sequence[Envelope]) -> tuple[list[Receipt], GodwitError | None]:
    """Check everything, then store chunk by chunk; return the receipts and what stopped a later chunk."""
    for name, group in addresses(envelopes):
        queue = work.queue(name)
        if group is not None:
            work.group(queue, group)
    receipts: list[Receipt] = []
    for chunk in publish_chunks(envelopes):
        try:
            receipts += accept(work, work.queue(chunk[0].queue), chunk)
        except QueueFull as error:
            if not receipts:
                raise
            stopped = PartialPublish(tuple(receipt.id for receipt in receipts), str(error))
            stopped.__cause__ = error
            return receipts, stopped
    return receipts, None


def accept(work: SqliteStep, queue: QueueRow, chunk: Sequence[Envelope], *, moved: bool = False) -> list[Receipt]:
    """Store one chunk for all groups of its queue, or raise `QueueFull` and change nothing.

    What is `moved` here from another queue was accepted before: it is not deduplicated, never dropped, and its own
    times no longer count.
    """
    now_ms = work.now(queue)
    groups = list(work.groups(queue).values())
    fresh: Sequence[Envelope] = chunk
    plan = None
    # Nearly always all fits and all ids are new: try that first, and look closer only when it is not so.
    if not moved and _fits(queue, groups, chunk):
        plan = RunPlan(queue, groups, chunk, {}, now_ms)
        if not insert_ids(work, queue, plan, now_ms):
            plan = None
    if plan is None:
        fresh = chunk if moved else without_known(work, queue, chunk, now_ms)
        drops = _drops(queue, groups, fresh, now_ms, moved=moved)
        plan = RunPlan(queue, groups, fresh, drops, now_ms, moved=moved)
        upsert_ids(work, queue, plan.stored(), remember=not moved)
    _store(work, queue, groups, plan, now_ms)
    if len(fresh) == len(chunk):
        return [Receipt(envelope.id, True) for envelope in chunk]  # noqa: FBT003
    return _answer_duplicates(work, queue, chunk, fresh)


def _answer_duplicates(
    work: SqliteStep, queue: QueueRow, chunk: Sequence[Envelope], fresh: Sequence[Envelope]
) -> list[Receipt]:
    accepted = set(map(id, fresh))
    receipts = []
    for envelope in chunk:
        receipts.append(Receipt(envelope.id, id(envelope) in accepted))
        accepted.discard(id(envelope))  # the same object twice in one chunk is a repetition too
    repetitions = [duplicate_row(receipt.id) for receipt in receipts if not receipt.fresh]
    queue.duplicates += len(repetitions)
    work.journal(queue, Event.DUPLICATE, None, None, repetitions)
    return receipts


def _fits(queue: QueueRow, groups: list[GroupRow], chunk: Sequence[Envelope]) -> bool:
    """Say whether the whole chunk fits into every group, without looking closer."""
    size = sum(envelope.size for envelope in chunk) if queue.spec.max_bytes is not None else 0
    return all(fits(queue.spec, _fill(group), len(chunk), size, delayed=group.delayed) for group in groups)


def _drops(queue: QueueRow, groups: list[GroupRow], fresh: Sequence[Envelope], now_ms: int, *, moved: bool) -> Drops:
    """Return what does not fit into groups that drop; raise when a group is full that refuses."""
    drops: Drops = {}
    for group in groups:
        if dropped := misfits(queue.spec, group.spec, _fill(group), fresh, now_ms, moved=moved):
            drops[group.id] = frozenset(dropped)
    return drops


def _fill(group: GroupRow) -> Fill:
    return Fill(group.depth, group.bytes, group.delayed)


def _store(work: SqliteStep, queue: QueueRow, groups: list[GroupRow], plan: RunPlan, now_ms: int) -> None:
    """Write a plan: runs, copies with rows of their own, counters, journal."""
    queue.turn, queue.publish_seq = plan.turn, plan.seq
    queue.published += sum(len(run.messages) for run in plan.runs)
    plain_bytes = sum(run.size for run in plan.runs if run.plain)
    plain = sum(len(run.messages) for run in plan.runs if run.plain)
    for index, group in enumerate(groups):
        group.ready += plain
        group.bytes += plain_bytes
        dropped = plan.dropped.get(group.id, frozenset())
        ordered_lane = group.ordered_lane if group.spec.message_ordering else None
        for run in plan.runs:
            if run.plain:
                run.live += len(run.messages)
                continue
            for offset, message in enumerate(run.messages):
                if message[GROUP] not in (None, group.name) or message[SEQ] in dropped:
                    continue
                run.live += 1
                turn = run.last - len(run.messages) + 1 + offset - queue.floor(ASIDE)
                admit(work, group, new_copy(message, run.last, ordered_lane=ordered_lane), now_ms, turn)
        _journal_arrivals(work, queue, group, plan, index, len(groups))
    for run in plan.runs:
        if run.live or run.holds:
            work.runs.write(run.last, run.messages, live=run.live, holds=run.holds)
    if plain and groups:
        work.ready.add(queue.name)


def _journal_arrivals(
    work: SqliteStep, queue: QueueRow, group: GroupRow, plan: RunPlan, copy: int, copies: int
) -> None:
    """Write what came to one group: at most one chunk for each of enqueued, scheduled, dropped."""
    dropped = plan.dropped.get(group.id, frozenset())
    lane = group.ordered_lane if group.spec.message_ordering else None
    for event in (Event.ENQUEUED, Event.SCHEDULED):
        runs = [run for run in plan.runs if run.later == (event is Event.SCHEDULED)]
        recipe: tuple[Any, ...] = (
            event,
            queue.name,
            group.name,
            group.depth,
            copy,
            copies,
            lane,
            [run.last for run in runs],
            list(dropped),
        )
        if work.app_version is not None:
            recipe = (*recipe, work.app_version)
        if not runs:
            continue
        if queue.keeps_body:
            n = size = 0
            for run in runs:
                run.holds += 1
                if run.plain:
                    n, size = n + len(run.messages), size + run.size
                    continue
                here = [m[SIZE] for m in run.messages if m[GROUP] in (None, group.name) and m[SEQ] not in dropped]
                n, size = n + len(here), size + sum(here)
            if n:
                work.journal_recipe(queue, n, size, recipe)
            else:
                for run in runs:
                    run.holds -= 1
        else:
            rows = arrival_rows([run.messages for run in runs], group.name, copy, copies, lane, dropped, body=False)
            if rows:
                work.journal(queue, event, group, None, rows)
    if dropped:
        rows = [dropped_row(m[ID], m[SEQ], m[SIZE]) for m, _ in plan.stored() if m[SEQ] in dropped]
        group.dropped += len(rows)
        work.journal(queue, Event.DROPPED, group, None, rows)
