"""Rules of those who work: publishing, pulling, settling, falling silent."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from godwit.core.failures.failure import FailureKind
from tests.properties.machine import Comparison
from tests.properties.sides import Taken, Word
from tests.properties.strategies import DELAYS_MS, DRAFTS, LEASES_DRAWN, UNITS, WORKERS, Draft, ms, often

LIMITS = st.sampled_from((*(1, 2, 5, 20) * 5, 10_000, 10_001, 0, -1, 1 << 63))
LEASES = st.sampled_from(LEASES_DRAWN)
SIZES = often(None, 15, 50, 0, 1 << 80)
TEXTS = st.sampled_from((None, "no route", "bad address", "\ud800 \0", "\U0001f600" * 5_000))
KINDS = st.sampled_from(tuple(FailureKind))
VERBS = ("ack", "retry", "postpone", "give up", "hand back")


class Working(Comparison):
    """What publishers and workers do."""

    @rule(drafts=st.lists(DRAFTS, min_size=1, max_size=6))
    def publish(self, drafts: list[Draft]) -> None:
        alive = sorted(self.alive)
        self.send(
            [draft if draft.queue in alive else draft._replace(queue=alive[0]) for draft in drafts] if alive else drafts
        )

    @rule(draft=DRAFTS, size=st.integers(2, 4), pick=UNITS)
    def publish_many_alike(self, draft: Draft, size: int, pick: int) -> None:
        """Publish neighbours: the same key, the same lane, ids in a row."""
        if alive := sorted(self.alive):
            queue = alive[pick % len(alive)]
            self.send([draft._replace(id=draft.id + n, queue=queue, group=None) for n in range(size)])

    def send(self, drafts: list[Draft]) -> None:
        envelopes = [draft.envelope(self.clock.now_ms()) for draft in drafts]
        receipts = self.both("publish", envelopes)
        self.ids += [(envelope.queue, envelope.id) for envelope in envelopes]
        if receipts is not None:
            self.seen["duplicates"] += receipts.count(False)

    @rule(
        pick=UNITS,
        worker=st.sampled_from(WORKERS),
        limit=LIMITS,
        lease_ms=LEASES,
        max_bytes=often(None, 15, 50, 0, 1 << 80),
    )
    def pull(self, pick: int, worker: str, limit: int, lease_ms: int, max_bytes: int | None) -> None:
        """Pull from any group there is."""
        if places := self.places():
            self.fetch(*places[pick % len(places)], worker, limit, lease_ms, max_bytes)

    @rule(worker=st.sampled_from(WORKERS), limit=LIMITS, lease_ms=LEASES)
    def pull_where_most_is_ready(self, worker: str, limit: int, lease_ms: int) -> None:
        if places := self.places():
            self.fetch(*places[0], worker, limit, lease_ms, None)

    def fetch(self, *arguments: Any) -> None:
        taken: list[Taken] | None = self.both("pull", *arguments)
        if taken:
            self.held += range(self.delivered, self.delivered + len(taken))
            self.delivered += len(taken)
            self.seen["deliveries"] += len(taken)

    def take(self, pick: int) -> int:
        """Choose a delivery that was not settled yet, as far as its worker knows."""
        return self.held.pop(pick % len(self.held))

    def say(self, *words: Word) -> None:
        refused = self.both("settle", list(words))
        self.seen["refused"] += len(refused)
        self.seen["settled"] += len(words) - len(refused)

    @precondition(lambda self: self.held)
    @rule(pick=UNITS)
    def ack(self, pick: int) -> None:
        self.say(Word(self.take(pick), "ack"))

    @precondition(lambda self: self.held)
    @rule(pick=UNITS, text=TEXTS)
    def retry(self, pick: int, text: str | None) -> None:
        self.say(Word(self.take(pick), "retry", text=text))

    @precondition(lambda self: self.held)
    @rule(pick=UNITS, delay_ms=st.sampled_from(DELAYS_MS), text=TEXTS)
    def retry_later(self, pick: int, delay_ms: int, text: str | None) -> None:
        self.say(Word(self.take(pick), "retry", delay_ms, text))

    @precondition(lambda self: self.held)
    @rule(pick=UNITS, delay_ms=st.sampled_from(DELAYS_MS), text=TEXTS)
    def postpone(self, pick: int, delay_ms: int, text: str | None) -> None:
        self.say(Word(self.take(pick), "postpone", delay_ms, text))

    @precondition(lambda self: self.held)
    @rule(pick=UNITS, kind=KINDS, text=TEXTS)
    def give_up(self, pick: int, kind: FailureKind, text: str | None) -> None:
        self.say(Word(self.take(pick), "give up", 0, text, kind))

    @precondition(lambda self: self.held)
    @rule(pick=UNITS)
    def hand_back(self, pick: int) -> None:
        self.say(Word(self.take(pick), "hand back"))

    @precondition(lambda self: self.held)
    @rule(verbs=st.lists(st.sampled_from(VERBS), min_size=1, max_size=6))
    def settle_together(self, verbs: list[str]) -> None:
        numbers, self.held = self.held, []
        self.say(*(Word(number, verbs[n % len(verbs)]) for n, number in enumerate(numbers)))

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 3), lease_ms=LEASES)
    def extend(self, count: int, lease_ms: int) -> None:
        self.both("extend", self.held[:count], lease_ms)

    @precondition(lambda self: self.held)
    @rule(gap=st.sampled_from((700, 1_500)))
    def renew_before_an_outage(self, gap: int) -> None:
        """Renew what is held by less than the time for which it is not maintained: forgiven leases move."""
        self.both("extend", self.held, 300)
        self.clock.advance(ms(gap))
        self.both("maintain")

    @precondition(lambda self: self.held)
    @rule(steps=st.sampled_from((0, 4, 8)))
    def crash(self, steps: int) -> None:
        """Forget what was held: it will not be settled, and its leases may run out at once."""
        self.held.clear()
        self.seen["crash"] += 1
        if steps:
            self.let_pass(steps=steps)

    @precondition(lambda self: self.delivered)
    @rule(pick=UNITS, verb=st.sampled_from(VERBS))
    def settle_some_old_delivery(self, pick: int, verb: str) -> None:
        """Settle with any ack id there ever was, twice."""
        number = pick % self.delivered
        self.say(Word(number, verb), Word(number, "ack"))
