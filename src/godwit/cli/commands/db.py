"""`godwit db`: the store's schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from godwit.cli.args.command_group import add_group
from godwit.cli.args.connection import settings_for
from godwit.cli.args.options import Json, Url
from godwit.cli.args.options import Store as StoreUrl
from godwit.cli.exits import Exit
from godwit.cli.shown.output import print_json, remarks
from godwit.core.errors import StoreRequired
from godwit.store.contract import SchemaStatus, Store
from godwit.store.urls import connect

EXAMPLES = """Examples:

\b
  godwit db status --store postgresql://godwit@localhost/godwit
  godwit db upgrade --store postgresql://godwit@localhost/godwit
"""


@asynccontextmanager
async def open_store(url: str | None, store: str | None, feature: str) -> AsyncIterator[Store]:
    """Open the store that --store or the configuration names."""
    address = settings_for(url, store).store_url
    if address is None:
        raise StoreRequired(feature)
    async with connect(address) as opened:
        yield opened


def upgrade(url: Url = None, store: StoreUrl = None, as_json: Json = False) -> Exit:
    """Bring the schema up to date; workers may go on meanwhile.

    Each migration is applied as a whole or not at all, so an interrupted upgrade is simply run again. Any number of
    upgraders may be started at once.
    """

    async def run() -> Exit:
        async with open_store(url, store, "godwit db") as opened:
            applied = await opened.migrations.upgrade()
            if as_json:
                print_json({"store": opened.url, "applied": [str(migration) for migration in applied]})
            else:
                for migration in applied:
                    remarks().print(f"Applied {migration}.", highlight=False)
                remarks().print(f"The schema of {opened.url} is up to date.", soft_wrap=True, highlight=False)
        return Exit.OK

    return asyncio.run(run())


def status(url: Url = None, store: StoreUrl = None, as_json: Json = False) -> Exit:
    """Say which migrations the schema has and lacks. Exit code 8 when this Godwit cannot work with it."""

    async def run() -> Exit:
        async with open_store(url, store, "godwit db") as opened:
            schema = await opened.migrations.status()
            _show(opened.url, schema, as_json=as_json)
        return Exit.OK if schema.current else Exit.UNHEALTHY

    return asyncio.run(run())


def _show(url: str, schema: SchemaStatus, *, as_json: bool) -> None:
    groups = {"applied": schema.applied, "pending": schema.pending, "unknown": schema.unknown}
    if as_json:
        print_json({"store": url} | {name: [str(migration) for migration in group] for name, group in groups.items()})
        return
    for name, group in groups.items():
        for migration in group:
            print(f"{name:8} {migration}")
    if schema.pending:
        remarks().print("Run godwit db upgrade; workers may go on meanwhile.", highlight=False)
    if schema.unknown:
        remarks().print("A newer Godwit made this schema: upgrade Godwit.", highlight=False)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    part = add_group(app, "db", help="Manage the store's schema.", epilog=EXAMPLES)
    part.command(epilog=EXAMPLES)(status)
    part.command(epilog=EXAMPLES)(upgrade)
