"""`godwit pipeline sql`: ad-hoc questions over the journal."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.args.values import whole
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import DEFAULT_NAME, LakeFolder, Master, Name, lake_of, settings_of
from godwit.cli.shown.output import print_json, remarks, results, visible

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES: Final = """Examples:

\b
  godwit pipeline sql "SELECT event, count(*) FROM journal GROUP BY event"
  godwit pipeline sql "SELECT * FROM deliveries WHERE run_ms > 99" --limit 9
  godwit pipeline sql "SELECT type, count(*) FROM messages GROUP BY 1" --json
"""


def sql(
    question: Annotated[str, typer.Argument(metavar="QUERY", help="A query in Spark's SQL.", show_default=False)],
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(1, 1_000_000), metavar="N", help="At most so many rows.")
    ] = 100,
    name: Name = DEFAULT_NAME,
    lake: LakeFolder = None,
    master: Master = "local[*]",
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Ask the views journal, messages and deliveries a question in SQL.

    They hold the lake and, behind it, the live journal. Exit code 1 when the answer has no rows.
    """
    from godwit.pipeline.jobs.sql import ask
    from godwit.pipeline.lake.files import Lake

    settings = settings_of(url, store)
    answer = ask(
        question,
        broker_url=settings.broker_url,
        store_url=settings.store_url,
        lake=Lake(lake_of(settings, lake), name),
        master=master,
        limit=limit,
    )
    if as_json:
        for row in answer.to_pylist():
            print_json({column: _plain(value) for column, value in row.items()})
    elif answer.num_rows:
        results().print(table(answer))
    else:
        remarks().print("There are no such rows.")
    return Exit.OK if answer.num_rows else Exit.EMPTY


def table(answer: pa.Table) -> Table:
    """Return an answer as a table."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in answer.column_names:
        view.add_column(column, overflow="fold")
    for row in answer.to_pylist():
        view.add_row(*("" if value is None else visible(str(_plain(value))) for value in row.values()))
    return view


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(sql)
