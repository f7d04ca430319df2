"""The lifecycle of a copy in the words an audit uses: steps, and the phases between them, from the journal's one table.

A copy is unborn until it arrives; then it is waiting, leased or dead until it has ended. Where rows of its journal are
missing it is `UNSURE`: alive or ended, as only the broker's listing can tell.
"""

from __future__ import annotations

from typing import Final

from godwit.core.journal.lifecycle import LIFECYCLE, PHASE_OF, REPLAYED_COPY, CopyStep, Phase, events_of

UNSURE: Final = "unsure"
STEPS: Final = {step: events_of(step) for step in CopyStep if step is not REPLAYED_COPY.step}
AFTER: Final = {move.step: move.phase for move in (*LIFECYCLE.values(), REPLAYED_COPY)}
MAY: Final[dict[CopyStep, frozenset[Phase]]] = {
    step: frozenset(
        PHASE_OF[state] for move in (*LIFECYCLE.values(), REPLAYED_COPY) if move.step is step for state in move.sources
    )
    or frozenset({Phase.UNBORN})
    for step in CopyStep
    if step not in {CopyStep.PURGE, CopyStep.REMOVE}
}
"""From which phases a step may be taken. A removal takes whatever is there, a purge only what waits."""

COLUMNS: Final = (
    "shard", "epoch", "seq", "at", "event", "queue", "group", "publish_seq", "message_id", "ready_at", "deliver_at",
    "lease_until", "wait_ms", "lane", "ordering_key", "former_seq",
)  # fmt: skip
"""The journal columns that an audit reads."""
