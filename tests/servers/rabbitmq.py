"""Private RabbitMQ nodes: own home, own epmd, own ports and folders; killed and started again in place.

A node is an Erlang VM. `rabbitmq-server` becomes it, as under systemd, so that the pid we start is the one to kill.
epmd, the Erlang port mapper, would outlive all nodes: each cluster runs one of its own in the foreground.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.processes import HOST, ServerDown, accepts, await_server, free_ports, start, stop
from tests.servers.redis import make_certificate
from tests.servers.session_servers import lasting

_BIN = Path(os.environ.get("GODWIT_TEST_RABBITMQ", "/usr/lib/rabbitmq/bin"))
"""The server's programs; the variable names those of another version."""
_COOKIE = "godwit-tests"
_MEMORY = Path("/dev/shm")
"""A disk in memory: it outlives killed processes, and no test ends a node in another way, and it syncs at once."""
_MEMORY_BYTES = 1 << 30
_GONE_SECONDS = 20
_CONFIGURATION = """\
listeners.tcp.1 = {host}:{port}
log.console = false
log.file.level = warning
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 600MB
heartbeat = 60
loopback_users.guest = true
queue_index_embed_msgs_below = 4096
"""
_SECURE = """\
listeners.ssl.1 = {host}:{port}
ssl_options.cacertfile = {certificate}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
"""
_CLUSTER = "cluster_formation.peer_discovery_backend = classic_config\n"
_BEFORE_4 = """\
cluster_formation.randomized_startup_delay_range.min = 0
cluster_formation.randomized_startup_delay_range.max = 1
"""


@dataclass(frozen=True, kw_only=True)
class RabbitNode:
    """One node; everything but its process stays the same over restarts."""

    name: str
    port: int
    folder: Path
    epmd_port: int
    dist_port: int
    secure_port: int | None = None
    certificate: Path | None = None
    """The certificate to trust, of a node that speaks TLS too."""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False, compare=False)

    @property
    def url(self) -> str:
        """Where it listens, as the default user."""
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    @property
    def secure_url(self) -> str:
        """Where it listens with TLS."""
        return f"amqps://guest:guest@{HOST}:{self.secure_port}/?cafile={self.certificate}"

    @property
    def pid(self) -> int:
        """The Erlang VM now serving, or the last one."""
        return self._processes[-1].pid

    @property
    def alive(self) -> bool:
        """Whether its VM runs."""
        return bool(self._processes) and self._processes[-1].poll() is None

    @property
    def environment(self) -> dict[str, str]:
        """What its programs must be told so that they find this node and no other."""
        folder = self.folder
        return os.environ | {
            "HOME": str(folder / "home"),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "schema"),
            "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
            # Else its script stays as the parent of the VM, which then outlives us: only our own children end with us.
            "RUNNING_UNDER_SYSTEMD": "true",
            # No busy waiting of schedulers: several nodes share two cores with the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none +S 2:2"
            ),
        }

    def launch(self) -> None:
        """Start it without waiting."""
        self._processes.append(start([_BIN / "rabbitmq-server"], self.folder / "out", env=self.environment))

    def await_ready(self) -> None:
        """Return when it takes connections."""
        try:
            await_server(self._ready, self._processes[-1], self.folder / "out")
        except BaseException:
            self._end_group()
            raise

    def start(self) -> None:
        """Start it and return when it takes connections."""
        self.launch()
        self.await_ready()

    def stop(self) -> None:
        """End it in good order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power switch would, and wait until it is gone."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze its VM."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen VM go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start it again after `stop` or `kill`, or stop and start it."""
        if self.alive:
            self.stop()
        self.start()

    def control(self, *words: str) -> str:
        """Run `rabbitmqctl` against this node and return what it prints."""
        return _run(self, "rabbitmqctl", *words)

    def evaluate(self, erlang: str) -> str:
        """Evaluate an expression in the node; what rabbitmqctl needs seconds for begins at once here."""
        done = subprocess.run(
            ["erl_call", "-sname", self.name, "-c", _COOKIE, "-timeout", "30", "-e"],
            env=self.environment,
            input=f"{erlang}\n",
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if done.returncode or not done.stdout.startswith("{ok, "):
            raise ServerDown(f"{erlang} gave {done.stdout}{done.stderr}")
        return done.stdout[len("{ok, ") : -1]

    def sync(self) -> None:
        """Let it write down which quorum queues it has: by itself it does so late, and kill -9 would lose new ones."""
        self.evaluate("[dets:sync(Table) || Table <- dets:all()].")

    def _ready(self) -> bool:
        return accepts(self.port)

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        process = self._processes[-1]
        process.send_signal(number)
        try:
            process.wait(_GONE_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_group()

    def _end_group(self) -> None:
        _end(self._processes[-1])

    def end(self) -> None:
        """End every process it ever had: a test that failed may have left one on its way up."""
        self.kill()
        for process in self._processes:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run(node: RabbitNode, program: str, *words: str) -> str:
    done = subprocess.run(
        [_BIN / program, "-q", *words], env=node.environment, capture_output=True, text=True, timeout=200, check=False
    )
    if done.returncode:
        raise ServerDown(f"{program} {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _node(
    folder: Path, number: int, ports: Sequence[int], epmd_port: int, extra: str, plugins: Sequence[str]
) -> RabbitNode:
    folder.mkdir(parents=True)
    home = folder / "home"
    home.mkdir()
    cookie = home / ".erlang.cookie"
    cookie.write_text(_COOKIE)
    cookie.chmod(0o400)
    (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    (folder / "rabbitmq.conf").write_text(_CONFIGURATION.format(host=HOST, port=ports[0]) + extra)
    return RabbitNode(
        name=f"godwit{ports[0]}n{number}@localhost",
        port=ports[0],
        dist_port=ports[1],
        folder=folder,
        epmd_port=epmd_port,
    )


def _is_before_4() -> bool:
    """Say whether the server is of a version that waits some seconds before it forms a cluster, unless told not to."""
    return any((_BIN.parent / "lib").glob("rabbitmq_server-3.*"))


def _in_memory() -> Path | None:
    """Return a folder in memory if there is one with room for a node's files."""
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES
    return _MEMORY if usable else None


@contextlib.contextmanager
def cluster(
    nodes: int = 1, *, configuration: str = "", plugins: Sequence[str] = (), on_disk: bool = False
) -> Iterator[list[RabbitNode]]:
    """Give so many nodes that know each other; the first has the plugins and the configuration. They end with it."""
    if not (_BIN / "rabbitmq-server").exists():
        raise ServerDown(
            "rabbitmq-server is not installed. Install it (apt-get install rabbitmq-server) or run ./dev test."
        )
    folder = Path(tempfile.mkdtemp(prefix="godwit-rabbitmq-", dir=None if on_disk else _in_memory()))
    epmd_port, *ports = free_ports(1 + 2 * nodes)
    epmd = start(["epmd", "-port", str(epmd_port), "-address", HOST], folder / "epmd")
    made: list[RabbitNode] = []
    try:
        names = [f"godwit{ports[2 * n]}n{n}@localhost" for n in range(nodes)]
        extra = ""
        if nodes > 1:
            extra += _CLUSTER + (_BEFORE_4 if _is_before_4() else "")
            extra += "".join(
                f"cluster_formation.classic_config.nodes.{n + 1} = {name}\n" for n, name in enumerate(names)
            )
        for n in range(nodes):
            own = (extra, ()) if n else (extra + configuration, tuple(plugins))
            made.append(_node(folder / f"n{n}", n, ports[2 * n : 2 * n + 2], epmd_port, *own))
        for node in made:
            node.launch()
        for node in made:
            node.await_ready()
        yield made
    finally:
        for node in made:
            node.end()  # nothing is worth keeping, and a cluster waits long for its members when it stops in order
        stop(epmd)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def single(*, on_disk: bool = False) -> Iterator[RabbitNode]:
    """Give one node; it speaks TLS on a second port. What measures wants it `on_disk`."""
    (port,) = free_ports(1)
    folder = Path(tempfile.mkdtemp(prefix="godwit-rabbitmq-tls-"))
    try:
        certificate = make_certificate(folder)
        secure = _SECURE.format(host=HOST, port=port, certificate=certificate, key=certificate.with_suffix(".key"))
        with cluster(1, configuration=secure, on_disk=on_disk) as (node,):
            yield dataclasses.replace(node, secure_port=port, certificate=certificate)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def the_node() -> RabbitNode:
    """Return the node that all tests of this process share."""
    return lasting("rabbitmq", single())
