"""The keys of the shared values: every prefix, and how a key is made of names.

| key | what it holds | written by |
|---|---|---|
| gate/pause/<queue> or gate/pause/<queue>#<group> | who pauses it, since when, why | control |
| gate/rate/<queue>#<group> | until when a group waits, and why | the worker whose handler asked for it |
| gate/tokens/<name> | a declared rate, as far as it is used up | the workers of a group |
| gate/breaker/<name> | a circuit breaker's state | the processes that use the downstream |
| gate/maintenance | the worker that maintains the broker for all | that worker |
| gate/books | the manager that runs the store's services for all | that manager |
| drain/<queue> | who drains it, since when, why | control |
| instance/<queue>#<group>#<worker> | a heartbeat | the worker |
| producer/<name>#<instance> | what a producer has done | the producer |
| scheduler/<owner> | the last tick and what is overdue | the scheduler |
| alert/<name>/<subject> | firing or cleared, as last sent | the manager that sent it |
| sink/<name>/<batch>/<block> | ids that a batch has sent | the tasks of a Spark sink |

Workers read everything below `gate/` every second, with one question.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

GATE: Final = "gate/"
PAUSE: Final = f"{GATE}pause/"
RATE: Final = f"{GATE}rate/"
TOKENS: Final = f"{GATE}tokens/"
BREAKER: Final = f"{GATE}breaker/"
MAINTENANCE: Final = f"{GATE}maintenance"
STORE_SERVICES: Final = f"{GATE}books"
DRAIN: Final = "drain/"
INSTANCE: Final = "instance/"
PRODUCER: Final = "producer/"
SCHEDULER: Final = "scheduler/"
ALERT: Final = "alert/"
SINK: Final = "sink/"


def pause_key(queue: str, group: str | None = None) -> str:
    """Return the key whose presence pauses a queue or one group of it."""
    return f"{PAUSE}{queue}" if group is None else f"{PAUSE}{queue}#{group}"


def rate_key(queue: str, group: str) -> str:
    """Return the key that lets a group wait for a time."""
    return f"{RATE}{queue}#{group}"


def tokens_key(name: str) -> str:
    """Return the key under which the workers of a group keep their rate together."""
    return f"{TOKENS}{name}"


def breaker_key(name: str) -> str:
    """Return the key of a circuit breaker's state."""
    return f"{BREAKER}{name}"


def drain_key(queue: str) -> str:
    """Return the key whose presence keeps producers from publishing to a queue."""
    return f"{DRAIN}{queue}"


def instances_of(queue: str) -> str:
    """Return what the keys of a queue's consumer instances begin with."""
    return f"{INSTANCE}{queue}#"


def instance_key(queue: str, group: str, worker: str) -> str:
    """Return the key of a consumer instance's heartbeat."""
    return f"{instances_of(queue)}{group}#{worker}"


def producer_key(name: str, instance: str) -> str:
    """Return the key of what a producer has done."""
    return f"{PRODUCER}{name}#{instance}"


def scheduler_key(owner: str) -> str:
    """Return the key of how a scheduler does."""
    return f"{SCHEDULER}{owner}"


def alert_key(name: str, subject: str) -> str:
    """Return the key of an alert as it was last sent."""
    return f"{ALERT}{name}/{subject}"


def sink_blocks(sink: str, batch: str = "") -> str:
    """Return what the keys of a batch's blocks begin with, or those of all batches of a sink."""
    begun = f"{SINK}{quote(sink, safe='')}/"  # a name may have a slash
    return f"{begun}{batch}/" if batch else begun
