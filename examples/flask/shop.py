"""A Flask application that takes orders and lets a worker charge them.

flask --app shop run             # the web server, in this folder
godwit worker shop:mq            # the worker, in another terminal
"""

from typing import Any

from flask import Flask, request

from godwit import Message, MessageQueueManager

mq = MessageQueueManager.from_url()
app = Flask(__name__)


@mq.consumer("orders", group="billing")
def charge(message: Message) -> dict[str, Any]:
    """Handle one order, in a thread of the worker; what is returned is its result."""
    return {"charged": message.payload["amount"]}


@app.post("/orders")
def take_order() -> tuple[dict[str, Any], int]:
    """Answer as soon as the order is safe."""
    said = request.get_json()
    message_id = mq.sync.enqueue(Message(queue="orders", type="order.created", payload={"amount": said["amount"]}))
    return {"id": message_id}, 202


@app.get("/orders/<message_id>")
def show_order(message_id: str) -> tuple[dict[str, Any], int]:
    """Say where an order stands."""
    status = mq.sync.status(message_id)
    if status is None:
        return {"error": "no such order"}, 404
    return {"status": status.status, "result": status.groups[0].result}, 200
