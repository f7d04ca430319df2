"""Functions that run later; before Django 6 `task` comes from the package django-tasks."""

from shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task(queue_name="receipts", priority=10)
def write_receipt(order_id: int) -> str:
    """Write the receipt of an order."""
    order = Order.objects.get(pk=order_id)
    text = f"{order}, {order.amount} euros"
    order.receipt = text
    order.save(update_fields=["receipt"])
    return text
