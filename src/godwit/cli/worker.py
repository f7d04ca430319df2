"""`godwit worker`: run the consumers of an application, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated, Final

import typer

from godwit.cli.exits import Exit
from godwit.cli.options import Store, Url
from godwit.cli.output import remarks
from godwit.cli.targets import UnusableTarget, load_manager
from godwit.cli.values import whole
from godwit.config import without_password
from godwit.core.logs import JsonLines
from godwit.core.names import QueueName
from godwit.manager import MessageQueueManager
from godwit.runtime.consumer import Consumer
from godwit.runtime.supervisor import Supervisor
from godwit.runtime.worker import Worker
from godwit.telemetry.http import TelemetryServer

EXAMPLES = """Examples:

\b
  godwit worker shop.queues:mq
  godwit worker shop.queues:mq --processes 2 --concurrency 20
  godwit worker shop.queues:mq --queues orders,emails --metrics-port 9090
"""
CHILD: Final = "GODWIT_WORKER_CHILD"
"""Set in supervised processes to their number, from 0."""


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The manager whose consumers to run.", show_default=False)
    ],
    processes: Annotated[
        int, typer.Option(parser=whole(1, 1_000), metavar="N", help="How many processes to supervise.")
    ] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(parser=whole(1, 100_000), metavar="N", help="Handlers at once in each process, per consumer."),
    ] = None,
    queues: Annotated[str | None, typer.Option(metavar="A,B", help="Only the consumers of these queues.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            parser=whole(1, 65_000),
            metavar="PORT",
            help="Serve /metrics and /health/queue on 127.0.0.1, from this port up.",
        ),
    ] = None,
    url: Url = None,
    store: Store = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Write log lines as JSON.")] = False,
) -> Exit:
    """Run consumers until SIGTERM or Ctrl-C.

    The first signal stops pulling, finishes what fits in the grace time and hands the rest back; a second one leaves at
    once. With several processes, one that dies is started again.
    """
    write_logs(as_json=log_json)
    manager = load_for(target, url, store)
    wanted = None if queues is None else [QueueName(name.strip()) for name in queues.split(",") if name.strip()]
    consumers = chosen(target, manager, wanted, concurrency)
    if processes > 1 and CHILD not in os.environ:
        return supervise(target, manager, processes)
    if metrics_port is not None:
        metrics_port += int(os.environ.get(CHILD, "0"))
    asyncio.run(serve(manager, consumers, metrics_port))
    return Exit.OK


def load_for(target: str, url: str | None, store: str | None) -> MessageQueueManager:
    """Load the manager with the broker and the store that the options name.

    They reach it through the environment; a module that names another broker itself is refused rather than obeyed.
    """
    os.environ |= {name: said for name, said in (("GODWIT_URL", url), ("GODWIT_STORE_URL", store)) if said is not None}
    manager = load_manager(target)
    if url is not None and manager.settings.broker_url != url:
        named = without_password(manager.settings.broker_url)
        raise UnusableTarget(target, f"names its own broker, {named}", "Use from_url() without an argument there.")
    return manager


def write_logs(*, as_json: bool) -> None:
    """Send log lines to stderr, unless the application has its own logging by then."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def chosen(
    target: str, manager: MessageQueueManager, wanted: Sequence[QueueName] | None, concurrency: int | None
) -> list[Consumer]:
    """Return the consumers to run, as the options ask for."""
    if not manager.consumers:
        raise UnusableTarget(target, "has no consumers", "Decorate a handler with @mq.consumer(...).")
    known = {queue for consumer in manager.consumers for queue in consumer.queues}
    for queue in wanted or ():
        if queue not in known:
            raise UnusableTarget(target, f"has no consumer of queue {queue!r}", f"It has: {', '.join(sorted(known))}.")
    consumers = []
    for consumer in manager.consumers:
        served = [index for index, queue in enumerate(consumer.queues) if wanted is None or queue in wanted]
        if served:
            queues = tuple(consumer.queues[index] for index in served)
            weights = tuple(consumer.weights[index] for index in served) if consumer.weights else ()
            slots = concurrency or consumer.concurrency
            consumers.append(replace(consumer, queues=queues, weights=weights, concurrency=slots))
    return consumers


def supervise(target: str, manager: MessageQueueManager, processes: int) -> Exit:
    """Run this same command in several processes."""
    if manager.settings.broker_url.startswith("memory:"):
        problem = f"uses memory://, which {processes} processes cannot share"
        raise UnusableTarget(target, problem, "Use a sqlite:// URL, or one process.")
    command = [sys.executable, "-m", "godwit", *sys.argv[1:]]
    remarks().print(f"supervising {processes} worker processes of {target}", highlight=False)
    supervisor = Supervisor(command, processes, number_in=CHILD)
    return Exit.OK if supervisor.run() == 0 else Exit.UNAVAILABLE


async def serve(manager: MessageQueueManager, consumers: Sequence[Consumer], metrics_port: int | None) -> None:
    """Run one worker until a signal stops it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(manager)
        worker = manager.worker(consumers=consumers)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        if metrics_port is not None:
            monitor = manager.monitor
            server = TelemetryServer(
                metrics=monitor.render_metrics, health=monitor.get_health_status, port=metrics_port
            )
            await stack.enter_async_context(server)
            remarks().print(f"metrics and health on http://127.0.0.1:{server.port}", highlight=False)
        if CHILD in os.environ:
            orphaned = asyncio.create_task(stop_when_orphaned(worker, os.getppid()))
            stack.callback(orphaned.cancel)
        watching = asyncio.create_task(manager.monitor.run(manager.settings.monitoring.metrics_interval))
        stack.callback(watching.cancel)
        await worker.run()


async def stop_when_orphaned(worker: Worker, supervisor: int) -> None:
    """Stop when the supervisor is gone, however it went: nobody would restart or stop this process any more."""
    while os.getppid() == supervisor:  # noqa: ASYNC110 # the kernel tells nobody
        await asyncio.sleep(1)
    worker.stop()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker", epilog=EXAMPLES)(worker)
