"""Settlements whose reply was lost: run again, and told from those that came too late by what the journal says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.vocabulary import LAYOUTS, Event

ENDS: Final = frozenset({Event.ACKED, Event.NACKED, Event.POSTPONED, Event.DEAD_LETTERED, Event.HANDED_BACK})
_PAGE: Final = 200
_MOST_PAGES: Final = 50
"""How far back it is looked: to 10,000 steps of the queue."""
_PLAIN: Final = 1
"""The layout of chunks that are stored as the journal gives them; those of deliveries and arrivals are not needed."""


async def settle_again(
    reach: ScriptRunner,
    name: str,
    shard: tuple[str, int],
    names: Sequence[str],
    arguments: Sequence[Argument],
    members: Sequence[tuple[str, frozenset[Event]]],
) -> list[int]:
    """Run a script again that settles `members`, each with the events that tell of it; return the indexes refused."""
    answer: list[int] = await reach.run(name, shard[0], names, arguments)
    if not answer:
        return answer
    ended = await _ended(reach, shard, {members[index - 1][0] for index in answer})
    refused = []
    for index in answer:
        member, events = members[index - 1]
        if ended.get(member) in events:
            del ended[member]  # given twice in one call it counted once
        else:
            refused.append(index)
    return refused


async def _ended(reach: ScriptRunner, shard: tuple[str, int], members: Collection[str]) -> dict[str, Event]:
    """Return the events by which leases ended, as far as the journal tells."""
    found: dict[str, Event] = {}
    last = "+"
    for _ in range(_MOST_PAGES):
        words = ("XREVRANGE", keys.step(*shard)[1], last, "-", "COUNT", _PAGE)
        (page,) = await reach.ask(words)
        for _, (_, chunk) in page:
            found |= _ends(chunk, members)
        if len(page) < _PAGE or len(found) == len(members):
            break
        last = f"({page[-1][0].decode()}"
    return found


def _ends(stored: bytes, members: Collection[str]) -> dict[str, Event]:
    if stored[1] != _PLAIN:
        return {}
    try:
        chunk = decode_chunk(stored)
    except msgspec.MsgspecError:
        return {}
    event = Event(chunk.event)
    if event not in ENDS:
        return {}
    column = LAYOUTS[event].index("delivery_id")
    return {str(row[column]): event for row in chunk.rows if row[column] in members}
