"""When each subscription next needs care, so that a call costs the same however many subscriptions there are."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

_NEVER: Final = 1 << 62
_STALE_BEFORE_SWEEP: Final = 64


class DueTimes:
    """Holds a time per name; an earlier one replaces it."""

    def __init__(self) -> None:
        self._planned: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """Holds replaced entries too, which `due` skips."""

    def plan(self, name: str, due_ms: int | None) -> None:
        """Make sure `name` comes up by `due_ms`."""
        if due_ms is None or due_ms >= self._planned.get(name, _NEVER):
            return
        self._planned[name] = due_ms
        heappush(self._heap, (due_ms, name))
        if len(self._heap) > 2 * len(self._planned) + _STALE_BEFORE_SWEEP:
            self._heap = [(due_ms, name) for name, due_ms in self._planned.items()]
            heapify(self._heap)

    def cancel(self, name: str) -> None:
        """Forget `name`."""
        self._planned.pop(name, None)

    def due(self, now_ms: int) -> Iterator[str]:
        """Take off, one by one, the names whose time has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, name = heappop(self._heap)
            if self._planned.get(name) == due_ms:
                del self._planned[name]
                yield name
