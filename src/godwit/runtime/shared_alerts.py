"""Alerts of many processes, sent once: a process that wants to send one asks the shared values first.

Key of the shared values: `alert/<name>/<subject>`, holding `firing` or `cleared` as last sent; gone when no process
renewed it for an hour, so that an alert whose sender died can be sent again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from godwit.brokers.contract import Shared
from godwit.core.errors import BrokerError
from godwit.core.shared_keys import alert_key
from godwit.telemetry.alerts import Alert

KEPT_FOR: Final = timedelta(hours=1)


class SharedAlerts:
    """The right to tell an alert: the depth of a queue looks the same from every process."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def claim(self, alert: Alert) -> bool:
        """Say whether this process is the one to send it; without the broker every process does."""
        key = alert_key(alert.name.value, alert.subject)
        try:
            entry = await self._shared.get(key)
            if entry is not None and entry.value == alert.state.encode():
                return False
            expected = entry.version if entry is not None else None
            return await self._shared.put(key, alert.state.encode(), expected=expected, ttl=KEPT_FOR) is not None
        except BrokerError:
            return True
