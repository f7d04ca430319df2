"""The broker in one SQLite file: durable, for several processes on one machine, without a server."""

from godwit.brokers.sqlite.backup import backup
from godwit.brokers.sqlite.broker import SqliteBroker

__all__ = ["SqliteBroker", "backup"]
