"""Looking at a store's tables behind its back."""

from __future__ import annotations

import sqlite3
from typing import Any

import asyncpg


async def rows(url: str, query: str) -> list[dict[str, Any]]:
    """Run a query that both backends understand; times come back as milliseconds."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(query)]
        finally:
            connection.close()
    other = await asyncpg.connect(url)
    try:
        return [{key: _plain(value) for key, value in row.items()} for row in await other.fetch(query)]
    finally:
        await other.close()


def _plain(value: Any) -> Any:
    return int(value.timestamp() * 1000) if hasattr(value, "timestamp") else value
