"""What is wrong, or will go wrong, with a broker's or store's server: found, explained, and how to mend it.

Modules:

    examiners   which examiner knows which kind of server
    findings    a finding of the doctor: what is so, why it matters, what to do about it
    units       sizes, rates and durations as a finding says them
    journals    how many hours the journals hold at the present rate
    sqlite      examines a SQLite file: disk, log, health
"""

from __future__ import annotations

from godwit.admin.doctor.examiners import EXAMINERS, examine
from godwit.admin.doctor.findings import Finding, Severity, worst

__all__ = ["EXAMINERS", "Finding", "Severity", "examine", "worst"]
