"""Which examiner knows which kind of server; each is imported only when its scheme is asked for."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Final, Protocol

from godwit.admin.doctor.findings import Finding
from godwit.core.errors import UnknownScheme

EXAMINERS: Final = {
    "sqlite": "godwit.admin.doctor.sqlite",
    "redis": "godwit.admin.doctor.redis",
    "rediss": "godwit.admin.doctor.redis",
    "redis+cluster": "godwit.admin.doctor.redis",
    "rediss+cluster": "godwit.admin.doctor.redis",
    "redis+sentinel": "godwit.admin.doctor.redis",
    "rediss+sentinel": "godwit.admin.doctor.redis",
    "amqp": "godwit.admin.doctor.rabbitmq",
    "amqps": "godwit.admin.doctor.rabbitmq",
}
"""The module of each scheme; its function `examine` does the work."""
SPAN: Final = timedelta(seconds=2)
"""How long rates are watched."""


class Examiner(Protocol):
    """A module that knows one kind of server."""

    async def examine(self, url: str, *, span: timedelta) -> list[Finding]:
        """Look at the server without changing anything; raise a `BrokerError` when it cannot be reached at all."""
        ...


async def examine(url: str, *, span: timedelta = SPAN) -> list[Finding]:
    """Examine what a URL names; rates are watched for `span`."""
    scheme, separator, _ = url.partition("://")
    module = EXAMINERS.get(scheme) if separator else None
    if module is None:
        raise UnknownScheme(scheme if separator else url, tuple(EXAMINERS))
    examiner: Examiner = import_module(module)
    return await examiner.examine(url, span=span)
