"""Handlers inside spans: what a consumer does for a message belongs to the trace that published it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from godwit.core.messages.message import Message
from godwit.runtime.worker.consumer import CURRENT, Consumer
from godwit.telemetry.tracing import Tracer


def traced(consumer: Consumer, tracer: Tracer) -> Consumer:
    """Return a consumer whose handler runs inside a span of its own."""
    handler, group = consumer.handler, consumer.group

    @contextmanager
    def span(given: Any) -> Iterator[None]:
        messages: list[Message] = given if consumer.batch is not None else [given]
        held = CURRENT.get()
        queue, attempt = held[0].delivery.queue, held[0].delivery.attempt
        with tracer.processing(messages, queue=queue, group=group, attempt=attempt):
            yield

    @wraps(handler)
    async def in_the_loop(given: Any) -> Any:
        with span(given):
            return await handler(given)

    @wraps(handler)
    def in_a_thread(given: Any) -> Any:
        with span(given):
            return handler(given)

    return replace(consumer, handler=in_the_loop if consumer.is_async else in_a_thread)
