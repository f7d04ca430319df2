"""A recorder process that may be killed: `python -m tests.store.recorder.process BROKER_FILE STORE_URL BATCH_ROWS`."""

from __future__ import annotations

import asyncio
import sys

from godwit.brokers.sqlite import SqliteBroker
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.urls import connect


async def main(file: str, url: str, batch_rows: int) -> None:
    async with SqliteBroker(file) as broker, connect(url) as store:
        await Recorder(broker.journal, store.messages, batch_rows=batch_rows).catch_up()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
