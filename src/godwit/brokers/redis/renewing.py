"""Extending leases from any thread: a synchronous connection of its own, since the event loop may be busy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from godwit.brokers.redis.address import Address
from godwit.brokers.redis.reach import Now
from godwit.brokers.redis.replies import LinkLost, unavailable
from godwit.brokers.redis.scripts import script
from godwit.brokers.redis.settling import BATCH, aims, extension
from godwit.core.names import AckId

_TIMEOUT_SECONDS: Final = 5
_RETRIES: Final = 3


class Renewer:
    """Extends leases, one call at a time."""

    def __init__(self, address: Address, now: Now) -> None:
        self._address, self._now = address, now
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None

    def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused."""
        by_queue, refused = aims(ack_ids)
        with self._lock:
            for queue, aimed in by_queue.items():
                for start in range(0, len(aimed), BATCH):
                    part = aimed[start : start + BATCH]
                    names, arguments = extension(queue, part, lease_ms)
                    answer = self._run([*names], [self._now(), queue, *arguments])
                    refused += [part[index - 1].place for index in answer]
        return [ack_ids[index] for index in sorted(refused)]

    def _run(self, names: list[str], arguments: list[Any]) -> list[int]:
        what = script("extend")
        client = self._connected()
        try:
            try:
                answer = client.evalsha(what.sha, len(names), *names, *arguments)
            except redis.exceptions.NoScriptError:
                answer = client.eval(what.source, len(names), *names, *arguments)
        except RedisError as error:
            raise unavailable(self._address.shown, LinkLost(str(error))) from error
        return [int(index) for index in answer]

    def _connected(self) -> redis.Redis:
        if self._client is None:
            address = self._address
            options: dict[str, Any] = {}
            if address.tls is not None:
                options = {"connection_class": TlsConnection, "context": address.tls}
            pool = redis.ConnectionPool(
                host=address.host,
                port=address.port,
                db=address.database,
                username=address.username,
                password=address.password,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), _RETRIES),
                max_connections=1,
                protocol=2,
                **options,
            )
            self._client = redis.Redis(connection_pool=pool)
        return self._client

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client.connection_pool.disconnect()
                self._client = None


class TlsConnection(redis.Connection):
    """A connection that speaks TLS by a given context."""

    def __init__(self, *, context: Any, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._context = context

    def _connect(self) -> Any:
        plain = super()._connect()  # type: ignore[no-untyped-call]
        return self._context.wrap_socket(plain, server_hostname=self.host)
