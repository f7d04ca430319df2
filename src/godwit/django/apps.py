"""The Django application: finds the modules named consumers, and serves the queues of Django's tasks."""

from django.apps import AppConfig
from django.conf import settings
from django.core.signals import request_started
from django.utils.module_loading import autodiscover_modules


class GodwitConfig(AppConfig):
    """The entry in INSTALLED_APPS."""

    name = "godwit.django"
    label = "godwit"
    verbose_name = "Godwit"

    def ready(self) -> None:
        """Import the consumers of every application, so that each process declares their queues and groups."""
        autodiscover_modules("consumers")
        request_started.connect(_open, dispatch_uid="godwit")
        if any(backend["BACKEND"].startswith(f"{self.name}.") for backend in getattr(settings, "TASKS", {}).values()):
            from godwit.django.manager import the_manager
            from godwit.django.tasks import serve_tasks

            serve_tasks(the_manager())


def _open(**_said: object) -> None:
    """Open a manager on a SQLite file before the first view, which may be in a transaction on the same file."""
    from godwit.django.manager import the_manager

    request_started.disconnect(dispatch_uid="godwit")
    manager = the_manager()
    if any((url or "").startswith("sqlite:") for url in (manager.settings.broker_url, manager.settings.store_url)):
        manager.sync.open()
