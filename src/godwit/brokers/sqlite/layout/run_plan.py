"""How a chunk of envelopes is laid out: which messages share a run, and in which order they arrive. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from godwit.brokers.sqlite.layout.rows import ASIDE, GroupRow, QueueRow
from godwit.brokers.sqlite.layout.runs import ENVELOPE_FIELDS, RUN_BYTES, SEQ, SIZE, Message, astuple, with_marks
from godwit.core.clock import milliseconds
from godwit.core.messages.envelope import Envelope
from godwit.core.queues import LANE_OF_PRIORITY

LANES: Final = tuple(int(lane) for lane in LANE_OF_PRIORITY)

Drops = dict[int, frozenset[int]]
"""By group id: the places in the chunk of copies that do not fit."""


class Run:
    """Messages that will be stored together. Those of a plain run reach every group by its walk along the lane."""

    __slots__ = ("holds", "last", "later", "live", "messages", "plain", "size")

    def __init__(self, *, plain: bool, later: bool) -> None:
        self.messages: list[Message] = []
        self.plain = plain
        self.later = later
        self.size = self.live = self.holds = self.last = 0


class RunPlan:
    """The runs of one chunk, with turns and publish_seqs given."""

    def __init__(
        self,
        queue: QueueRow,
        groups: list[GroupRow],
        fresh: Sequence[Envelope],
        drops: Drops,
        now_ms: int,
        *,
        moved: bool = False,
    ) -> None:
        self.turn, self.seq = queue.turn, queue.publish_seq
        self.runs: list[Run] = []
        self.dropped = {group: frozenset(self.seq + 1 + index for index in places) for group, places in drops.items()}
        self._floors = [queue.floor(part) for part in range(ASIDE + 1)]
        self._open: dict[int, Run] = {}
        ttl_ms = milliseconds(queue.spec.ttl) if queue.spec.ttl is not None and not moved else 0
        ordered = any(group.spec.message_ordering for group in groups)
        dropped = frozenset().union(*self.dropped.values()) if self.dropped else frozenset()
        lanes = queue.spec.lanes > 1
        opened, seq = self._open, self.seq
        for envelope in fresh:
            seq += 1
            deliver_ms = envelope.deliver_at_ms
            later = deliver_ms is not None and deliver_ms > now_ms
            expiry = envelope.expiry_ms(ttl_ms) or None if ttl_ms or envelope.expires_at_ms is not None else None
            lane = LANES[envelope.priority] if lanes else 0
            # As `message_of` does it, in place: adding two tuples costs less than one of many parts.
            place = (seq, deliver_ms if later else now_ms, lane, expiry)
            message = astuple(envelope)[:ENVELOPE_FIELDS] + place
            if envelope.correlation_id is not None or envelope.journal_attributes is not None:
                message = with_marks(message, envelope)
            if (
                later
                or expiry is not None
                or envelope.group is not None
                or (ordered and envelope.ordering_key is not None)
                or (dropped and seq in dropped)
            ):
                self._aside(message, lane, later=later)
                continue
            run = opened.get(lane)
            if run is None or run.size > RUN_BYTES:
                run = self._begin(lane)
            run.messages.append(message)
            run.size += message[SIZE]
        self.seq = seq
        for lane in list(opened):
            self._close(lane)

    def _begin(self, lane: int) -> Run:
        """Open a plain run; turns are given when it closes, since those of a run are consecutive."""
        self._close(lane)
        run = self._open[lane] = Run(plain=True, later=False)
        return run

    def _close(self, lane: int) -> None:
        run = self._open.pop(lane, None)
        if run is not None:
            self.turn += len(run.messages)
            run.last = self._floors[lane] + self.turn
            self.runs.append(run)

    def _aside(self, message: Message, lane: int, *, later: bool) -> None:
        """Lay a message that needs rows of its own aside; delayed ones alone, because they are fetched one by one."""
        for one in (lane, 1):  # what came before it in its lane must keep coming before it, whichever lane a key uses
            self._close(one)
        self.turn += 1
        last = self._floors[ASIDE] + self.turn
        run = self.runs[-1] if self.runs else None
        if later or run is None or run.plain or run.later or run.last != last - 1 or run.size > RUN_BYTES:
            run = Run(plain=False, later=later)
            self.runs.append(run)
        run.messages.append(message)
        run.size += message[SIZE]
        run.last = last

    @property
    def only_run(self) -> Run | None:
        """The run that holds the whole chunk, when there is but one and it is plain: nearly always."""
        return self.runs[0] if len(self.runs) == 1 and self.runs[0].plain else None

    def stored(self) -> list[tuple[Message, Run]]:
        """Return every message with its run, in the order of the chunk."""
        return sorted(((message, run) for run in self.runs for message in run.messages), key=_by_seq)


def _by_seq(stored: tuple[Message, Run]) -> int:
    return stored[0][SEQ]  # type: ignore[no-any-return]
