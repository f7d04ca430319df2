"""The broker on Redis Streams (Redis 6.2 or newer, Valkey): every step is one Lua script on the server."""

from godwit.brokers.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
