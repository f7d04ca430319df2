from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from godwit.core.errors import InvalidSetting
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, MessageMetadata
from godwit.core.names import MessageId, QueueName
from godwit.telemetry.traceparent import extract
from godwit.telemetry.tracing import Tracer, open_tracer

ORDERS = QueueName("orders")
CARRIED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recorded:
    """A tracer whose spans can be looked at."""

    def __init__(self, broker_url: str = "") -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        tracer = open_tracer(enabled=True, provider=self.provider, broker_url=broker_url)
        assert tracer is not None
        self.tracer: Tracer = tracer

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def carrying(traceparent: str, tracestate: str | None = None) -> Message:
    headers = {"traceparent": traceparent, "mine": "stays"} | ({"tracestate": tracestate} if tracestate else {})
    return Message(id=MessageId("m1"), queue=ORDERS, metadata=MessageMetadata(headers=headers))


def through_the_wire(message: Message) -> Message:
    return seal(message).open()


def test_the_producers_span_is_the_parent_of_the_consumers(recorded: Recorded) -> None:
    message = Message(id=MessageId("m1"), queue=ORDERS, type="order.created")
    with recorded.tracer.publishing([message], "orders") as (sent,):
        pass
    received = through_the_wire(sent)
    with recorded.tracer.processing(received, queue="orders", group="billing", attempt=2):
        pass
    send, process = recorded.spans()["send orders"], recorded.spans()["process orders"]
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.parent.is_remote
    assert process.context.trace_id == send.context.trace_id
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(send.attributes or {}) == {
        "messaging.system": "godwit",
        "messaging.destination.name": "orders",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.batch.message_count": 1,
        "messaging.message.id": "m1",
    }
    assert dict(process.attributes or {}) == {
        "messaging.system": "godwit",
        "messaging.destination.name": "orders",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.message.id": "m1",
        "messaging.consumer.group.name": "billing",
        "godwit.message.type": "order.created",
        "godwit.delivery.attempt": 2,
    }


def test_the_message_stays_the_same_but_for_its_headers(recorded: Recorded) -> None:
    message = Message(queue=ORDERS, payload={"a": 1}, metadata=MessageMetadata(headers={"mine": "stays"}))
    with recorded.tracer.publishing([message], "orders") as (sent,):
        assert sent.metadata.headers["mine"] == "stays"
        assert extract(sent.metadata.headers) is not None
        assert message.metadata.headers == {"mine": "stays"}
        assert (sent.id, sent.payload, sent.created_at) == (message.id, message.payload, message.created_at)


def test_a_batch_shares_one_producer_span(recorded: Recorded) -> None:
    with recorded.tracer.publishing([Message(queue=ORDERS) for _ in range(50)], "orders") as sent:
        pass
    assert len({message.metadata.headers["traceparent"] for message in sent}) == 1
    (span,) = recorded.spans().values()
    assert (span.attributes or {})["messaging.batch.message_count"] == 50


def test_the_callers_span_is_the_parent_and_a_carried_context_is_linked(recorded: Recorded) -> None:
    with trace.get_tracer("app", tracer_provider=recorded.provider).start_as_current_span("request") as request:
        with recorded.tracer.publishing([carrying(CARRIED)], "orders"):
            pass
        wanted = request.get_span_context().span_id
    send = recorded.spans()["send orders"]
    assert send.parent is not None
    assert send.parent.span_id == wanted
    assert [f"{link.context.span_id:x}" for link in send.links] == ["b7ad6b7169203331"]


def test_a_context_the_application_put_into_the_headers_is_continued(recorded: Recorded) -> None:
    with recorded.tracer.publishing([carrying(CARRIED, "vendor=1")], "orders") as (sent,):
        pass
    send = recorded.spans()["send orders"]
    assert f"{send.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert send.parent is not None
    assert f"{send.parent.span_id:016x}" == "b7ad6b7169203331"
    assert sent.metadata.headers["tracestate"] == "vendor=1"
    assert sent.metadata.headers["mine"] == "stays"


@pytest.mark.parametrize("bad", ["", "garbage", CARRIED.upper(), "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_a_broken_traceparent_begins_a_new_trace(recorded: Recorded, bad: str) -> None:
    with recorded.tracer.processing(carrying(bad), queue="orders", group="g", attempt=1):
        pass
    assert recorded.spans()["process orders"].parent is None


def test_a_handlers_exception_marks_the_span_and_goes_on(recorded: Recorded) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        recorded.tracer.processing(Message(queue=ORDERS), queue="orders", group="g", attempt=1),
    ):
        raise ValueError("no")
    span = recorded.spans()["process orders"]
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    assert (span.attributes or {})["error.type"] == "ValueError"


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis://:secret@cache.example:6380/2", {"server.address": "cache.example", "server.port": 6380}),
        ("amqp://guest@one,two:5673/shop", {"server.address": "one"}),
        ("rediss://[::1]:7000", {"server.address": "::1", "server.port": 7000}),
        ("sqlite:///shop.db", {}),
        ("redis://[", {}),
    ],
)
def test_a_span_names_its_operation_and_the_server(url: str, server: dict[str, object]) -> None:
    recorded = Recorded(url)
    message = Message(id=MessageId("m1"), queue=ORDERS)
    with recorded.tracer.publishing([message], "orders"):
        pass
    with recorded.tracer.processing(message, queue="orders", group="g", attempt=1):
        pass
    for operation in ("send", "process"):
        attributes = dict(recorded.spans()[f"{operation} orders"].attributes or {})
        assert attributes["messaging.operation.name"] == operation
        assert {name: value for name, value in attributes.items() if name.startswith("server.")} == server


async def test_handlers_that_run_side_by_side_keep_their_own_span(recorded: Recorded) -> None:
    both_inside = asyncio.Barrier(2)

    async def handle(name: str) -> tuple[int, int]:
        message = Message(id=MessageId(name), queue=ORDERS)
        with recorded.tracer.processing(message, queue=name, group="g", attempt=1) as span:
            await both_inside.wait()
            here = await asyncio.to_thread(trace.get_current_span)
            return span.get_span_context().span_id, here.get_span_context().span_id

    pairs = await asyncio.gather(handle("a"), handle("b"))
    assert all(own == seen for own, seen in pairs)
    assert pairs[0] != pairs[1]


def test_the_api_without_an_sdk_leaves_messages_as_they_are() -> None:
    tracer = open_tracer(enabled=True, provider=trace.NoOpTracerProvider())
    assert tracer is not None
    message = Message(queue=ORDERS)
    with tracer.publishing([message], "orders") as (sent,):
        assert sent is message
    with tracer.processing(message, queue="orders", group="g", attempt=1):
        pass


def test_off_means_no_tracer_and_no_import() -> None:
    code = (
        "import sys\n"
        "from godwit.telemetry.tracing import open_tracer\n"
        "assert open_tracer(enabled=False) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_asked_for_but_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(InvalidSetting, match=r"godwit\[tracing\]"):
        open_tracer(enabled=True)
