"""The verdict of an audit: what was found, what cannot be known, what it covers, and the chain of all verdicts.

A verdict is stored with the hash of its text and of the hash before it: changing or removing an earlier one breaks the
chain. Only a hash noted elsewhere shows that the last ones were cut off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from godwit.core.clock import from_ms
from godwit.core.journal.shards import Position
from godwit.pipeline.audit.coverage import Coverage, ShardCoverage
from godwit.store.pipelines import StoredVerdict

KINDS: Final = ("lost", "duplicated", "out_of_order", "stuck", "suspect")
WRONG: Final = frozenset({"lost", "duplicated", "out_of_order", "stuck"})
UNKNOWN: Final = "unknown"
"""The kind of a copy that ended unseen or is lost: it is counted with the rows that are missing."""
FIRST_HASH: Final = "0" * 64


class AuditVerdict(StrEnum):
    """The verdict of an audit."""

    CLEAN = "clean"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that cannot have happened, or should not continue."""

    kind: str
    shard: str
    epoch: str | None
    queue: str
    group: str | None
    publish_seq: int | None
    message_id: str | None
    what: str


class UnknownSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a journal that were not followed, from `first_seq` to `last_seq` (None: to an end that is not known).

    `copies` counts those that were open before and may have ended in these rows, or are lost.
    """

    shard: str
    epoch: str
    first_seq: int
    last_seq: int | None
    copies: int
    why: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        rows = (
            f"rows {self.first_seq:,} to {self.last_seq:,}"
            if self.last_seq
            else f"what follows row {self.first_seq - 1:,}"
        )
        open_copies = f" {self.copies:,} copies that were open before ended there or are lost." if self.copies else ""
        return f"{self.shard}: {rows} of epoch {self.epoch} {self.why}.{open_copies}"


class AuditCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict covers: the time and number of the rows that were followed, the journals, and their copies.

    `compared` counts the journals whose open copies were compared with the broker's, `level` those where both were at
    the same row, so that copies the journal does not know would have been seen.
    """

    since: datetime | None
    until: datetime | None
    rows: int
    copies: int
    shards: Mapping[str, Position]
    compared: int
    level: int


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the findings, the spans that cannot be known, and what it covers.

    `rows` counts those that were new, `number` and `hash` are its place in the chain of verdicts.
    """

    verdict: AuditVerdict
    rows: int
    open: int
    live: bool
    counts: Mapping[str, int]
    findings: tuple[AuditFinding, ...]
    unknown: tuple[UnknownSpan, ...]
    remarks: tuple[str, ...]
    coverage: AuditCoverage
    number: int = 0
    hash: str = ""


class ChainCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a chain: how many verdicts follow from each other, and what is wrong with the next one."""

    verdicts: int
    hash: str
    problem: str | None


def coverage_between(coverage: Coverage, *, compared: int, level: int) -> AuditCoverage:
    """Return what a verdict about these journals covers."""
    shards = coverage.shards
    return AuditCoverage(
        since=from_ms(min(one.first_at_ms for one in shards)) if shards else None,
        until=from_ms(max(one.last_at_ms for one in shards)) if shards else None,
        rows=sum(one.rows for one in shards),
        copies=sum(one.copies for one in shards),
        shards={_name(one, shards): Position(one.epoch, one.last_seq) for one in shards},
        compared=compared,
        level=level,
    )


def _name(one: ShardCoverage, shards: Sequence[ShardCoverage]) -> str:
    """Return the name of a journal, with its epoch where the shard has had several."""
    alone = sum(other.shard == one.shard for other in shards) == 1
    return one.shard if alone else f"{one.shard} {one.epoch}"


def unknown_spans(
    coverage: Coverage, held: Iterable[tuple[str, str]], counts: Mapping[tuple[str, str], int]
) -> tuple[UnknownSpan, ...]:
    """Return the rows that were not followed; `counts` are copies that may have ended in them, by shard and epoch.

    A journal that the broker no longer has (`held`) is unknown from its last row on, unless its queue was removed and
    nothing was left.
    """
    spans: list[UnknownSpan] = []
    there = set(held)
    for one in coverage.shards:
        copies = counts.get((one.shard, one.epoch), 0)
        missing = list(one.missing)
        for first, last in missing:
            why = "were gone before they were followed"
            spans.append(_span(one, first, last, copies if (first, last) == missing[-1] else 0, why))
        if (one.shard, one.epoch) not in there and (copies or not one.removed):
            why = "is not known: the broker no longer has this journal"
            spans.append(_span(one, one.last_seq + 1, None, 0 if missing else copies, why))
    return tuple(spans)


def _span(one: ShardCoverage, first: int, last: int | None, copies: int, why: str) -> UnknownSpan:
    return UnknownSpan(shard=one.shard, epoch=one.epoch, first_seq=first, last_seq=last, copies=copies, why=why)


def verdict_of(counts: Mapping[str, int], unknown: Sequence[object]) -> AuditVerdict:
    """Return the verdict: wrong when anything is, else unknown when anything is."""
    if any(counts.get(kind) for kind in WRONG):
        return AuditVerdict.WRONG
    return AuditVerdict.UNKNOWN if unknown else AuditVerdict.CLEAN


def chained(result: AuditResult, last: StoredVerdict | None, *, at: datetime) -> StoredVerdict:
    """Return a verdict as it follows the last one in the chain."""
    number, before = (last.number + 1, last.hash) if last is not None else (1, FIRST_HASH)
    document: dict[str, Any] = msgspec.to_builtins(result)
    document |= {"number": number, "at": at, "hash": before}
    body = msgspec.json.encode(document)
    return StoredVerdict(number=number, body=body, hash=_hash(before, body))


def check_chain(verdicts: Iterable[StoredVerdict]) -> ChainCheck:
    """Check that each verdict follows from the one before."""
    number, before = 0, FIRST_HASH
    for verdict in verdicts:
        problem = None
        if verdict.number != number + 1:
            problem = f"Verdict {number + 1:,} is missing: verdict {verdict.number:,} comes next."
        elif verdict.hash != _hash(before, verdict.body):
            problem = (
                f"Verdict {verdict.number:,} is not what was stored: its hash does not follow from the one before."
            )
        if problem is not None:
            return ChainCheck(verdicts=number, hash=before, problem=problem)
        number, before = verdict.number, verdict.hash
    return ChainCheck(verdicts=number, hash=before, problem=None)


def _hash(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + b"\n" + bytes(body)).hexdigest()
