"""Which dead letters are meant, and what each of them died of."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from godwit.brokers.contract import DeadLetter
from godwit.core.clock import milliseconds, to_ms
from godwit.core.failures.failure import ErrorType, FailureKind, fingerprint
from godwit.core.names import GroupName, MessageId, QueueName


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What a message died of; letters of one `fingerprint` show the same failure.

    `type` is the error's (network, validation, timeout, unknown), or, when no handler said a word, `crashes` or `ttl`.
    """

    fingerprint: str
    type: str
    message: str


def cause_of(letter: DeadLetter) -> Cause:
    """Return the last error, unless the broker gave the message up for a reason of its own."""
    if letter.kind is FailureKind.POISON and letter.crashes:
        return _silent("crashes", f"took down {letter.crashes} workers")
    if letter.kind is FailureKind.EXPIRED and not _ran_too_long(letter):
        return _silent("ttl", "expired before it was handled")
    if not letter.errors:
        return _silent(letter.kind.value, f"given up after {letter.attempt} deliveries")
    error = letter.errors[-1]
    return Cause(fingerprint=error.fingerprint, type=error.type.value, message=error.message)


def _silent(type: str, message: str) -> Cause:
    return Cause(fingerprint=fingerprint(type, message), type=type, message=message)


def _ran_too_long(letter: DeadLetter) -> bool:
    """Say whether its last allowed attempt ended by the time limit, rather than its own time having passed."""
    expires_ms = letter.envelope.expires_at_ms
    passed = expires_ms is not None and expires_ms <= letter.dead_at_ms
    return not passed and bool(letter.errors) and letter.errors[-1].type is ErrorType.TIMEOUT


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses dead letters; what is not said does not matter.

    `name` is a queue, or a dead letter queue that several queues share. `died_before` keeps a replay that is continued
    away from letters that died again since it began.
    """

    name: QueueName | None = None
    group: GroupName | None = None
    kind: FailureKind | None = None
    fingerprint: str | None = None
    type: str | None = None
    message_id: MessageId | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    died_before: datetime | None = None

    def matches(self, letter: DeadLetter, now_ms: int) -> bool:
        """Say whether a letter of the queues and groups looked at is meant."""
        age_ms = now_ms - letter.dead_at_ms
        return (
            (self.group is None or letter.group == self.group)
            and (self.kind is None or letter.kind is self.kind)
            and (self.type is None or letter.envelope.type == self.type)
            and (self.message_id is None or letter.envelope.id == self.message_id)
            and (self.older_than is None or age_ms > milliseconds(self.older_than))
            and (self.newer_than is None or age_ms <= milliseconds(self.newer_than))
            and (self.died_before is None or letter.dead_at_ms < to_ms(self.died_before))
            and (self.fingerprint is None or cause_of(letter).fingerprint == self.fingerprint)
        )


EVERY_LETTER = LetterFilter()
