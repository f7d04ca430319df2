"""The connections that applications hold, each inside a transaction with a row of the application in it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import aiosqlite
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

INSERT: Final = "INSERT INTO sales VALUES (8)"
Transaction = Callable[[str, bool], AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def of_sqlite3(url: str, commit: bool) -> AsyncIterator[Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.row_factory = lambda cursor, row: dict(zip([name for name, *_ in cursor.description], row, strict=True))
    try:
        connection.execute(INSERT)
        yield connection
        (connection.commit if commit else connection.rollback)()
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def of_aiosqlite(url: str, commit: bool) -> AsyncIterator[Any]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        connection.row_factory = aiosqlite.Row
        await connection.execute(INSERT)
        yield connection
        await (connection.commit if commit else connection.rollback)()


@contextlib.asynccontextmanager
async def of_psycopg(url: str, commit: bool) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        connection.execute(INSERT)
        yield connection
        (connection.commit if commit else connection.rollback)()


@contextlib.asynccontextmanager
async def of_psycopg_async(url: str, commit: bool) -> AsyncIterator[Any]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection, connection.transaction(force_rollback=not commit):
        await connection.execute(INSERT)
        yield connection


def _with_driver(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


def of_sqlalchemy(driver: str, *, session: bool) -> Transaction:
    @contextlib.asynccontextmanager
    async def begun(url: str, commit: bool) -> AsyncIterator[Any]:
        engine = sqlalchemy.create_engine(_with_driver(url, driver))
        try:
            with Session(engine) if session else engine.connect() as connection:
                connection.execute(sqlalchemy.text(INSERT))
                yield connection
                (connection.commit if commit else connection.rollback)()
        finally:
            engine.dispose()

    return begun


def of_sqlalchemy_async(driver: str, *, session: bool) -> Transaction:
    @contextlib.asynccontextmanager
    async def begun(url: str, commit: bool) -> AsyncIterator[Any]:
        engine = create_async_engine(_with_driver(url, driver))
        try:
            async with AsyncSession(engine) if session else engine.connect() as connection:
                yield connection  # the first statement of all is the outbox's
                await connection.execute(sqlalchemy.text(INSERT))
                await (connection.commit if commit else connection.rollback)()
        finally:
            await engine.dispose()

    return begun


@contextlib.asynccontextmanager
async def of_django(url: str, commit: bool) -> AsyncIterator[Any]:
    """Lend Django's connection; inside an event loop Django gives it only with DJANGO_ALLOW_ASYNC_UNSAFE."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    address = sqlalchemy.make_url(url)
    place: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": address.database}
    if address.drivername == "postgresql":
        place |= {"ENGINE": "django.db.backends.postgresql", "HOST": address.host, "PORT": address.port}
        place |= {"USER": address.username, "PASSWORD": address.password or ""}
    connections.settings["shop"] = ConnectionHandler(
        {"default": {}, "shop": place | {"NAME": address.database}}
    ).settings["shop"]
    try:
        with transaction.atomic(using="shop"):
            with connections["shop"].cursor() as cursor:
                cursor.execute(INSERT)
            yield connections["shop"]
            transaction.set_rollback(not commit, using="shop")
    finally:
        connections["shop"].close()
        del connections["shop"], connections.settings["shop"]


CONNECTIONS: Final[dict[str, tuple[str, Transaction]]] = {
    "sqlite3": ("sqlite", of_sqlite3),
    "aiosqlite": ("sqlite", of_aiosqlite),
    "sqlalchemy on sqlite3": ("sqlite", of_sqlalchemy("pysqlite", session=False)),
    "sqlalchemy's session on sqlite3": ("sqlite", of_sqlalchemy("pysqlite", session=True)),
    "sqlalchemy on aiosqlite": ("sqlite", of_sqlalchemy_async("aiosqlite", session=False)),
    "django on sqlite3": ("sqlite", of_django),
    "psycopg": ("postgres", of_psycopg),
    "psycopg, asynchronous": ("postgres", of_psycopg_async),
    "sqlalchemy on psycopg": ("postgres", of_sqlalchemy("psycopg", session=False)),
    "sqlalchemy's session on psycopg": ("postgres", of_sqlalchemy("psycopg", session=True)),
    "sqlalchemy on psycopg, asynchronous": ("postgres", of_sqlalchemy_async("psycopg", session=False)),
    "sqlalchemy on asyncpg": ("postgres", of_sqlalchemy_async("asyncpg", session=False)),
    "sqlalchemy's session on asyncpg": ("postgres", of_sqlalchemy_async("asyncpg", session=True)),
    "django on psycopg": ("postgres", of_django),
}
"""By name: the store's backend, and what lends the connection inside a transaction and then ends that."""
