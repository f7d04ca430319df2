"""Plans into PostgreSQL: columns by COPY, by several tasks at once; a campaign's first one straight into the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import asyncpg

from godwit.core.errors import InvalidSchedule
from godwit.core.fault_points import fault_point
from godwit.core.names import QueueName
from godwit.store.postgres.database import sql
from godwit.store.postgres.schedule.campaigns import COLUMNS, STAGING

if TYPE_CHECKING:
    import pyarrow as pa

STEP_ROWS: Final = 200_000
"""Many, because rows go by id: the more of them, the more find their place in the index beside each other."""
STEP_BYTES: Final = 64 << 20
STAGED: Final = ("run_id", "id", "key", "deliver_at", "envelope")
_PATIENCE_SECONDS: Final = 3_600
"""What a task copies may be one statement of minutes."""


async def fill(connection: asyncpg.Connection, campaign: str, queue: QueueName, parts: Iterable[pa.RecordBatch]) -> int:
    """Add messages, up to some hundred thousand a transaction; return how many came."""
    # Here, because a store is opened by many who have no Arrow.
    from godwit.store.postgres.schedule import copy_columns

    count = 0
    for part in _steps(parts):
        made = copy_columns.firings(campaign, queue, part)
        try:
            await _stored(connection, campaign, made, straight=True)
        except asyncpg.UniqueViolationError:
            # A task that is tried again after it stored some, or another process that loads the same campaign.
            await connection.execute(STAGING)
            await _stored(connection, campaign, made, straight=False)
        count += len(made)
    return count


async def _stored(connection: asyncpg.Connection, campaign: str, made: pa.BinaryArray, *, straight: bool) -> None:
    async with connection.transaction():
        added = await _copied(connection, made, straight=straight)
        if not straight:
            added = int(await connection.fetchval(sql("schedules/load_again")))
        # Last, so that tasks wait for each other no longer than a commit takes: a cancellation holds the same row.
        if await connection.fetchval(sql("plans/added"), campaign, added) is None:
            raise InvalidSchedule("campaign", f"{campaign!r} was cancelled", "Use another name for a new one.")
        fault_point("plan.adding")


async def _copied(connection: asyncpg.Connection, made: pa.BinaryArray, *, straight: bool) -> int:
    table, schema = ("schedule_firings", None) if straight else ("loading", "pg_temp")
    return await _copy(connection, table, COLUMNS, [made], schema=schema)


async def stage(connection: asyncpg.Connection, run_id: str, parts: Iterable[pa.RecordBatch]) -> int:
    """Keep a part of a plan under a run's id, in one piece; return how many messages it has."""
    from godwit.store.postgres.schedule import copy_columns

    made = (copy_columns.staged(run_id, part) for part in _steps(parts))
    return await _copy(connection, "staging_plan", STAGED, made)


async def _copy(
    connection: asyncpg.Connection,
    table: str,
    columns: Sequence[str],
    made: Iterable[pa.BinaryArray],
    *,
    schema: str | None = None,
) -> int:
    status: str = await connection.copy_to_table(
        table, source=_whole(made), columns=columns, schema_name=schema, format="binary", timeout=_PATIENCE_SECONDS
    )
    return int(status.rsplit(maxsplit=1)[-1])


async def _whole(made: Iterable[pa.BinaryArray]) -> AsyncIterator[bytes | memoryview]:
    from godwit.store.postgres.schedule import copy_columns

    yield copy_columns.SIGNATURE
    for one in made:
        for piece in copy_columns.sent(one):
            yield piece
    yield copy_columns.END


def _steps(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together, as many as one transaction takes."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    for part in parts:
        gathered.append(part)
        if sum(len(one) for one in gathered) >= STEP_ROWS or sum(one.nbytes for one in gathered) >= STEP_BYTES:
            yield pa.concat_batches(gathered)
            gathered = []
    if any(len(one) for one in gathered):
        yield pa.concat_batches(gathered)
