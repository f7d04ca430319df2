"""What is wrong, or will go wrong, with a broker's or store's server: found, explained, and how to mend it."""

from __future__ import annotations

from godwit.admin.doctor.examining import EXAMINERS, examine
from godwit.admin.doctor.findings import Finding, Severity, worst

__all__ = ["EXAMINERS", "Finding", "Severity", "examine", "worst"]
