"""The project's one manager, made of the setting GODWIT."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.conf import settings
from django.db import close_old_connections

from godwit.config import load
from godwit.core.errors import InvalidSetting
from godwit.manager import MessageQueueManager
from godwit.runtime.worker.consumer import Handler

H = TypeVar("H", bound=Handler)
_ARGUMENTS: Final = {"URL": "broker_url", "STORE_URL": "store_url"}
_KEYS: Final = ("CONFIG", *_ARGUMENTS)
_making = threading.Lock()


class DjangoManager(MessageQueueManager):
    """A manager whose synchronous handlers meet the database as a view does: without connections that have died."""

    def consumer(self, *queues: str, **options: Any) -> Callable[[H], H]:
        """Let the decorated function handle messages; the options are those of `MessageQueueManager.consumer`."""
        register: Callable[[Any], Any] = super().consumer(*queues, **options)

        def registered(handler: H) -> H:
            register(handler if asyncio.iscoroutinefunction(handler) else _with_live_connections(handler))
            return handler

        return registered


def _with_live_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def handle(*arguments: Any) -> Any:
        close_old_connections()
        try:
            return handler(*arguments)
        finally:
            close_old_connections()

    return handle


def the_manager() -> DjangoManager:
    """Return the manager of this process; nothing is connected before it is used."""
    with _making:
        return _made()


@functools.cache
def _made() -> DjangoManager:
    said = dict(getattr(settings, "GODWIT", {}))
    for key in said:
        if key not in _KEYS:
            raise InvalidSetting("the setting GODWIT", key, f"the keys {', '.join(_KEYS)}")
    arguments = {_ARGUMENTS[key]: str(value) for key, value in said.items() if key in _ARGUMENTS}
    return DjangoManager.from_settings(load(said.get("CONFIG"), arguments=arguments))
