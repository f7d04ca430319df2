"""Birthday and anniversary messages: published with confirms, handled five at a time, tried again after 2 to 32 s.

python birthdays.py                                          a few messages in memory
RABBITMQ_URL=amqp://user:pass@localhost:5672 python birthdays.py     the same on RabbitMQ

On RabbitMQ the queue's parts are called as in birthdays.toml: exchange birthday.messages with the routing keys birthday
and anniversary, queue birthday.messages.queue, dead letters through birthday.messages.dlx to birthday.messages.dlq.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from godwit import Message, MessageQueueManager, Permanent

QUEUE, GROUP = "birthday.messages", "birthday.messages.queue"
HERE = Path(__file__).parent
mq = MessageQueueManager.from_config(HERE / "birthdays.toml", url=os.environ.get("RABBITMQ_URL", "memory://"))
sent: list[str] = []


@mq.consumer(QUEUE, group=GROUP, concurrency=5)
async def greet(message: Message) -> None:
    """Send one greeting; a user who does not exist is a dead letter at once."""
    user = message.payload["user"]
    if user == "nobody":
        raise Permanent("no such user")
    sent.append(f"{message.type} greeting to {user}")


async def main() -> None:
    """Publish four messages and handle them."""
    async with mq:
        await mq.enqueue_many(
            [
                Message(queue=QUEUE, type="birthday", payload={"user": "ada"}),
                Message(queue=QUEUE, type="anniversary", payload={"user": "grace"}),
                Message(queue=QUEUE, type="birthday", payload={"user": "nobody"}),
            ]
        )
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(30):
            while not (len(sent) == 2 and await mq.broker.dead_letters.page(QUEUE)):  # noqa: ASYNC110 (others make letters)
                await asyncio.sleep(0.05)
        worker.stop()
        await running
        letters = await mq.broker.dead_letters.page(QUEUE)
    print("\n".join(sorted(sent)))
    print("dead letters:", [letter.errors[0].message for letter in letters])


if __name__ == "__main__":
    asyncio.run(main())
