"""The settings a PostgreSQL server ran under; apart from the others, so that they do not bring its driver along."""

from __future__ import annotations

from tests.servers.postgres import DURABLE, PostgresServer


def postgres_settings(server: PostgresServer) -> str:
    """Return how a server keeps what it confirmed, as it says itself."""
    found = {name: str(server.ask(f"SHOW {name}")[0][0]) for name in DURABLE}
    if found != DURABLE:
        raise AssertionError(f"PostgreSQL runs with {found}, not as by default")
    return ", ".join(f"{name} {value}" for name, value in found.items())
