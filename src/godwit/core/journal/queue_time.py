"""The time of a queue, which never goes back and never stands still, whatever the clock does.

A queue's time is the clock's, until the clock goes back: it jumped forward before, or a server whose clock is ahead was
asked. From then on the queue's time goes half as fast as the clock, until the clock has caught up. Leases and retries
take twice as long in that while, instead of standing still; what is due at an instant is early by less than the jump.
"""

from __future__ import annotations

from typing import NamedTuple


class ClockLag(NamedTuple):
    """Where the queue's time and the clock stood when the clock fell behind."""

    at_ms: int
    clock_ms: int

    def time_ms(self, clock_ms: int) -> int:
        """Return the queue's time at an instant of the clock that has not caught up."""
        return self.at_ms + (clock_ms - self.clock_ms) // 2

    def reached_ms(self, due_ms: int) -> int:
        """Return the clock's instant at which the queue's time has come to `due_ms`."""
        return min(due_ms, self.clock_ms + 2 * (due_ms - self.at_ms))


def behind(at_ms: int, clock_ms: int, lag: ClockLag | None) -> tuple[int, ClockLag]:
    """Return the time of a queue that was last at `at_ms`, when the clock is behind it, and the lag that counts now.

    A lag of an earlier jump, or of a clock that has gone back once more, would let time stand still: it begins anew.
    """
    if lag is not None and (time_ms := lag.time_ms(clock_ms)) >= at_ms:
        return time_ms, lag
    return at_ms, ClockLag(at_ms, clock_ms)


def advanced(at_ms: int, clock_ms: int, lag: ClockLag | None) -> tuple[int, ClockLag | None]:
    """Return the time of a queue that was last at `at_ms`, and the lag that counts now."""
    return (clock_ms, None) if clock_ms >= at_ms else behind(at_ms, clock_ms, lag)
