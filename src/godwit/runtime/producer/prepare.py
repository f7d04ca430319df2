"""From an application's message to an envelope: times and kind, metadata, route, transform, schema, seal.

What the kinds change is a table in docs/routing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from godwit.core.errors import GodwitError, InvalidMessage, SchedulerRequired
from godwit.core.limits import EARLIEST_MS, LATEST_MS
from godwit.core.messages.checks import aware_ms, check_fields
from godwit.core.messages.envelope import Envelope, is_like, seal, written
from godwit.core.messages.marks import with_attributes
from godwit.core.messages.message import NO_METADATA, NO_ROUTING, Kind, Message, MessageMetadata, Scheduling
from godwit.core.messages.routing import Router, Transform, transformed
from godwit.core.messages.schemas import Schemas
from godwit.core.names import QueueName, is_plain_id

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
        self._ending: Final = b'%%b,"metadata":{"correlation_id":"%%b","source":%b}}' % named
        """How the JSON of most messages ends: with metadata that are the same but for the id."""

    def prepare(
        self, message: Message, scheduled_at: datetime | None = None, expires_at: datetime | None = None
    ) -> Envelope:
        """Return a message sealed for its queue; the two times override its own."""
        try:
            if message.kind is not Kind.STANDARD or not (
                scheduled_at is None and expires_at is None and message.scheduling is None
            ):
                message = _timed(message, scheduled_at, expires_at)
            if message.metadata is NO_METADATA and self._is_complete(message):
                self._schemas.check(message)
                return self._marked(seal(message, self._ending), message)
            message = self._completed(message)
            queue = self._router.route(message)
            if message.queue != queue:
                message = _replace(message, queue=queue)
            transform = self._transforms.get(queue)
            if transform is not None:
                message = transformed(message, queue, transform)
            self._schemas.check(message)
            return self._marked(seal(message), message)
        except (AttributeError, TypeError):
            check_fields(message)  # what nearly no message has wrong is looked for only now
            raise

    def _marked(self, envelope: Envelope, message: Message) -> Envelope:
        """Return the envelope with the attributes that its queue wants in the journal."""
        if not message.attributes:
            return envelope
        return with_attributes(envelope, message.attributes, self._router.journal_attributes(envelope.queue))

    def prepare_all(self, messages: Iterable[Message], envelopes: list[Envelope]) -> None:
        """Add messages to `envelopes`, each sealed for its queue; what was added before one that is refused, stays."""
        ending, append, like = self._ending, envelopes.append, None
        for message in messages:
            if like is not None and type(message) is Message and is_like(message, like):
                # Nearly all messages of a call differ only in what is looked at here.
                created_ms = aware_ms("created_at", message.created_at)
                if EARLIEST_MS <= created_ms <= LATEST_MS:
                    body = written(message, ending)
                    append(Envelope(message.id, like.queue, body, len(body), created_ms, like.type))
                    continue
            append(self.prepare(message))
            like = message if self._is_common(message) else None

    def _is_common(self, message: Message) -> bool:
        """Say whether a message, which was prepared, leaves to its producer all that `is_like` compares."""
        return (
            message.metadata is NO_METADATA
            and self._is_complete(message)
            and message.type not in self._schemas
            and is_like(message, message)
        )

    def place_of(self, message: Message) -> str:
        """Return where a message would go, without publishing it."""
        try:
            return self._router.route(message)
        except GodwitError:
            return message.queue or "unrouted"

    def _is_complete(self, message: Message) -> bool:
        """Say whether no hook needs the completed message before it is sealed: its JSON is completed then."""
        queue, name = message.queue, message.id
        return (
            self._headers is None
            and message.routing is NO_ROUTING
            and queue != ""
            and queue not in self._transforms
            and type(name) is str
            and is_plain_id(name) is not None
        )

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
