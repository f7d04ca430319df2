"""An audit cannot be fooled: generated lives are clean, and every generated damage is found or named as unknown.

All cases are audited together, each with shards of its own: `GODWIT_AUDIT_LIVES` says how many of each there are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from godwit.brokers.contract import ShardEnds, Snapshot
from godwit.core.clock import ManualClock, from_ms
from godwit.core.journal.shards import Position
from godwit.pipeline.audit.broker_copies import BrokerListing
from godwit.pipeline.audit.coverage import former_epoch
from godwit.pipeline.audit.part import AuditPart, audit_key
from godwit.pipeline.audit.verdict import WRONG, AuditResult
from godwit.pipeline.batch.publisher import BatchPublisher
from godwit.pipeline.jobs import audit as audit_job
from godwit.pipeline.jobs.audit import AuditSettings, evaluate
from godwit.pipeline.jobs.run import RunSettings
from godwit.pipeline.lake.files import Lake
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.damages import ACTS, DAMAGES, HEALTHY, Case
from tests.pipeline.histories import journal
from tests.pipeline.journals import url_of
from tests.pipeline.lives import END

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIVES: Final = int(os.environ.get("GODWIT_AUDIT_LIVES", "50"))
SEED: Final = int(os.environ.get("GODWIT_AUDIT_SEED", "0"))


class Audited:
    """All cases after one audit: findings and unknown spans by shard."""

    def __init__(self, result: AuditResult) -> None:
        self.result = result
        self.findings: dict[str, list[Any]] = {}
        self.spans: dict[str, list[Any]] = {}
        for finding in result.findings:
            self.findings.setdefault(finding.shard, []).append(finding)
        for span in result.unknown:
            self.spans.setdefault(span.shard, []).append(span)

    def wrong(self, case: Case) -> list[Any]:
        """Return what is said to be wrong with a case."""
        return [one for shard in case.rows for one in self.findings.get(case.shard(shard), ()) if one.kind in WRONG]

    def unknown(self, case: Case) -> set[tuple[str, int, int | None]]:
        """Return the spans of a case that cannot be known."""
        return {
            (shard, span.first_seq, span.last_seq)
            for shard in case.rows
            for span in self.spans.get(case.shard(shard), ())
        }

    def shows(self, case: Case) -> bool:
        """Say whether every damage of a case is found, or lies in an unknown span."""
        return all(self._shown(case, *expected) for expected in case.expected)

    def _shown(self, case: Case, shard: str, kinds: frozenset[str], copy: tuple[str, str, int] | None) -> bool:
        name = case.shard(shard)
        if self.spans.get(name) and (copy is None or shard in case.unread):
            return True
        found = self.findings.get(name, ())
        return any(one.kind in kinds and copy == (shard, one.group, one.publish_seq) for one in found)


def audited(spark: SparkSession, folder: Path, cases: Sequence[Case]) -> Audited:
    """Audit every act of all cases, and compare the last one with what their brokers hold."""
    url = url_of(folder / "store.db")
    lake = Lake(str(folder / "lake"), "default")
    settings = AuditSettings(run=RunSettings(broker_url=url, store_url=url, lake=str(folder / "lake")))
    clock = ManualClock()
    clock.advance(END)
    with Connections(url, url) as connections:
        publisher = BatchPublisher(
            connections, [AuditPart(connections, lake, accept_loss=True, clock=clock)], reader="lives", lake="default",
            accept_loss=True,
        )  # fmt: skip
        acts = [case.acts() for case in cases]
        for act in range(ACTS):
            if act == ACTS - 1:
                _set_back(connections, cases)
            rows = [row for case_acts in acts for row in next(case_acts)]
            publisher(journal(spark, rows).select(*AuditPart.columns), act)
        listing, shards = BrokerListing(folder), {}
        for case in cases:
            for shard in case.rows.keys() - case.gone:
                last = case.rows[shard][-1]
                position = Position(last["epoch"], last["seq"])
                listing.add(case.shard(shard), Snapshot(position=position, copies=tuple(case.copies[shard])))
                ends = ShardEnds(epoch=position.epoch, first_seq=1, last_seq=position.seq, bytes=1, dropped=0)
                shards[case.shard(shard)] = ends
        now = from_ms(clock.now_ms())
        return Audited(evaluate(spark, connections, settings, listing, shards, now=now, rows=0))


def _set_back(connections: Connections, cases: Sequence[Case]) -> None:
    key = audit_key(Lake("lake", "default"))
    positions = dict(connections.pipelines(lambda state: state.positions(key)))
    for case in cases:
        for shard in case.past:
            name = case.shard(shard)
            position, former = positions[name], former_epoch(positions[name].epoch, 1)

            async def rename(state: Any, name: str = name, position: Position = position, former: str = former) -> bool:
                return bool(await state.set_back(key, name, position, former))

            assert connections.pipelines(rename)


async def _played(cases: Sequence[Case]) -> None:
    for case in cases:
        await case.play()


@pytest.fixture(scope="module")
def cases() -> tuple[list[Case], list[Case]]:
    """Return healthy lives and damaged ones; a third of the damaged ones have gaps as well."""
    lives = [Case(f"life{number}", SEED + number) for number in range(LIVES)]
    damaged = [Case(f"damage{number}", SEED + LIVES + number) for number in range(LIVES)]
    asyncio.run(_played([*lives, *damaged]))
    for number, case in enumerate(lives):
        assert HEALTHY[number % len(HEALTHY)](case)
    for number, case in enumerate(damaged):
        if case.random.random() < 0.3:
            case.choose(HEALTHY)(case)
        kinds = [DAMAGES[(number + step) % len(DAMAGES)] for step in range(len(DAMAGES))]
        case.damage = next(damage.__name__ for damage in kinds if damage(case))
    return lives, damaged


@pytest.fixture(scope="module")
def verdicts(
    spark: SparkSession, cases: tuple[list[Case], list[Case]], tmp_path_factory: pytest.TempPathFactory
) -> Audited:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_job, "SHOWN", 1_000_000)
        return audited(spark, tmp_path_factory.mktemp("lives"), [*cases[0], *cases[1]])


def test_healthy_lives_are_clean_and_only_what_was_not_read_is_unknown(
    cases: tuple[list[Case], list[Case]], verdicts: Audited
) -> None:
    wrong = {case.name: verdicts.wrong(case)[:3] for case in cases[0] if verdicts.wrong(case)}
    assert not wrong
    for case in cases[0]:
        unread = {(shard, first, last) for shard, spans in case.unread.items() for first, last in spans}
        assert verdicts.unknown(case) == unread, case.name


def test_every_damage_is_found_or_covered_by_an_unknown_span(
    cases: tuple[list[Case], list[Case]], verdicts: Audited
) -> None:
    hidden = [(case.name, case.seed, case.damage, case.expected) for case in cases[1] if not verdicts.shows(case)]
    assert not hidden
    assert {case.damage for case in cases[1]} == {damage.__name__ for damage in DAMAGES}


def test_the_verdict_says_what_it_covers(cases: tuple[list[Case], list[Case]], verdicts: Audited) -> None:
    covered = verdicts.result.coverage
    names = {case.shard(shard) for case in [*cases[0], *cases[1]] for shard in case.rows}
    assert {name.partition(" ")[0] for name in covered.shards} == names
    assert covered.since is not None
    assert covered.until is not None
    assert timedelta(0) < covered.until - covered.since <= END
    assert covered.copies > LIVES * 20
    assert covered.level <= covered.compared <= len(covered.shards)
