"""`godwit pipeline forget`: release a pipeline's hold on the journal."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from godwit.cli.args.connection import open_broker
from godwit.cli.args.options import Json, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.pipeline.source.options import reader_of

EXAMPLES: Final = """Examples:

\b
  godwit pipeline forget nightly
  godwit pipeline forget nightly --url redis://localhost:6379
"""


def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", show_default=False)],
    url: Url = None,
    as_json: Json = False,
) -> Exit:
    """Release a pipeline's hold on the journal, so that trimming by age no longer waits for it.

    Its position and what it has written stay. Exit code 1 when nothing was held under that name.
    """

    async def run() -> int:
        async with open_broker(url) as broker:
            held = await broker.journal.committed(reader_of(name))
            await broker.journal.forget(reader_of(name))
            return len(held)

    shards = asyncio.run(run())
    if as_json:
        print_json({"name": name, "shards": shards})
    elif shards:
        remarks().print(f"{name!r} holds the journal no longer.")
    else:
        remarks().print(f"Nothing was held under the name {name!r}.")
    return Exit.OK if shards else Exit.EMPTY


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(forget)
