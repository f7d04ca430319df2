"""Settings of the shop: orders and messages are in one SQLite file, so that one transaction covers both."""

import os
from pathlib import Path

FILE = Path(os.environ.get("SHOP_DB", "shop.db")).absolute()

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["godwit.django", "shop"]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FILE,
        # Writers take turns from the beginning of a transaction: the broker writes to this file too.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}

GODWIT = {"URL": f"sqlite:///{FILE}"}

TASKS = {
    "default": {
        "BACKEND": "godwit.django.tasks.GodwitBackend",
        "QUEUES": ["default", "receipts"],
        "OPTIONS": {"OUTBOX": True},
    }
}
