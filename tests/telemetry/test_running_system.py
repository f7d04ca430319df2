"""Metrics, health, alerts and traces of the running system: a manager, and real worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from godwit.core.errors import InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.manager import MessageQueueManager
from godwit.telemetry.alerts import Alert, AlertName
from godwit.telemetry.tracing import open_tracer
from tests.servers.processes import accepts, free_ports
from tests.servers.rabbitmq import the_node
from tests.servers.redis import fresh
from tests.telemetry.prometheus_parser import Samples, open_metrics_families, plain_families, samples
from tests.telemetry.test_metrics import SEED_METRICS
from tests.telemetry.test_sinks import hook
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
STARTED = timedelta(seconds=60)
ORDERS = QueueName("orders")
WORDS = ["work", "raise", "relay"]
"""One that is done, one that fails three times, one whose handler publishes another."""


async def get(url: str, accept: str = "") -> tuple[int, str]:
    """Read a page, as any client does."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def scraped(url: str) -> Samples:
    return samples(plain_families((await get(f"{url}/metrics"))[1]))


def value(found: Samples, name: str, **labels: str) -> float | None:
    """Return the number of the one series with these labels."""
    wanted = set(labels.items())
    matching = [number for (series, has), number in found.items() if series == name and wanted <= has]
    return matching[0] if matching else None


def manager(tmp_path: Path, text: str = "", **environment: str) -> MessageQueueManager:
    """Return a manager on a SQLite file, configured by a file and an environment."""
    file = tmp_path / "godwit.toml"
    file.write_text(text)
    return MessageQueueManager.from_config(file, environment=environment, url=f"sqlite:///{tmp_path}/shop.db")


@contextmanager
def worker(tmp_path: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `godwit worker` until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "godwit", "worker", "tests.runtime.sample_app:mq", *options],
        env={
            **os.environ,
            "GODWIT_URL": f"sqlite:///{tmp_path}/shop.db",
            "SAMPLE_RECORD": str(tmp_path / "record"),
            **environment,
        },
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def address_of(broker: str, place: Path) -> str:
    """Return the URL of a broker without any queue."""
    if broker == "redis":
        return fresh().url
    if broker == "rabbitmq":
        return f"{the_node().url}?ledger={place}/ledger.db&namespace={place.name}."
    return f"sqlite:///{place}/shop.db"


@pytest.mark.parametrize(
    "broker", ["sqlite", "redis", pytest.param("rabbitmq", marks=pytest.mark.xdist_group("rabbitmq"))]
)
async def test_a_running_worker_feeds_all_sixteen_metrics_as_a_real_parser_reads_them(
    tmp_path: Path, broker: str
) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    address = address_of(broker, tmp_path)
    with worker(tmp_path, "--metrics-port", str(port), MONITORING_METRICS_INTERVAL="100", GODWIT_URL=address):
        async with MessageQueueManager.from_url(address) as mq:
            await eventually(lambda: accepts(port), within=STARTED)
            await mq.enqueue_many([Message(queue="orders", type="order.created", payload=word) for word in WORDS])
            await eventually(lambda: all_fed(url), within=STARTED)
            page = (await get(f"{url}/metrics"))[1]
            found = samples(plain_families(page))
            assert value(found, "queue_messages_processed_total", outcome="done") == 3
            assert value(found, "queue_messages_processed_total", outcome="retry") == 2
            assert value(found, "queue_messages_processed_total", outcome="dead") == 1
            assert value(found, "queue_message_ack_total", queue="orders") == 3
            assert value(found, "queue_message_nack_total", queue="orders") == 2
            assert value(found, "queue_message_redelivery_total", queue="orders") == 2
            assert value(found, "queue_consumers_active", queue="orders", group="default") == 1
            assert value(found, "consumer_health_status", group="default") == 1
            assert value(found, "queue_connection_status", broker=address.partition(":")[0]) == 1
            opened, closed = (value(found, f"queue_channel_{word}_total") for word in ("opens", "closes"))
            assert opened is not None
            assert (opened > 0) == (broker != "sqlite")
            assert closed is not None
            assert closed <= opened
            strict = (await get(f"{url}/metrics", accept="application/openmetrics-text; version=1.0.0"))[1]
            assert {family.name for family in open_metrics_families(strict)}


async def all_fed(url: str) -> bool:
    """Say whether every one of the sixteen has a number from the running worker."""
    found = await scraped(url)
    names = {name for name, _ in found}
    missing = [name for name in SEED_METRICS if not any(one.startswith(name) for one in names)]
    outcomes = [value(found, "queue_messages_processed_total", outcome=one) for one in ("done", "dead")]
    return not missing and outcomes == [3, 1]


async def test_a_workers_health_page_has_six_keys_and_is_503_when_something_is_wrong(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/health/queue"
    with worker(tmp_path, "--metrics-port", str(port), APP_VERSION="7.1"):
        await eventually(lambda: accepts(port), within=STARTED)
        status, body = await get(url)
        found = json.loads(body)
        assert (status, found["status"], found["healthy"], found["version"]) == (200, "healthy", True, "7.1")
        assert {"status", "timestamp", "checks", "version", "healthy", "metrics"} == set(found)
        assert {"broker", "consumers", "queue_depth"} <= {check["name"] for check in found["checks"]}
        async with manager(tmp_path) as mq:
            await mq.broker.declare(mq.settings.queue(QueueName("archive")).spec)
            await mq.enqueue_many([Message(queue="archive") for _ in range(1001)])
        status, body = await get(url)
        found = json.loads(body)
        assert (status, found["status"], found["healthy"]) == (503, "unhealthy", False)
        assert [check["name"] for check in found["checks"] if not check["healthy"]] == ["queue_depth"]


async def test_each_supervised_process_serves_its_own_port(tmp_path: Path) -> None:
    found = set(free_ports(1_000))  # so many that two of them are neighbours
    port = next(port for port in found if port + 1 in found)
    with worker(tmp_path, "--metrics-port", str(port), "--processes", "2"):
        await eventually(lambda: accepts(port) and accepts(port + 1), within=STARTED)


async def test_a_manager_serves_both_pages_when_the_configuration_names_a_port(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with manager(tmp_path, f"[monitoring]\nhttp_port = {port}") as mq:
        await mq.broker.declare(mq.settings.queue(ORDERS).spec)
        await mq.enqueue(Message(queue=ORDERS, type="order.created"))
        (delivery,) = await mq.dequeue(ORDERS)
        await mq.acknowledge_message(delivery)
        url = f"http://127.0.0.1:{port}"
        assert mq.monitoring.address == url
        found = await scraped(url)
        assert value(found, "queue_messages_enqueued_total", type="order.created") == 1
        assert value(found, "queue_message_ack_total", queue=ORDERS) == 1
        assert value(found, "queue_wait_time_seconds_count", queue=ORDERS) == 1
        assert (await get(f"{url}/health/queue"))[0] == 200
        with pytest.raises(InvalidSetting, match=r"monitoring\.http_port"):
            await manager(tmp_path, f"[monitoring]\nhttp_port = {port}").__aenter__()
    assert not accepts(port)


async def test_a_manager_serves_nothing_unless_told_to(tmp_path: Path) -> None:
    async with manager(tmp_path) as mq:
        assert mq.monitoring.address is None


async def test_alerts_reach_log_webhook_and_callables_once_for_all_processes_and_do_not_flap(tmp_path: Path) -> None:
    heard: list[Alert] = []
    with hook() as hooked:
        text = f'[monitoring]\nalert_webhook = "{hooked.url}"\nmetrics_interval = "30ms"'
        environment = {"MONITORING_ALERT_THRESHOLDS": '{"queue_depth": 3}'}
        first, second = (manager(tmp_path, text, **environment) for _ in range(2))
        first.on_alert(heard.append)
        second.on_alert(heard.append)
        async with first as mq, second:
            await mq.broker.declare(mq.settings.queue(ORDERS).spec)
            await mq.enqueue_many([Message(queue=ORDERS) for _ in range(4)])
            await eventually(lambda: len(hooked.got) == 1 and len(heard) == 1)
            told = json.loads(hooked.got[0][2])
            assert (told["name"], told["value"], told["threshold"]) == ("HIGH_QUEUE_DEPTH", 4, 3)
            # Around the threshold no alert is sent: it clears below 80 % of it, and only after three looks.
            for delivery in await mq.dequeue(ORDERS, limit=1):
                await mq.acknowledge_message(delivery)
            await mq.enqueue(Message(queue=ORDERS))
            for delivery in await mq.dequeue(ORDERS, limit=4):
                await mq.acknowledge_message(delivery)
            await eventually(lambda: len(heard) == 2)
            assert [(one.name, one.state) for one in heard] == [
                (AlertName.HIGH_QUEUE_DEPTH, "firing"),
                (AlertName.HIGH_QUEUE_DEPTH, "cleared"),
            ]
            await eventually(lambda: len(hooked.got) == 2)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Let the application's global tracer provider keep its spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.mark.parametrize("form", ["async", "sync", "batch"])
async def test_a_trace_goes_from_the_publisher_into_the_handler(
    tmp_path: Path, spans: InMemorySpanExporter, form: str
) -> None:
    mq = manager(tmp_path, "[monitoring]\ntracing = true")
    seen: list[int] = []

    async def in_the_loop(_: Any) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    def in_a_thread(_: Message) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    options: dict[str, Any] = {"batch": 1} if form == "batch" else {}
    mq.consumer(ORDERS, **options)(in_a_thread if form == "sync" else in_the_loop)
    async with mq:
        running = mq.worker()
        task = asyncio.create_task(running.run())
        await mq.enqueue(Message(queue=ORDERS, type="order.created"))
        await eventually(lambda: len(seen) == 1)
        running.stop()
        await task
    sent, processed = sorted(spans.get_finished_spans(), key=lambda span: span.name, reverse=True)
    assert (sent.name, sent.kind) == ("send orders", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("process orders", SpanKind.CONSUMER)
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert seen == [sent.context.trace_id]


async def test_many_messages_share_a_producer_span_and_a_batch_links_to_all_of_theirs(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    mq = manager(tmp_path, "[monitoring]\ntracing = true")
    sizes: list[int] = []

    @mq.consumer(ORDERS, batch=3)
    async def handler(messages: list[Message]) -> None:
        sizes.append(len(messages))

    async with mq:
        await mq.enqueue_many([Message(queue=ORDERS) for _ in range(2)])
        await mq.enqueue(Message(queue=ORDERS))
        running = mq.worker()
        task = asyncio.create_task(running.run())
        await eventually(lambda: sizes == [3])
        running.stop()
        await task
    found: list[ReadableSpan] = list(spans.get_finished_spans())
    assert [span.name for span in found] == ["send orders", "send orders", "process orders"]
    linked = {link.context.span_id for link in found[2].links}
    assert linked == {span.context.span_id for span in found[:2] if span.context is not None}


async def test_without_the_setting_no_message_carries_a_context(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    assert open_tracer(enabled=False) is None
    async with manager(tmp_path) as mq:
        await mq.broker.declare(mq.settings.queue(ORDERS).spec)
        await mq.enqueue(Message(queue=ORDERS))
        (delivery,) = await mq.dequeue(ORDERS)
        assert delivery.open().metadata.headers == {}
    assert not spans.get_finished_spans()
