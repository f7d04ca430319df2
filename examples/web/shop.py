"""A FastAPI application that takes orders and lets a worker charge them.

uvicorn shop:app                 # the web server, in this folder
godwit worker shop:mq            # the worker, in another terminal
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Response
from pydantic import BaseModel

from godwit import Message, MessageQueueManager

mq = MessageQueueManager.from_url()


class Order(BaseModel):
    """What a customer sends."""

    article: str
    amount: int


@mq.consumer("orders", group="billing")
async def charge(message: Message) -> dict[str, Any]:
    """Handle one order; what is returned is kept in the journal."""
    return {"charged": message.payload["amount"]}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Keep the manager open as long as the server runs."""
    async with mq:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(order: Order) -> dict[str, str]:
    """Answer as soon as the order is safe."""
    message_id = await mq.enqueue(Message(queue="orders", type="order.created", payload=order.model_dump()))
    return {"id": message_id}


@app.get("/health/queue")
async def health() -> Response:
    """Say how the queues are doing."""
    status = await mq.monitor.get_health_status()
    return Response(msgspec.json.encode(status), 200 if status.healthy else 503, media_type="application/json")
