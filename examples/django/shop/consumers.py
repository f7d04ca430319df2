"""What happens to messages; Godwit imports the modules of this name."""

from godwit import Message
from godwit.django import mq
from shop.models import Order


@mq.consumer("orders", group="billing")
def charge(message: Message) -> None:
    """Charge an order."""
    Order.objects.filter(pk=message.payload["id"]).update(charged=True)
