"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    article = models.CharField(max_length=100)
    amount = models.IntegerField()
    charged = models.BooleanField(default=False)
    receipt = models.TextField(default="")

    def __str__(self) -> str:
        """Return the order as a receipt names it."""
        return f"order {self.pk}: {self.article}"
