"""Godwit in a Django project: `INSTALLED_APPS = [..., "godwit.django"]`, and `from godwit.django import mq`.

Modules and packages:

    apps         the Django application: finds the modules named consumers
    manager      the project's one manager, made of the setting GODWIT
    tasks        a backend of Django's tasks
    management   the command `manage.py godwit`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from godwit.django.manager import DjangoManager

    mq: DjangoManager


def __getattr__(name: str) -> Any:
    """Make the manager when it is asked for: settings are ready then, or are made so."""
    if name != "mq":
        raise AttributeError(f"module 'godwit.django' has no attribute {name!r}")
    import django
    from django.apps import apps

    if not apps.ready and not apps.loading:
        django.setup()  # `godwit worker godwit.django:mq`
    from godwit.django.manager import the_manager

    return the_manager()
