"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make the table."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("article", models.CharField(max_length=100)),
                ("amount", models.IntegerField()),
                ("charged", models.BooleanField(default=False)),
                ("receipt", models.TextField(default="")),
            ],
        ),
    )
