"""`godwit pipeline status`: the positions of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import typer
from rich.table import Table

from godwit.brokers.contract import ShardEnds
from godwit.cli.args.options import Json, Store, Url
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import settings_of
from godwit.cli.shown.output import print_json, remarks, results
from godwit.cli.shown.quantities import duration_text
from godwit.core.clock import SYSTEM_CLOCK
from godwit.store.pipelines import PipelinePlace

EXAMPLES: Final = """Examples:

\b
  godwit pipeline status
  godwit pipeline status --json | jq '.[] | select(.lag > 100000)'
"""


def status(url: Url = None, store: Store = None, as_json: Json = False) -> Exit:
    """Show the position of every pipeline, how many rows it is behind, and when it last published.

    Exit code 1 when no pipeline has run yet.
    """
    from godwit.pipeline.spark.connections import Connections

    settings = settings_of(url, store)
    with Connections(settings.broker_url, settings.store_url) as connections:
        positions = connections.pipelines(lambda state: state.places())
        shards = connections.broker(lambda broker: broker.journal.shards())
    if as_json:
        print_json([as_document(position, shards.get(position.shard)) for position in positions])
    elif positions:
        results().print(table(positions, shards, now_ms=SYSTEM_CLOCK.now_ms()))
    else:
        remarks().print("No pipeline has run yet. Start one: godwit pipeline run --once")
    return Exit.OK if positions else Exit.EMPTY


def rows_behind(position: PipelinePlace, ends: ShardEnds | None) -> int | None:
    """Return how many rows a pipeline has not read; None when its journal is gone or another one."""
    return ends.last_seq - position.seq if ends is not None and ends.epoch == position.epoch else None


def as_document(position: PipelinePlace, ends: ShardEnds | None) -> dict[str, Any]:
    """Return a position as a JSON document."""
    return {
        "pipeline": position.pipeline,
        "shard": position.shard,
        "epoch": position.epoch,
        "seq": position.seq,
        "lag": rows_behind(position, ends),
        "at_ms": position.at_ms,
        "published_at_ms": position.updated_at_ms,
    }


def table(positions: Sequence[PipelinePlace], shards: Mapping[str, ShardEnds], *, now_ms: int) -> Table:
    """Return positions as a table."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    view.add_column("pipeline", no_wrap=True)
    view.add_column("shard", no_wrap=True)
    for name in ("row", "behind", "last batch"):
        view.add_column(name, justify="right", no_wrap=True)
    for position in positions:
        behind = rows_behind(position, shards.get(position.shard))
        ago = duration_text(timedelta(milliseconds=max(0, now_ms - position.updated_at_ms)))
        shown = "another journal" if behind is None else f"{behind:,}"
        view.add_row(position.pipeline, position.shard, f"{position.seq:,}", shown, f"{ago} ago")
    return view


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(status)
