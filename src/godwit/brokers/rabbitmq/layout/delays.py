"""Delays without a plugin: binary levels of hold queues, one set per virtual host, shared by all queues.

Level n holds every message for `UNIT_MS * 2**n`: its queue has that ttl, so that the first to come leaves first and
none waits behind a longer delay. A delay is the sum of the levels whose bits are set: the routing key spells the bits
from the highest level down and ends with the mark of the queue the message is for. The exchange of a level looks at its
own bit: 1 leads into the level's queue, which dead-letters to the next lower exchange, 0 leads there directly. Below
level 0 the exchange `godwit.due` delivers by the mark. Queues are quorum queues with at-least-once dead-lettering, so
a delay survives whatever a message survives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pamqp import commands
from pamqp.base import Frame

UNIT_MS: Final = 25
LEVELS: Final = 27
MOST_TICKS: Final = (1 << LEVELS) - 1
LONGEST_MS: Final = UNIT_MS * MOST_TICKS
"""About 38 days; a longer delay goes round again."""
LONGEST_TTL_MS: Final = 2**32 - 1
"""What the server takes as the longest time to live, 49 days."""
DUE: Final = "godwit.due"
_COARSE_TICKS: Final = 1 << 12
_COARSE_BITS: Final = 4


def level_name(level: int) -> str:
    """Return the name of a level's exchange and queue."""
    return f"godwit.hold.{level:02}"


def held_ticks(delay_ms: int) -> int:
    """Return the units to wait: rounded up, to 25 ms below about 100 s and to 0.4 s above, where hops add up."""
    ticks = -(-min(delay_ms, LONGEST_MS) // UNIT_MS)
    if ticks >= _COARSE_TICKS:
        ticks = -(-ticks >> _COARSE_BITS) << _COARSE_BITS
    return max(1, min(ticks, MOST_TICKS))


def hold_address(delay_ms: int, mark: str) -> tuple[str, str]:
    """Return the exchange and the routing key for a delay that ends at the queue with this mark."""
    ticks = held_ticks(delay_ms)
    bits = f"{ticks:0{LEVELS}b}"
    return level_name(ticks.bit_length() - 1), f"{'.'.join(bits)}.{mark}"


def due_binding(mark: str) -> str:
    """Return the key under which `godwit.due` leads to a queue."""
    return f"#.{mark}"


def levels() -> Iterator[Frame]:
    """Give the calls that declare all levels, lowest first, so that nothing ever leads nowhere."""
    yield commands.Exchange.Declare(exchange=DUE, exchange_type="topic", durable=True)
    for level in range(LEVELS):
        name = level_name(level)
        below = level_name(level - 1) if level else DUE
        before = "*." * (LEVELS - 1 - level)
        yield commands.Exchange.Declare(exchange=name, exchange_type="topic", durable=True)
        yield commands.Queue.Declare(queue=name, durable=True, arguments=level_arguments(level, below))
        yield commands.Queue.Bind(queue=name, exchange=name, routing_key=f"{before}1.#")
        yield commands.Exchange.Bind(destination=below, source=name, routing_key=f"{before}0.#")


def level_arguments(level: int, below: str) -> dict[str, Any]:
    """Return what a level's queue is declared with."""
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": UNIT_MS << level,
        "x-dead-letter-exchange": below,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
