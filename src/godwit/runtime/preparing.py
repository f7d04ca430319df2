"""From an application's message to an envelope: times and kind, metadata, route, transform, schema, seal.

What the kinds change is a table in docs/routing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from godwit.core.envelope import Envelope, aware_ms, seal
from godwit.core.errors import GodwitError, InvalidMessage, SchedulerRequired
from godwit.core.message import NO_METADATA, NO_ROUTING, Kind, Message, MessageMetadata, Scheduling
from godwit.core.names import QueueName
from godwit.core.routing import Router, Transform, transformed
from godwit.core.schemas import Schemas

_replace = msgspec.structs.replace


class Preparation:
    """Completes messages with what their producer knows; nothing is published here."""

    def __init__(
        self,
        *,
        source: str,
        router: Router,
        schemas: Schemas,
        transforms: Mapping[QueueName, Transform],
        headers: Callable[[], Mapping[str, str]] | None,
    ) -> None:
        self._source, self._router, self._schemas = source, router, schemas
        self._transforms, self._headers = transforms, headers
        named = msgspec.json.encode(source).replace(b"%", b"%%")
        self._metadata_of: Final = b',"metadata":{"correlation_id":"%%b","source":%b}' % named
        """The metadata of most messages, as JSON, but for the id."""

    def prepare(
        self, message: Message, scheduled_at: datetime | None = None, expires_at: datetime | None = None
    ) -> Envelope:
        """Return a message sealed for its queue; the two times override its own."""
        if not isinstance(message, Message):
            raise InvalidMessage("content", f"is of type {type(message).__name__}", "Publish a godwit.Message.")
        if message.kind is not Kind.STANDARD or not (
            scheduled_at is None and expires_at is None and message.scheduling is None
        ):
            message = _timed(message, scheduled_at, expires_at)
        if message.metadata is NO_METADATA and (more := self._short_way(message)):
            self._schemas.check(message)
            return seal(message, more=more)
        message = self._completed(message)
        queue = self._router.route(message)
        if message.queue != queue:
            message = _replace(message, queue=queue)
        transform = self._transforms.get(queue)
        if transform is not None:
            message = transformed(message, queue, transform)
        self._schemas.check(message)
        return seal(message)

    def place_of(self, message: Message) -> str:
        """Return where a message would go, for whoever only wants to name it."""
        try:
            return self._router.route(message)
        except GodwitError:
            return message.queue or "unrouted"

    def _short_way(self, message: Message) -> bytes:
        """Return what completes the JSON of a message when nobody else has to see it completed before; else nothing."""
        queue, name = message.queue, message.id
        if (
            not queue
            or queue in self._transforms
            or self._headers is not None
            or message.routing is not NO_ROUTING
            or type(name) is not str
            or not name.isascii()
            or '"' in name
            or "\\" in name
        ):
            return b""
        return self._metadata_of % name.encode()

    def _completed(self, message: Message) -> Message:
        """Return the message with the metadata it leaves to its producer."""
        metadata = message.metadata
        completed = metadata
        if metadata == NO_METADATA:
            completed = MessageMetadata(source=self._source, correlation_id=message.id)
        else:
            if not metadata.source:
                completed = _replace(completed, source=self._source)
            if metadata.correlation_id is None:
                completed = _replace(completed, correlation_id=message.id)
        if self._headers is not None and (headers := self._headers()):
            completed = _replace(completed, headers={**headers, **metadata.headers})
        return message if completed is metadata else _replace(message, metadata=completed)


def _timed(message: Message, scheduled_at: datetime | None, expires_at: datetime | None) -> Message:
    """Return the message with its times, checked against its kind."""
    scheduling = message.scheduling
    if message.kind is Kind.RECURRING or (scheduling is not None and scheduling.cron is not None):
        raise SchedulerRequired(message.id)
    changes: dict[str, Any] = {}
    if scheduled_at is not None:
        scheduling = _replace(scheduling or Scheduling(), deliver_at=scheduled_at)
        changes["scheduling"] = scheduling
    if expires_at is not None:
        changes["expires_at"] = expires_at
    deliver_at = scheduling.deliver_at if scheduling is not None else None
    if deliver_at is None:
        if message.kind is Kind.SCHEDULED:
            raise InvalidMessage(
                "scheduling.deliver_at", "is not set on a scheduled message", "Say when it is due (scheduled_at)."
            )
    else:
        _check_due(message.kind, deliver_at, expires_at or message.expires_at)
        if message.kind is Kind.STANDARD:
            changes["kind"] = Kind.SCHEDULED
    return _replace(message, **changes) if changes else message


def _check_due(kind: Kind, deliver_at: datetime, expires_at: datetime | None) -> None:
    due_ms = aware_ms("scheduling.deliver_at", deliver_at)
    if kind is Kind.IMMEDIATE:
        raise InvalidMessage("scheduling.deliver_at", "is set on an immediate message", "Drop it, or use another kind.")
    if expires_at is not None and aware_ms("expires_at", expires_at) <= due_ms:
        raise InvalidMessage("expires_at", "is not after the time it is due", "Let it expire later, or not at all.")
