"""Whose turn it is: in which order a consumer looks into its queues."""

from __future__ import annotations

from collections.abc import Sequence

from godwit.core.names import QueueName


class WeightedQueueOrder:
    """Shares pulls among queues by weight, so that none is starved; strict order serves the first as long as it has.

    The weighted order gives each queue credit by its weight at every turn and begins with the richest, which pays for
    it: over time queues begin in proportion to their weights, and even the lightest gets its turn.
    """

    def __init__(self, queues: Sequence[QueueName], weights: Sequence[int] = (), *, strict: bool = False) -> None:
        self._queues = tuple(queues)
        self._weights = tuple(weights) or (1,) * len(self._queues)
        self._credit = [0] * len(self._queues)
        self._strict = strict

    def order(self) -> Sequence[QueueName]:
        """Return the queues in the order of this turn."""
        if self._strict or len(self._queues) == 1:
            return self._queues
        for index, weight in enumerate(self._weights):
            self._credit[index] += weight
        ranked = sorted(range(len(self._queues)), key=lambda index: -self._credit[index])
        self._credit[ranked[0]] -= sum(self._weights)
        return [self._queues[index] for index in ranked]
