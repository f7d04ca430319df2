"""Bugs of the audit: what it covers, what lies in gaps, and the chain of its verdicts."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant

COVERAGE: Final = ("tests/pipeline/test_audit_coverage.py",)
DROPPED: Final = ("tests/pipeline/test_drop_completed.py",)

MUTANTS: Final = (
    Mutant(
        name="audit: a gap hides only the numbers right behind those seen",
        file="pipeline/audit/coverage.py",
        old="Unseen(group.newest - PUBLISH_CHUNK, None)",
        new="Unseen(group.newest, None)",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: a gap ends with the first number behind it",
        file="pipeline/audit/coverage.py",
        old="lowest + PUBLISH_CHUNK",
        new="lowest",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: rows behind a gap count as following",
        file="pipeline/audit/coverage.py",
        old="if run.first_seq > reached + 1:",
        new="if run.first_seq > reached + 1_000:",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: a journal that is gone is known when nothing was open",
        file="pipeline/audit/verdict.py",
        old="(copies or not one.removed)",
        new="copies",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: the chain forgets the hash before",
        file="pipeline/audit/verdict.py",
        old='hashlib.sha256(before.encode() + b"\\n" + bytes(body))',
        new="hashlib.sha256(bytes(body))",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: a purge of one group is a purge of all",
        file="pipeline/audit/interruptions.py",
        old="mine = sorted({*in_shard.get(None, ()), *in_shard.get(group, ())})",
        new="mine = sorted({seq for seqs in in_shard.values() for seq in seqs})",
        tests=COVERAGE,
    ),
    Mutant(
        name="audit: a life that goes on behind a purge is dropped as completed",
        file="pipeline/audit/drop_completed.py",
        old=" & ~self._interrupted(copies, after, at)",
        new="",
        tests=DROPPED,
    ),
)
