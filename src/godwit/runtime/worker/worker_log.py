"""What a worker logs about itself and its peers: start and end, a summary each minute, workers that fell silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import Ack, Delivery, Settlement
from godwit.core.logs import get_logger
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.counts import WorkerCounts
from godwit.runtime.worker.heartbeat import MISSED_BEATS, ConsumerInstance, InstanceStatus

SUMMARY_EVERY: Final = timedelta(minutes=1)
RECENT_BEATS: Final = 10 * MISSED_BEATS
"""A peer that has been silent for longer was logged by the worker that maintained the broker then."""

log = get_logger(__name__)


class WorkerLog:
    """Logs the life of one worker; successes at DEBUG, one line each."""

    def __init__(
        self, name: str, consumers: Sequence[Consumer], counts: WorkerCounts, *, held: Callable[[], int]
    ) -> None:
        self._name, self._consumers, self._counts, self._held = name, consumers, counts, held
        self._processed = self._failed = 0
        self._silent: set[str] = set()

    def started(self) -> None:
        """Log that the worker pulls now, and what it serves: a line for each consumer."""
        log.info("worker started", worker=self._name, consumers=len(self._consumers))
        for consumer in self._consumers:
            log.info("serving", **_described(consumer))

    def stopping(self, grace: timedelta) -> None:
        """Log that the worker pulls no more, and what it waits for."""
        log.info(
            "worker stops", worker=self._name, waits_for_handlers=self._held(), at_most_seconds=grace.total_seconds()
        )

    def stopped(self, handed_back: int) -> None:
        """Log what the worker did in all."""
        log.info("worker stopped", worker=self._name, processed=self._counts.processed, handed_back=handed_back)

    def settled(self, ended: Sequence[Delivery], settlements: Sequence[Settlement]) -> None:
        """Log each success where DEBUG is on."""
        if log.wants_debug:
            for delivery, settlement in zip(ended, settlements, strict=True):
                if isinstance(settlement, Ack):
                    log.debug(
                        "message done",
                        queue=delivery.queue,
                        group=delivery.group,
                        message_id=delivery.envelope.id,
                        attempt=delivery.attempt,
                        run_ms=settlement.run_ms or 0,
                    )

    async def summary(self) -> None:
        """Log what was done since the last summary, if anything was."""
        processed, failed = self._counts.processed, self._counts.failed
        if processed > self._processed:
            log.info(
                "worked",
                worker=self._name,
                processed=processed - self._processed,
                failed=failed - self._failed,
                in_hand=self._held(),
            )
        self._processed, self._failed = processed, failed

    def peers(self, found: Iterable[ConsumerInstance], now_ms: int) -> None:
        """Log workers that fell silent since the last look, and those that are back."""
        peers = {one.id: one for one in found if one.id != self._name}
        silent = {name for name, one in peers.items() if _is_overdue(one, now_ms)}
        for name in sorted(silent - self._silent):
            seconds = round((now_ms - peers[name].last_heartbeat_ms) / 1_000, 1)
            log.warning(
                "a worker fell silent: what it held comes back when its leases end", worker=name, for_seconds=seconds
            )
        for name in sorted((self._silent - silent) & peers.keys()):
            if peers[name].status is InstanceStatus.ACTIVE:
                log.info("a silent worker is back", worker=name)
        self._silent = silent


def _is_overdue(instance: ConsumerInstance, now_ms: int) -> bool:
    """Say whether a heartbeat is missing that was there lately; a worker that said goodbye is not missed."""
    if instance.status is not InstanceStatus.FAILED:
        return False
    beats = (now_ms - instance.last_heartbeat_ms) / instance.interval_ms
    return MISSED_BEATS < beats <= RECENT_BEATS


def _described(consumer: Consumer) -> dict[str, object]:
    """Return what a consumer is and how it works, as fields of a log line."""
    fields: dict[str, object] = {
        "queues": ",".join(consumer.queues),
        "group": consumer.group,
        "handler": getattr(consumer.handler, "__qualname__", type(consumer.handler).__name__),
        "concurrency": consumer.concurrency,
        "lease": f"{consumer.lease.total_seconds():g}s",
        "limit": f"{consumer.time_limit.total_seconds():g}s",
    }
    if consumer.rate is not None:
        fields["rate"] = consumer.rate.rate
    if consumer.breaker is not None:
        fields["breaker"] = consumer.breaker.name
    return fields
