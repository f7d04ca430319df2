"""How a publish is taken apart, the same way by every broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, QueueName


def addresses(envelopes: Sequence[Envelope]) -> Iterator[tuple[QueueName, GroupName | None]]:
    """Give the queues and groups a call names, in its order; neighbours that name the same count once."""
    queue: QueueName | None = None
    group: GroupName | None = None
    for envelope in envelopes:
        if envelope.queue != queue or envelope.group != group:
            queue, group = envelope.queue, envelope.group
            yield queue, group


def publish_chunks(envelopes: Sequence[Envelope]) -> Iterator[Sequence[Envelope]]:
    """Split a publish into runs of one queue, each at most `PUBLISH_CHUNK` long, in order."""
    start = 0
    queue = envelopes[0].queue if envelopes else None
    for index, envelope in enumerate(envelopes):
        if envelope.queue != queue or index - start == PUBLISH_CHUNK:
            yield envelopes[start:index]
            start, queue = index, envelope.queue
    if start < len(envelopes):
        yield envelopes[start:] if start else envelopes
