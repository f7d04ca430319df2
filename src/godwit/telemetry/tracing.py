"""Spans publish -> process through the OpenTelemetry API, with the context carried in message headers.

Off by default: OpenTelemetry is not imported then, and the runtime holds None instead of a tracer. Headers that a
producer sets itself travel with the message either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from godwit.core.errors import InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.urls import split_url
from godwit.telemetry.traceparent import TraceContext, extract, inject

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, TracerProvider

MAX_LINKS: Final = 128


def open_tracer(*, enabled: bool, provider: TracerProvider | None = None, broker_url: str = "") -> Tracer | None:
    """Return a tracer, or None when tracing is off; without `provider` the application's global one is used."""
    if not enabled:
        return None
    try:
        import opentelemetry.trace  # noqa: F401
    except ImportError:
        allowed = "off, or on with OpenTelemetry installed: pip install 'godwit[tracing]'"
        raise InvalidSetting("tracing", "on", allowed) from None
    return Tracer(provider, broker_url=broker_url)


class Tracer:
    """Starts the two spans of a message's way."""

    def __init__(self, provider: TracerProvider | None = None, *, broker_url: str = "") -> None:
        from opentelemetry import trace

        self._server = _server_of(broker_url)

        self._trace = trace
        self._tracer = trace.get_tracer("godwit", tracer_provider=provider)

    @contextmanager
    def publishing(self, messages: Sequence[Message], queue: str) -> Iterator[list[Message]]:
        """Hold one producer span around a publish; give the messages to publish instead, carrying its context.

        Its parent is the caller's current span. A context that messages already carry is linked, or is the parent when
        the caller has no span and there is only one.
        """
        carried = list(dict.fromkeys(filter(None, (extract(message.metadata.headers) for message in messages))))
        parent = None
        if len(carried) == 1 and not self._trace.get_current_span().get_span_context().is_valid:
            parent, carried = self._context(carried[0]), []
        attributes: dict[str, str | int] = {
            **self._common(queue, "send"),
            "messaging.batch.message_count": len(messages),
        }
        if len(messages) == 1:
            attributes["messaging.message.id"] = messages[0].id
        with (
            self._tracer.start_as_current_span(
                f"send {queue}",
                context=parent,
                kind=self._trace.SpanKind.PRODUCER,
                attributes=attributes,
                links=self._links(carried),
            ) as span,
            _naming_errors(span),
        ):
            context = _carried(span.get_span_context())
            yield [_with(message, context) for message in messages] if context else list(messages)

    @contextmanager
    def processing(
        self, messages: Message | Sequence[Message], *, queue: str, group: str, attempt: int
    ) -> Iterator[Span]:
        """Hold a consumer span around a handler's run; an exception marks it failed.

        It is a child of the publisher's span. A batch has many: its span links to them. A handler that runs in a thread
        sees it as its current span when the thread is started with this context (asyncio.to_thread does so).
        """
        given = [messages] if isinstance(messages, Message) else messages
        carried = list(dict.fromkeys(filter(None, (extract(message.metadata.headers) for message in given))))
        attributes: dict[str, str | int] = {**self._common(queue, "process"), "messaging.consumer.group.name": group}
        if len(given) == 1:
            attributes |= {
                "messaging.message.id": given[0].id,
                "godwit.message.type": given[0].type,
                "godwit.delivery.attempt": attempt,
            }
        else:
            attributes["messaging.batch.message_count"] = len(given)
        with (
            self._tracer.start_as_current_span(
                f"process {queue}",
                context=self._context(carried[0]) if len(carried) == 1 else None,
                kind=self._trace.SpanKind.CONSUMER,
                attributes=attributes,
                links=self._links(carried if len(carried) > 1 else ()),
            ) as span,
            _naming_errors(span),
        ):
            yield span

    def _common(self, queue: str, operation: str) -> dict[str, str | int]:
        return {
            "messaging.system": "godwit",
            "messaging.destination.name": queue,
            "messaging.operation.type": operation,
            "messaging.operation.name": operation,
            **self._server,
        }

    def _context(self, carried: TraceContext) -> Context:
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(self._span_context(carried)))

    def _links(self, carried: Sequence[TraceContext]) -> list[Link]:
        return [self._trace.Link(self._span_context(context)) for context in carried[:MAX_LINKS]]

    def _span_context(self, carried: TraceContext) -> SpanContext:
        pairs = [member.partition("=")[::2] for member in carried.state.split(",") if member]
        return self._trace.SpanContext(
            trace_id=int(carried.trace_id, 16),
            span_id=int(carried.span_id, 16),
            is_remote=True,
            trace_flags=self._trace.TraceFlags(carried.flags),
            trace_state=self._trace.TraceState(pairs),
        )


@contextmanager
def _naming_errors(span: Span) -> Iterator[None]:
    """Let the span of what fails say by which kind of error."""
    try:
        yield
    except Exception as error:
        module = type(error).__module__
        name = type(error).__qualname__
        span.set_attribute("error.type", name if module == "builtins" else f"{module}.{name}")
        raise


def _server_of(broker_url: str) -> dict[str, str | int]:
    """Return the address of a broker's server as attributes: none of a file, the first one of several hosts."""
    host = split_url(broker_url).netloc.rpartition("@")[2].partition(",")[0]
    try:
        parts = urlsplit(f"//{host}")
        address: dict[str, str | int] = {"server.address": parts.hostname} if parts.hostname else {}
        return address | ({"server.port": parts.port} if parts.port else {})
    except ValueError:
        return {}


def _carried(span: SpanContext) -> TraceContext | None:
    if not span.is_valid:  # the API without an SDK: what the messages carry stays as it is
        return None
    state = ",".join(f"{key}={value}" for key, value in span.trace_state.items())
    return TraceContext(f"{span.trace_id:032x}", f"{span.span_id:016x}", int(span.trace_flags), state)


def _with(message: Message, context: TraceContext) -> Message:
    headers = inject(message.metadata.headers, context)
    return replace(message, metadata=replace(message.metadata, headers=headers))
