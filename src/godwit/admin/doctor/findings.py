"""A finding of the doctor: what is so, why it matters, what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Severity(StrEnum):
    """How bad it is: fine, worth knowing, will hurt some day, hurts or loses messages now."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one check; a fine one has no remedy."""

    check: str
    severity: Severity
    found: str
    why: str = ""
    remedy: str = ""


def ok(check: str, found: str, why: str = "") -> Finding:
    """Return the finding of a check that has nothing to complain of."""
    return Finding(check=check, severity=Severity.OK, found=found, why=why)


def note(check: str, found: str, why: str, remedy: str = "") -> Finding:
    """Return something worth knowing."""
    return Finding(check=check, severity=Severity.NOTE, found=found, why=why, remedy=remedy)


def warning(check: str, found: str, why: str, remedy: str) -> Finding:
    """Return something that will hurt some day."""
    return Finding(check=check, severity=Severity.WARNING, found=found, why=why, remedy=remedy)


def problem(check: str, found: str, why: str, remedy: str) -> Finding:
    """Return something that hurts or loses messages now."""
    return Finding(check=check, severity=Severity.PROBLEM, found=found, why=why, remedy=remedy)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return how bad the worst of them is."""
    return max((finding.severity for finding in findings), key=RANK.__getitem__, default=Severity.OK)
