"""A private PostgreSQL server, killed and started again on the same port and folder, and fresh databases in it.

A database is copied from a template that has our schema: milliseconds instead of a migration each.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from godwit.store.postgres import PostgresStore
from tests.servers.processes import HOST, ServerDown, as_ordinary_user, await_server, free_ports, start, stop
from tests.servers.session_servers import lasting

T = TypeVar("T")

USER = "godwit"
TEMPLATE = "godwit_template"
_PROGRAMS = (Path("/usr/lib/postgresql/15/bin"), Path("/usr/lib/postgresql/16/bin"), Path("/usr/lib/postgresql/17/bin"))
_SETTINGS = {
    "listen_addresses": HOST,
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_wal_size": "1GB",
    "dynamic_shared_memory_type": "mmap",  # in its folder: what is in /dev/shm outlives a server that is killed
    "timezone": "America/New_York",  # not UTC: a conversion that depends on the server's zone must show
    "log_min_messages": "warning",
}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
"""What PostgreSQL has by default and tests have not: a commit returns when the disk has it."""
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """One server; everything but its process stays the same over restarts."""

    port: int
    folder: Path
    settings: dict[str, str]
    identity: dict[str, Any]
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False, compare=False)

    def url(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://{USER}@{HOST}:{self.port}/{database}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self._processes) and self._processes[-1].poll() is None

    def start(self) -> None:
        """Start it and return when it answers."""
        command = [program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        for name, value in {**self.settings, "unix_socket_directories": str(self.folder)}.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "log"
        process = start(command, log, **self.identity)
        self._processes.append(process)
        try:
            await_server(self._ready, process, log)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in good order, also when clients are connected."""
        stop(self._processes[-1], signal.SIGINT)

    def kill(self) -> None:
        """End it and all its children as a power switch would."""
        process = self._processes[-1]
        if process.poll() is None:
            family = self._family()
            self._send(signal.SIGKILL)
            process.wait()
            # A child that outlives it by a moment would keep the folder's shared memory from the next start.
            while any(Path(f"/proc/{pid}").exists() for pid in family):
                time.sleep(0.005)

    def pause(self) -> None:
        """Stop it without closing a connection, as a hung machine would; `resume` lets it go on."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._send(signal.SIGCONT)

    def _family(self) -> list[int]:
        """Return the server's pid and those of its children, each of which has a session of its own."""
        parent = self._processes[-1].pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    def _send(self, how: signal.Signals) -> None:
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def ask(self, query: str, *, database: str = "postgres") -> list[Any]:
        """Run a statement from synchronous code."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.url(database))
            try:
                rows: list[Any] = await connection.fetch(query)
                return rows
            finally:
                await connection.close()

        return apart(run)

    def _ready(self) -> bool:
        async def look() -> bool:
            connection = await asyncpg.connect(self.url(), timeout=5)
            await connection.close()
            return True

        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
            return apart(look)
        return False


def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop of its own thread, whether or not one runs in this one."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def program(name: str) -> str:
    """Return one of the server's programs."""
    for folder in _PROGRAMS:
        if (folder / name).exists():
            return str(folder / name)
    raise ServerDown("PostgreSQL is not installed. Install it (apt-get install postgresql-15) or run ./dev test.")


@contextlib.contextmanager
def postgres_server(**settings: str) -> Iterator[PostgresServer]:
    """Run a server with a folder of its own, and our schema in its template database."""
    folder = Path(tempfile.mkdtemp(prefix="godwit-postgres-"))
    identity = as_ordinary_user(folder, "postgres")
    server: PostgresServer | None = None
    try:
        subprocess.run(
            [program("initdb"), "-D", folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, **identity,
        )  # fmt: skip
        (port,) = free_ports(1)
        server = PostgresServer(port=port, folder=folder, settings=_SETTINGS | settings, identity=identity)
        server.start()
        server.ask(f"CREATE DATABASE {TEMPLATE}")
        apart(lambda: upgraded(server.url(TEMPLATE)))
        yield server
    finally:
        if server is not None:
            server.kill()  # its data is not read again
        shutil.rmtree(folder, ignore_errors=True)


async def upgraded(url: str) -> None:
    """Bring a database to our schema."""
    async with PostgresStore(url) as store:
        await store.migrations.upgrade()


def shared() -> PostgresServer:
    """Return the server that all tests of this process share, running."""
    server = lasting("postgres", postgres_server())
    if not server.alive:
        server.start()
    return server


@contextlib.contextmanager
def fresh_database(server: PostgresServer | None = None, *, migrated: bool = True) -> Iterator[str]:
    """Make a database of its own, with our schema or empty, and give its URL."""
    server = server or shared()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    server.ask(f"CREATE DATABASE {name}" + (f" TEMPLATE {TEMPLATE}" if migrated else ""))
    try:
        yield server.url(name)
    finally:
        if server.alive:
            server.ask(f"DROP DATABASE {name} WITH (FORCE)")


@dataclass(frozen=True)
class Database:
    """A database by its address."""

    url: str


@contextlib.contextmanager
def empty_database() -> Iterator[Database]:
    """Make a database without our schema."""
    with fresh_database(migrated=False) as url:
        yield Database(url)
