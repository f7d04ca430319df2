"""What customers call."""

import json

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from godwit import Message
from godwit.django import mq
from shop.models import Order
from shop.tasks import write_receipt


@csrf_exempt
@require_POST
def take_order(request: HttpRequest) -> JsonResponse:
    """Keep an order, its message and its task, or none of them."""
    said = json.loads(request.body)
    with transaction.atomic():
        order = Order.objects.create(article=said["article"], amount=said["amount"])
        mq.sync.outbox(connection).enqueue(Message(queue="orders", type="order.created", payload={"id": order.pk}))
        receipt = write_receipt.enqueue(order.pk)
        if order.amount < 0:
            raise ValueError("nothing of this is kept")
    return JsonResponse({"id": order.pk, "receipt": receipt.id}, status=202)


def show_order(_request: HttpRequest, order_id: int) -> JsonResponse:
    """Say how an order is doing."""
    order = Order.objects.get(pk=order_id)
    return JsonResponse({"charged": order.charged, "receipt": order.receipt})


def show_receipt(_request: HttpRequest, task_id: str) -> JsonResponse:
    """Say how a task is doing."""
    result = write_receipt.get_result(task_id)
    return JsonResponse({"status": result.status, "value": result.return_value if result.is_finished else None})
