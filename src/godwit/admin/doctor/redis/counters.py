"""Whether a broker's counters agreed with what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from godwit.admin.doctor.findings import Finding, ok, warning
from godwit.brokers.redis.recount import Mended
from godwit.core.clock import from_ms

CHECK: Final = "counters"


def judge(mended: Sequence[Mended]) -> Finding:
    """Say what `maintain` had to mend, and what it has not mended yet."""
    if not mended:
        return ok(CHECK, "agree with what is stored")
    latest = max(mended, key=lambda one: one.at_ms)
    waiting = [one for one in mended if one.pending]
    found = f"{sum(one.corrections for one in mended):,} corrections in {len(mended):,} groups"
    if latest.at_ms:
        found += f", the last at {from_ms(latest.at_ms):%Y-%m-%d %H:%M:%S} UTC in {_place(latest)}: {latest.what}"
    if waiting:
        found += f"; {len(waiting):,} groups wait to be counted, such as {_place(waiting[0])}"
    return warning(
        CHECK,
        found,
        "Counters and indexes did not agree with the stored messages and were counted anew. A message that waited "
        "nowhere was delivered again. The cause was a change made past Godwit, or a defect.",
        "Look for other programs that write to keys godwit:*, and report it if there are none. Removing and declaring "
        "a group anew clears this finding." + (" Run a worker: it counts what waits." if waiting else ""),
    )


def _place(one: Mended) -> str:
    return f"group {one.group!r} of queue {one.queue!r}"
