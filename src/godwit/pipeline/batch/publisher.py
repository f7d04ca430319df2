"""Publishes a batch once: prepared by every part, published in one transaction, acknowledged to the broker.

Fault points where a test kills the driver, in order: `pipeline.read` (a part has read the batch), `pipeline.prepared`
(all is staged and written), `pipeline.publishing` (inside the transaction), `pipeline.published` (after it),
`pipeline.acknowledged` (before Spark writes its own commit).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import PositionMoved, StagingLost, StoreBusy, StoreUnavailable
from godwit.core.fault_points import fault_point
from godwit.core.journal.shards import Position
from godwit.core.logs import get_logger
from godwit.pipeline.batch.parts import BatchPart, PreparedPart, rows_beyond
from godwit.pipeline.source.offsets import acknowledge
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import PipelineAdvance, Publication, new_run_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = get_logger(__name__)
TRIES: Final = 10
PATIENCE_MS: Final = 300_000
"""How long a batch waits for a store that cannot be reached."""
WAIT_SECONDS: Final = 0.5


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch.

    `rows` counts the rows that were new to at least one part, `lost` the rows that were gone.
    """

    batch: int
    rows: int
    lost: int = 0
    advances: Sequence[PipelineAdvance] = ()


class BatchPublisher:
    """Publishes batches of a stream; called by Spark for each (`foreachBatch`)."""

    def __init__(
        self,
        connections: Connections,
        parts: Sequence[BatchPart],
        *,
        reader: str,
        lake: str = "",
        accept_loss: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        pause: Callable[[float], None] = time.sleep,
        report: Callable[[BatchOutcome], None] = lambda _outcome: None,
        unseen: Callable[[DataFrame, dict[str, Position]], DataFrame] = rows_beyond,
    ) -> None:
        self._connections, self._parts, self._unseen = connections, parts, unseen
        self._reader, self._lake, self._accept_loss = reader, lake, accept_loss
        self._clock, self._pause, self._report = clock, pause, report
        self.failure: BaseException | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Publish the new rows of a batch, however often and by whichever driver it is tried."""
        try:
            self._once(rows, batch)
        except BaseException as error:
            self.failure = error  # Spark keeps only its text
            raise

    def _once(self, rows: DataFrame, batch: int) -> None:
        tries, deadline = 0, self._clock.now_ms() + PATIENCE_MS
        while True:
            try:
                seen = {part.key: self._positions(part) for part in self._parts} if tries else {}
                self._attempt(rows, batch, seen)
            except (PositionMoved, StagingLost) as moved:
                tries += 1
                if tries >= TRIES:
                    raise
                log.info("batch is tried again", batch=batch, reason=moved.fact)
            except (StoreBusy, StoreUnavailable) as away:
                # Whether it was published is not known; if so, trying again finds nothing left to do.
                if self._clock.now_ms() > deadline:
                    raise
                log.warning("store cannot be used, batch waits", batch=batch, reason=away.fact)
                self._pause(WAIT_SECONDS)
            else:
                return

    def _attempt(self, rows: DataFrame, batch: int, seen: dict[str, dict[str, Position]]) -> None:
        """Prepare and publish the new rows."""
        run_id = new_run_id(self._clock.now_ms(), secrets.token_hex(6))
        prepared = self._prepare(rows, run_id, seen)
        fault_point("pipeline.prepared")
        if not any(part.advances for part in prepared.values()):
            self._report(BatchOutcome(batch=batch, rows=0))
            return
        publication = self._publication(run_id, prepared)
        lost = max(self._lost(key, advances) for key, advances in publication.advances.items())
        self._connections.pipelines(lambda state: state.publish(publication))
        fault_point("pipeline.published")
        self._acknowledge()
        self._report(_outcome(batch, prepared, lost))
        fault_point("pipeline.acknowledged")

    def _lost(self, key: str, advances: Sequence[PipelineAdvance]) -> int:
        """Return how many rows a part never saw; zero unless loss is accepted."""
        if not self._accept_loss:
            return 0
        positions = self._connections.pipelines(lambda state: state.positions(key))

        def seen(advance: PipelineAdvance) -> int:
            position = positions[advance.shard]
            return position.seq if position.epoch == advance.epoch else 0

        return sum(max(0, advance.first - 1 - seen(advance)) for advance in advances if advance.shard in positions)

    def _prepare(self, rows: DataFrame, run_id: str, seen: dict[str, dict[str, Position]]) -> dict[str, PreparedPart]:
        """Let each part prepare the rows it has not seen; parts at one position read what the first one wrote."""
        prepared: dict[str, PreparedPart] = {}
        cheaper: list[tuple[dict[str, Position], DataFrame]] = []
        for part in self._parts:
            positions = seen.get(part.key, {})
            mine = next((copy for at, copy in cheaper if at == positions), None)
            if mine is None:
                mine = self._unseen(rows, positions) if positions else rows
            prepared[part.key] = part.prepare(mine, run_id)
            fault_point("pipeline.read")
            cheaper.append((positions, part.reread(mine, prepared[part.key])))
        return prepared

    def _positions(self, part: BatchPart) -> dict[str, Position]:
        return dict(self._connections.pipelines(lambda state: state.positions(part.key)))

    def _publication(self, run_id: str, prepared: dict[str, PreparedPart]) -> Publication:
        staged = [part.staged for part in prepared.values() if part.staged is not None]
        return Publication(
            run_id=run_id,
            advances={key: part.advances for key, part in prepared.items() if part.advances},
            staged=staged[0] if staged else None,
            lake=self._lake,
            add=[file for part in prepared.values() for file in part.add],
            remove=[path for part in prepared.values() for path in part.remove],
            states={key: part.state for key, part in prepared.items() if part.state is not None},
            accept_loss=self._accept_loss,
        )

    def _acknowledge(self) -> None:
        """Commit the position of the slowest part to the broker."""
        slowest: dict[str, Position] = {}
        for part in self._parts:
            for shard, position in self._positions(part).items():
                slowest[shard] = min(position, slowest.get(shard, position), key=lambda position: position.seq)

        self._connections.broker(lambda broker: acknowledge(broker.journal, self._reader, slowest))


def _outcome(batch: int, prepared: dict[str, PreparedPart], lost: int) -> BatchOutcome:
    advances = max((part.advances for part in prepared.values()), key=_rows)
    return BatchOutcome(batch=batch, rows=_rows(advances), lost=lost, advances=advances)


def _rows(advances: Sequence[PipelineAdvance]) -> int:
    return sum(advance.last - advance.first + 1 for advance in advances)
