"""The in-memory broker: a synchronous engine and a thin async shell over it."""

from godwit.brokers.memory.broker import MemoryBroker
from godwit.brokers.memory.engine import MemoryEngine

__all__ = ["MemoryBroker", "MemoryEngine"]
