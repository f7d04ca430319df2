"""From a URL to a broker; each backend is imported only when its scheme is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from godwit.brokers.contract import Broker
from godwit.core.errors import ExtraRequired, InvalidSetting, UnknownScheme
from godwit.core.names import QueueName
from godwit.core.settings import DEFAULTS, RabbitMQSettings, Settings


def _memory(url: str) -> Broker:
    from godwit.brokers.memory import MemoryBroker

    return MemoryBroker.from_url(url)


def _sqlite(url: str) -> Broker:
    from godwit.brokers.sqlite import SqliteBroker

    return SqliteBroker.from_url(url)


def _redis(url: str, max_connections: int = DEFAULTS.redis.max_connections, *, journal_bodies: bool = False) -> Broker:
    try:
        from godwit.brokers.redis import RedisBroker
    except ImportError as error:
        raise ExtraRequired("The Redis broker", "redis") from error

    return RedisBroker(url, max_connections=max_connections, journal_bodies=journal_bodies)


def _rabbitmq(
    url: str, given: RabbitMQSettings | None = None, default_queue: QueueName | None = None, *, bodies: bool = False
) -> Broker:
    try:
        from godwit.brokers.rabbitmq import RabbitMQBroker
    except ImportError as error:
        raise ExtraRequired("The RabbitMQ broker", "rabbitmq") from error

    return RabbitMQBroker.configured(url, given or RabbitMQSettings(), default_queue, journal_bodies=bodies)


SCHEMES: Final[dict[str, Callable[[str], Broker]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "redis+cluster": _redis,
    "rediss+cluster": _redis,
    "redis+sentinel": _redis,
    "rediss+sentinel": _redis,
    "amqp": _rabbitmq,
    "amqps": _rabbitmq,
}


def connect(
    url: str,
    *,
    redis_connections: int = DEFAULTS.redis.max_connections,
    journal_bodies: bool = False,
    rabbitmq: RabbitMQSettings | None = None,
    default_queue: QueueName | None = None,
) -> Broker:
    """Return the broker a URL names, such as `sqlite:///godwit.db` or `memory://`; use it with `async with`.

    `redis_connections` is the most that a Redis broker opens for its calls; `journal_bodies` says that its journal
    keeps whole messages unless a queue says otherwise: a store's recorder reads them. `rabbitmq` gives the parts of the
    `default_queue` their names on a RabbitMQ server.
    """
    if not isinstance(url, str):
        raise InvalidSetting("url", url, "text such as 'sqlite:///godwit.db'")
    scheme, separator, _ = url.partition("://")
    if SCHEMES.get(scheme) is _redis and separator:
        return _redis(url, redis_connections, journal_bodies=journal_bodies)
    if scheme in {"amqp", "amqps"} and separator:
        return _rabbitmq(url, rabbitmq, default_queue, bodies=journal_bodies)
    make = SCHEMES.get(scheme) if separator else None
    if make is None:
        raise UnknownScheme(scheme if separator else url, tuple(SCHEMES))
    return make(url)


def connect_for(settings: Settings) -> Broker:
    """Return the broker that a configuration names, told everything it says about it."""
    return connect(
        settings.broker_url,
        redis_connections=settings.redis.max_connections,
        journal_bodies=settings.store_url is not None,
        rabbitmq=settings.rabbitmq,
        default_queue=settings.default_queue,
    )
