"""Of several processes one keeps the books; another goes on when it is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.waiting import eventually


async def test_one_process_records_and_another_goes_on_after_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'godwit.db'}"
    async with MessageQueueManager.from_url(url) as first, MessageQueueManager.from_url(url) as second:
        await first.broker.declare(first.settings.queue("orders").spec)
        both = [first, second]
        keeping = [asyncio.create_task(mq.store_services.run()) for mq in both]
        await first.enqueue_many([Message(queue="orders") for _ in range(3)])

        def recorded() -> list[int]:
            return [mq.store_services.recorder.recorded for mq in both]

        await eventually(lambda: sum(recorded()) > 0)
        keeper = 0 if recorded()[0] else 1
        assert recorded()[1 - keeper] == 0, "one does it for both"
        keeping[keeper].cancel()
        await asyncio.wait([keeping[keeper]])
        before = recorded()[keeper]
        await first.enqueue_many([Message(queue="orders") for _ in range(3)])
        await eventually(lambda: recorded()[1 - keeper] > 0)
        assert recorded()[keeper] == before
        keeping[1 - keeper].cancel()
        await asyncio.wait(keeping)
