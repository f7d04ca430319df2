"""A process that replays the dead letters of a SQLite file, to be killed: `python -m tests.admin.replayer URL`.

GODWIT_FAULT chooses where it dies; with a second argument it replays with that merge patch.
"""

from __future__ import annotations

import asyncio
import json
import sys

from godwit.admin.dead_letters import DeadLetterQueueHandler
from godwit.admin.letter_filter import LetterFilter
from godwit.brokers.urls import connect
from tests.admin.builders import Q


async def main(url: str, patch: str | None = None) -> None:
    """Replay all of them."""
    async with connect(url) as broker:
        change = None if patch is None else json.loads(patch)
        await DeadLetterQueueHandler(broker).replay_all(LetterFilter(name=Q), change=change)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
