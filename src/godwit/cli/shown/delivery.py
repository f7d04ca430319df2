"""A pulled message, as text and as JSON."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from godwit.brokers.contract import Delivery
from godwit.cli.shown.output import visible
from godwit.cli.shown.quantities import duration_text
from godwit.core.clock import from_ms
from godwit.core.messages.message import Message


def message_or_none(delivery: Delivery) -> Message | None:
    """Return the message, or None when its body is not one of Godwit's."""
    try:
        return delivery.open()
    except msgspec.DecodeError:
        return None


def delivery_document(delivery: Delivery, outcome: str) -> dict[str, Any]:
    """Return a delivery as the JSON document that `docs/cli.md` describes."""
    envelope, message = delivery.envelope, message_or_none(delivery)
    return {
        "id": envelope.id,
        "queue": delivery.queue,
        "group": delivery.group,
        "type": envelope.type,
        "priority": envelope.priority,
        "ordering_key": envelope.ordering_key,
        "attributes": message.attributes if message else {},
        "payload": message.payload if message else None,
        "raw": None if message else base64.b64encode(envelope.body).decode(),
        "attempt": delivery.attempt,
        "failures": delivery.failures,
        "crashes": delivery.crashes,
        "created_at": from_ms(envelope.created_at_ms),
        "deliver_at": None if envelope.deliver_at_ms is None else from_ms(envelope.deliver_at_ms),
        "expires_at": None if envelope.expires_at_ms is None else from_ms(envelope.expires_at_ms),
        "lease_until": from_ms(delivery.lease_until_ms),
        "outcome": outcome,
        "ack_id": delivery.ack_id if outcome == "kept" else None,
    }


def show_delivery(console: Console, delivery: Delivery, *, with_ack_id: bool) -> None:
    """Print a delivery: its id, its facts, its content."""
    envelope, message = delivery.envelope, message_or_none(delivery)
    waited = timedelta(milliseconds=max(0, delivery.delivered_at_ms - delivery.ready_at_ms))
    facts = [f"priority {envelope.priority}", f"attempt {delivery.attempt}", f"waited {duration_text(waited)}"]
    if envelope.ordering_key is not None:
        facts.append(f"key {visible(envelope.ordering_key)}")
    if delivery.failures:
        facts.append(f"failed {delivery.failures}x")
    if delivery.crashes:
        facts.append(f"crashed {delivery.crashes}x")
    console.print(Text.assemble((envelope.id, "bold"), "  ", (envelope.type, "cyan")), soft_wrap=True)
    console.print(Text("  " + "  ".join(facts), style="dim"), soft_wrap=True)
    if message and message.attributes:
        words = (f"{visible(key)}={visible(value)}" for key, value in message.attributes.items())
        console.print("  " + "  ".join(words), soft_wrap=True)
    body = msgspec.json.encode(message.payload).decode() if message else f"(not a message: {envelope.size:,} bytes)"
    console.print(f"  {visible(body)}", soft_wrap=True)
    if with_ack_id:
        console.print(Text(f"  ack id {delivery.ack_id}", style="yellow"), soft_wrap=True)
