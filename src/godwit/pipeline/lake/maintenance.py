"""Maintains a lake: compacts small files, and sweeps files a day after they stopped counting."""

from __future__ import annotations

import secrets
import shutil
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import ManifestMoved, PipelineFailed
from godwit.pipeline.lake.files import JOURNAL, Lake
from godwit.pipeline.spark.connections import Connections
from godwit.store.pipelines import LakeFile, Publication, new_run_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
SMALL: Final = 32 << 20
FEW: Final = 8
"""This many small files of a day are worth being merged."""


def compact(
    spark: SparkSession, connections: Connections, lake: Lake, *, few: int = FEW, clock: Clock = SYSTEM_CLOCK
) -> int:
    """Merge the small files of each day into one; return how many were replaced. Readers see all or none of it."""
    replaced = 0
    for files in _small(connections.pipelines(lambda state: state.files(lake.name, JOURNAL)), few):
        run_id = new_run_id(clock.now_ms(), secrets.token_hex(6))
        written = lake.write(lake.read(spark, files).coalesce(1), run_id)
        before, after = sum(file.rows for file in files), sum(file.rows for file in written.files)
        if before != after:
            raise PipelineFailed("compaction", f"{before:,} rows went in and {after:,} came out; nothing was replaced")
        swap = Publication(run_id=run_id, lake=lake.name, add=written.files, remove=[file.path for file in files])
        with suppress(ManifestMoved):  # another driver was faster: the file written here is swept
            _publish(connections, swap)
            replaced += len(files)
    return replaced


def _publish(connections: Connections, publication: Publication) -> None:
    connections.pipelines(lambda state: state.publish(publication))


def _small(files: Sequence[LakeFile], few: int) -> list[list[LakeFile]]:
    days: dict[str, list[LakeFile]] = defaultdict(list)
    for file in files:
        if file.bytes < SMALL:
            days[file.day].append(file)
    return [small for _, small in sorted(days.items()) if len(small) >= few]


def sweep(connections: Connections, lake: Lake, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Delete files that stopped counting a day ago, and files that no manifest ever listed; return how many.

    Only local folders are swept; other storage has its own rules for old objects.
    """
    root = lake.local
    if root is None or not root.exists():
        return 0
    before_ms = clock.now_ms() - DAY_MS
    gone = connections.pipelines(lambda state: state.removed(lake.name, before_ms=before_ms))
    listed = connections.pipelines(lambda state: state.listed(lake.name)) - set(gone)
    deleted = 0
    for file in list(root.rglob("*.parquet")):  # a list, because folders are removed meanwhile
        old = file.stat().st_mtime * 1000 < before_ms
        if old and str(file.relative_to(root)) not in listed:
            _delete(file, root)
            deleted += 1
    connections.pipelines(lambda state: state.unlist(lake.name, gone))
    return deleted


def _delete(file: Path, root: Path) -> None:
    """Delete a file, its checksum, and the folders that then hold nothing but Spark's marks."""
    file.unlink(missing_ok=True)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    folder = file.parent
    while folder != root and not any(folder.rglob("*.parquet")):
        parent = folder.parent
        shutil.rmtree(folder, ignore_errors=True)
        folder = parent
