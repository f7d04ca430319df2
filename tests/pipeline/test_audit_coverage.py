"""What an audit covers, and the chain of its verdicts, without Spark."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.core.journal.shards import Position
from godwit.core.journal.vocabulary import Event
from godwit.pipeline.audit import row_columns
from godwit.pipeline.audit.coverage import (
    Coverage,
    Created,
    RowRun,
    Unseen,
    coverage_bytes,
    coverage_of,
    extended,
    unseen_numbers,
)
from godwit.pipeline.audit.interruptions import Gap, GroupRemoval, interruptions_of, next_after
from godwit.pipeline.audit.verdict import (
    FIRST_HASH,
    AuditCoverage,
    AuditResult,
    AuditVerdict,
    chained,
    check_chain,
    unknown_spans,
    verdict_of,
)
from godwit.store.pipelines import StoredVerdict

SHARD = ("orders#0", "e")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def run(first: int, last: int, *, at_ms: int = 1, **arrivals: tuple[int, int]) -> RowRun:
    births = sum(high - low + 1 for low, high in arrivals.values())
    return RowRun(
        shard=SHARD[0], epoch=SHARD[1], n=last - first + 1, first_seq=first, last_seq=last, first_at_ms=at_ms,
        last_at_ms=at_ms + 1, births=births, arrivals=arrivals,
    )  # fmt: skip


def covered(*batches: list[RowRun], created: list[Created] | None = None) -> tuple[Coverage, list[Gap]]:
    known, gaps = Coverage(), list[Gap]()
    for batch in batches:
        known, found = extended(known, batch, created or [], [])
        known = coverage_of(coverage_bytes(known))
        gaps += found
    return known, gaps


def test_rows_without_a_hole_are_covered_whatever_batches_and_tasks_they_come_in() -> None:
    runs = [run(1, 4, at_ms=5, g=(1, 3)), run(5, 5, at_ms=9), run(6, 9, at_ms=12, g=(4, 4), h=(1, 1))]
    for order in itertools.permutations(runs):
        (shard,) = covered(list(order))[0].shards
        assert (shard.first_seq, shard.last_seq, shard.rows, shard.copies, shard.missing) == (1, 9, 9, 5, ())
        assert (shard.first_at_ms, shard.last_at_ms) == (5, 13)
    whole, gaps = covered([runs[0]], [runs[1]], [runs[2]])
    assert whole == covered(runs)[0]
    assert (gaps, list(unseen_numbers(whole))) == ([], [])


def test_a_gap_hides_numbers_from_one_publish_before_it_to_one_behind_it() -> None:
    known, gaps = covered(
        [run(1, 9, g=(1, 500), quiet=(1, 2))], [run(20, 30, g=(900, 990)), run(31, 40, late=(995, 996))]
    )
    assert gaps == [Gap(*SHARD, 10, 19)]
    (shard,) = known.shards
    assert shard.missing == ((10, 19),)
    assert shard.groups["g"].unseen == (Unseen(500 - PUBLISH_CHUNK, 900 + PUBLISH_CHUNK),)
    assert shard.groups["quiet"].unseen == (Unseen(2 - PUBLISH_CHUNK, None),)
    assert shard.groups["late"].unseen == (Unseen(0, 995 + PUBLISH_CHUNK),)
    assert {(place[2], bool(place[3])) for place in unseen_numbers(known)} == {
        (None, False), ("g", True), ("quiet", True), ("late", True),
    }  # fmt: skip
    again, _ = extended(known, [run(50, 60, g=(2_000, 2_001))], [], [])
    (shard,) = again.shards
    assert shard.groups["g"].unseen[1:] == (Unseen(990 - PUBLISH_CHUNK, 2_000 + PUBLISH_CHUNK),)
    assert len(shard.groups["quiet"].unseen) == 1


def test_a_beginning_that_is_gone_hides_all_earlier_numbers_also_of_a_group_that_is_created_again() -> None:
    known, gaps = covered([run(7, 9, g=(40, 44))], created=[Created(*SHARD, 8, "again", True)])
    assert gaps == []
    (shard,) = known.shards
    assert shard.missing == ((1, 6),)
    assert shard.groups["g"].unseen == (Unseen(0, 40 + PUBLISH_CHUNK),)
    assert (shard.groups["again"].unseen, shard.groups["again"].ordered) == ((Unseen(0, None),), True)
    assert shard.groups["g"].ordered is None


def test_a_journal_that_is_gone_is_unknown_unless_its_queue_was_removed_and_nothing_was_left() -> None:
    removal = [GroupRemoval(*SHARD, 9, None, Event.QUEUE_REMOVED)]
    removed, _ = extended(Coverage(), [run(1, 9)], [], removal)
    assert unknown_spans(removed, [], {}) == ()
    assert [span.copies for span in unknown_spans(removed, [], {SHARD: 3})] == [3]
    created = [Created(*SHARD, 10, None, False)]
    there, _ = extended(removed, [run(10, 12)], created, [])
    (span,) = unknown_spans(there, [], {})
    assert (span.first_seq, span.last_seq, str(span).startswith("orders#0: what follows row 12")) == (13, None, True)
    assert unknown_spans(there, [SHARD], {}) == ()
    (span,) = unknown_spans(covered([run(5, 9)])[0], [SHARD], {SHARD: 2})
    assert (span.first_seq, span.last_seq, span.copies) == (1, 4, 2)


def test_the_next_interruption_of_a_group_is_found_among_those_of_many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_columns, "MOST_CODES", 10)
    rows = [(f"q{shard}#0", f"e{shard}", group, seq) for shard in range(9) for group in "ab" for seq in (1, 5, 9)]
    removals = [
        GroupRemoval(f"q{shard}#0", f"e{shard}", 3 + shard, group, Event.PURGED)
        for shard in range(9)
        for group in (None, "b")
    ]
    removals += [GroupRemoval("q1#0", "e1", 8, "b", Event.PURGED), GroupRemoval("q1#0", "other", 6, None, Event.PURGED)]
    table = pa.table(dict(zip(("shard", "epoch", "group", "seq"), map(list, zip(*rows, strict=True)), strict=True)))
    known = interruptions_of(removals, [Gap("q0#0", "e0", 6, 7)])
    found = next_after(table, table["seq"].to_numpy(), known.purges).tolist()
    for (shard, epoch, group, seq), place in zip(rows, found, strict=True):
        after = [one.seq for one in removals if (one.shard, one.epoch) == (shard, epoch) and one.group in (None, group)]
        assert place == min((other for other in after if other > seq), default=-1)
    gaps = next_after(table, table["seq"].to_numpy(), known.gaps)
    assert [int(gap) for gap in gaps[:6]] == [7, 7, -1] * 2
    assert set(gaps[6:].tolist()) == {-1}


def result(**counts: int) -> AuditResult:
    covers = AuditCoverage(
        since=NOW, until=NOW, rows=1, copies=1, shards={"a#0": Position("e", 1)}, compared=1, level=1
    )
    return AuditResult(
        verdict=verdict_of(counts, ()), rows=1, open=0, live=True, counts=counts, findings=(), unknown=(), remarks=(),
        coverage=covers,
    )  # fmt: skip


def chain(length: int) -> list[StoredVerdict]:
    verdicts: list[StoredVerdict] = []
    for number in range(length):
        verdicts.append(chained(result(lost=number), verdicts[-1] if verdicts else None, at=NOW))
    return verdicts


def test_a_verdict_is_wrong_before_it_is_unknown_and_clean_only_without_either() -> None:
    assert verdict_of({"lost": 1}, ["span"]) is AuditVerdict.WRONG
    assert verdict_of({"lost": 0, "suspect": 3}, ["span"]) is AuditVerdict.UNKNOWN
    assert verdict_of({"suspect": 3}, []) is AuditVerdict.CLEAN


@pytest.mark.parametrize("place", [0, 1, 3])
def test_changing_removing_or_swapping_a_verdict_breaks_the_chain_at_its_place(place: int) -> None:
    whole = chain(5)
    assert check_chain(whole) == msgspec.structs.replace(
        check_chain(whole), verdicts=5, hash=whole[-1].hash, problem=None
    )
    body = whole[place].body.replace(b'"rows":1', b'"rows":2')
    changed = msgspec.structs.replace(whole[place], body=body)
    damaged: list[list[Any]] = [
        [*whole[:place], changed, *whole[place + 1 :]],
        [*whole[:place], *whole[place + 1 :]],
        [*whole[:place], whole[place + 1], whole[place], *whole[place + 2 :]],
        [*whole[:place], chained(result(lost=7), whole[place - 1] if place else None, at=NOW), *whole[place + 1 :]],
    ]
    for number, verdicts in enumerate(damaged):
        found = check_chain(verdicts)
        assert found.problem is not None
        assert found.verdicts == (place + 1 if number == 3 else place)
    assert check_chain([]).hash == FIRST_HASH
