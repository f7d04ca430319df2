"""`godwit worker`: run the consumers of an application, in one process or several."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

import typer

from godwit.brokers.contract import NO_WAIT
from godwit.cli.args.manager_target import UnusableTarget, load_manager
from godwit.cli.args.options import Store, Url
from godwit.cli.args.values import duration, whole
from godwit.cli.exits import Exit
from godwit.cli.shown.log_lines import LogFormat, LogFormatOption, LogLevel, LogLevelOption, write_logs
from godwit.cli.shown.output import remarks
from godwit.config import without_password
from godwit.core.background import Background
from godwit.core.errors import BrokerBusy, BrokerUnavailable
from godwit.core.logs import get_logger
from godwit.core.names import QueueName
from godwit.manager import MessageQueueManager
from godwit.runtime.supervisor import Supervisor
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.worker import Worker

EXAMPLES = """Examples:

\b
  godwit worker shop.queues:mq
  godwit worker shop.queues:mq --processes 2 --concurrency 20
  godwit worker shop.queues:mq --queues orders,emails --metrics-port 9090
"""
CHILD: Final = "GODWIT_WORKER_CHILD"
"""Set in supervised processes to their number, from 0."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_STRAGGLER_SECONDS: Final = 0.2
_CLOSE_SECONDS: Final = 5.0

log = get_logger(__name__)


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
            help="Serve /metrics and /health/queue on 127.0.0.1; further processes take the next ports.",
        ),
    ] = None,
    patience: Annotated[
        timedelta,
        typer.Option(
            "--wait-for-broker",
            parser=duration,
            metavar="DURATION",
            help="How long to wait at start for a broker that is not there.",
            show_default="0s",
        ),
    ] = NO_WAIT,
    url: Url = None,
    store: Store = None,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> Exit:
    """Run consumers until SIGTERM or Ctrl-C.

    The first signal stops pulling, finishes what fits in the grace time and hands the rest back; a second one leaves at
    once. With several processes, one that dies is started again.
    """
    write_logs(log_level, log_format)
    manager = load_for(target, url, store)
    wanted = None if queues is None else [QueueName(name.strip()) for name in queues.split(",") if name.strip()]
    consumers = chosen(target, manager, wanted, concurrency)
    if processes > 1 and CHILD not in os.environ:
        return supervise(target, manager, processes)
    monitoring = manager.monitoring
    monitoring.port = monitoring.port if metrics_port is None else metrics_port
    if monitoring.port is not None:
        monitoring.port += int(os.environ.get(CHILD, "0"))
    asyncio.run(serve(manager, consumers, patience))
    leave_stragglers()
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


async def serve(manager: MessageQueueManager, consumers: Sequence[Consumer], patience: timedelta) -> None:
    """Run one worker until a signal stops it."""
    signals = Signals()
    async with AsyncExitStack() as stack:
        if not await signals.unless_stopped(connected(stack, manager, patience)):
            return
        worker = manager.worker(name=own_name(manager), consumers=consumers)
        log_addresses(manager)
        signals.worker = worker
        background = Background(worker.name)
        stack.callback(background.cancel)
        if CHILD in os.environ:
            background.keep("orphan watch", partial(stop_when_orphaned, worker, os.getppid()))
        if manager.store is not None:
            background.keep("scheduler", manager.scheduler.run)
            background.keep("books", manager.store_services.run)
        # What is there now stays: looking through all of it again and again would stop handlers for 10 ms each time.
        gc.collect()
        gc.freeze()
        if not signals.count:
            await worker.run()
        leave_soon()


def log_addresses(manager: MessageQueueManager) -> None:
    """Log what the worker works with; passwords stay out."""
    settings = manager.settings
    fields = {"broker": without_password(settings.broker_url), "named_by": settings.origins.get("broker_url", "code")}
    if manager.settings.store_url is not None:
        fields["store"] = without_password(manager.settings.store_url)
    if manager.monitoring.address is not None:
        fields["metrics"] = manager.monitoring.address
    log.info("worker starts", **fields)


def own_name(manager: MessageQueueManager) -> str | None:
    """Return the name that REDIS_CONSUMER_ID gives this worker; of several processes each adds its number."""
    given = manager.settings.redis.consumer_id
    return given if given is None or CHILD not in os.environ else f"{given}-{os.environ[CHILD]}"


class Signals:
    """SIGTERM and Ctrl-C: they stop the worker, or what comes before there is one."""

    def __init__(self) -> None:
        self.count = 0
        self.worker: Worker | None = None
        self._came = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self.count += 1
        self._came.set()
        if self.worker is not None:
            self.worker.stop()

    async def unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do something, or give it up when a signal comes; say whether it was done."""
        working, coming = asyncio.create_task(work), asyncio.create_task(self._came.wait())
        await asyncio.wait([working, coming], return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
        if working.cancelled():
            return False
        working.result()
        return True


async def connected(stack: AsyncExitStack, manager: MessageQueueManager, patience: timedelta) -> None:
    """Open the manager; a broker that is not there yet is asked again until `patience` ends."""
    until, pause = time.monotonic() + patience.total_seconds(), _FIRST_PAUSE
    while True:
        try:
            await stack.enter_async_context(manager)
        except (BrokerUnavailable, BrokerBusy) as error:
            if time.monotonic() + pause > until:
                raise
            log.warning("the worker waits for its broker", error=str(error))
        else:
            return
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def leave_soon() -> None:
    """End the process although a broker that does not answer keeps it from closing: nothing is left to do here."""

    def leave() -> None:
        log.warning("left without closing the broker: it does not answer")
        logging.shutdown()
        os._exit(Exit.UNAVAILABLE)

    timer = threading.Timer(_CLOSE_SECONDS, leave)
    timer.daemon = True
    timer.start()


def leave_stragglers() -> None:
    """End the process though handlers still run in threads: they cannot be stopped, and their work was handed back."""
    for thread in threading.enumerate():
        if thread.name.startswith("godwit handler"):
            thread.join(_STRAGGLER_SECONDS)
            if thread.is_alive():
                log.warning("left with a handler running in a thread", thread=thread.name)
                logging.shutdown()
                sys.stdout.flush()
                os._exit(Exit.OK)


async def stop_when_orphaned(worker: Worker, supervisor: int) -> None:
    """Stop when the supervisor is gone, however it went: nothing would restart or stop this process any more."""
    gone = asyncio.Event()
    try:
        watched = os.pidfd_open(supervisor)
    except (OSError, AttributeError):  # it was gone before we could look, or this system cannot tell
        while os.getppid() == supervisor:  # noqa: ASYNC110
            await asyncio.sleep(1)
    else:
        loop = asyncio.get_running_loop()
        loop.add_reader(watched, gone.set)
        try:
            if os.getppid() == supervisor:
                await gone.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)
    worker.stop()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker", epilog=EXAMPLES)(worker)
