"""Advice that can be computed honestly from a history; "not enough data" is one of the answers.

Each advice counts exactly what would have happened, or uses a model that first reproduced what did happen. What a
history cannot tell is never recommended: more attempts or other delays (none were tried), breaker thresholds, prefetch,
weights, seasons from less than two weeks, root causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.pipeline.report.simulation import most_overlapping, percentile, waits

if TYPE_CHECKING:
    from godwit.pipeline.report.model import Attempts, GroupFigures, ScheduleLateness

ENOUGH: Final = 1_000
Z: Final = 1.96
"""95 % two-sided."""
HOPELESS: Final = 0.01
"""An attempt that succeeds less often than this, at the upper end of its interval, is not worth its run."""
CROWD_SHARE: Final = 0.2
LATE_MS: Final = 1_000
EXPIRY_RATE: Final = 0.001
TIGHT: Final = 1.25
LOOSE: Final = 20
MODEL_ERROR: Final = 0.2
LEAST_WAIT_MS: Final = 10
"""A shorter wait is the queue's own overhead, which no number of slots changes."""
LONG_TAIL: Final = 10


class AdviceVerdict(StrEnum):
    """The verdict of an advice."""

    CHANGE = "change"
    KEEP = "keep"
    UNKNOWN = "not enough data"


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A recommendation with the number of observations it is based on."""

    subject: str
    queue: str
    group: str
    verdict: AdviceVerdict
    text: str
    observed: int


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The configured limits of a group, as far as they are known."""

    max_size: int | None = None
    ttl: timedelta | None = None


class TracedMessage(msgspec.Struct, frozen=True):
    """The times of one message in a queue."""

    ready_ms: int
    at_ms: int
    end_ms: int
    wait_ms: int
    run_ms: int


def advise(
    groups: Sequence[GroupFigures],
    attempts: Sequence[Attempts],
    schedules: Sequence[ScheduleLateness],
    *,
    limits: Mapping[tuple[str, str], GroupLimits],
    trace: Callable[[str, str], Sequence[TracedMessage]],
) -> tuple[Advice, ...]:
    """Return the advice for every group, changes first."""
    advice_list: list[Advice] = []
    for group in groups:
        key = (group.queue, group.group)
        advice_list.append(
            fewer_attempts(group, [figures for figures in attempts if (figures.queue, figures.group) == key])
        )
        advice_list.append(queue_limit(group, limits.get(key, GroupLimits())))
        advice_list.append(time_to_live(group, limits.get(key, GroupLimits()), trace))
        advice_list += [spread(figures) for figures in schedules if (figures.queue, figures.group) == key]
        advice_list.append(lease_length(group))
        advice_list.append(concurrency(group, trace))
    order = list(AdviceVerdict)
    return tuple(sorted(advice_list, key=lambda advice: order.index(advice.verdict)))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = hits / trials, Z * Z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def fewer_attempts(group: GroupFigures, attempts: Sequence[Attempts]) -> Advice:
    """Advise to give up earlier where further attempts hardly ever succeed, by an exact count."""
    say = _advice_on("max_attempts", group)
    most = max((figures.earlier_failures for figures in attempts), default=0)
    seen = sum(figures.succeeded + figures.failed for figures in attempts if figures.earlier_failures > 0)
    for limit in range(1, most + 1):
        tail = [figures for figures in attempts if figures.earlier_failures >= limit]
        tries, successes = (
            sum(figures.succeeded + figures.failed for figures in tail),
            sum(figures.succeeded for figures in tail),
        )
        low, high = wilson(successes, tries)
        if tries >= ENOUGH and high < HOPELESS:
            seconds = sum(figures.run_ms for figures in tail) / 1_000
            return say(
                AdviceVerdict.CHANGE,
                f"max_attempts = {limit} would have saved {tries:,} runs ({seconds:,.0f} s of handlers) and given up"
                f" {successes:,} messages that succeeded later; after {limit} failures an attempt succeeds in"
                f" {low:.2%} to {high:.2%} of cases.",
                tries,
            )
    if seen < ENOUGH:
        return say(AdviceVerdict.UNKNOWN, f"Only {seen:,} retries were seen; {ENOUGH:,} are needed.", seen)
    return say(AdviceVerdict.KEEP, "Retries succeed often enough to be worth their runs.", seen)


def queue_limit(group: GroupFigures, limits: GroupLimits) -> Advice:
    """Advise a size limit that fits the depths seen."""
    say = _advice_on("max_size", group)
    if group.enqueued < ENOUGH or not group.peak_depth:
        return say(AdviceVerdict.UNKNOWN, f"Only {group.enqueued:,} messages were seen.", group.enqueued)
    peak, limit = group.peak_depth, limits.max_size
    room = _nice(2 * peak)
    if limit is not None and limit < TIGHT * peak:
        text = f"The deepest was {peak:,} of {limit:,} allowed; max_size = {room:,} would leave as much room again."
        return say(AdviceVerdict.CHANGE, text, group.enqueued)
    if limit is None or limit > LOOSE * peak:
        now = "no limit" if limit is None else f"the limit of {limit:,}"
        text = f"With max_size = {room:,} instead of {now} none of {group.enqueued:,} messages had been refused."
        return say(AdviceVerdict.CHANGE, text, group.enqueued)
    return say(AdviceVerdict.KEEP, f"The deepest was {peak:,} of {limit:,} allowed.", group.enqueued)


def time_to_live(
    group: GroupFigures, limits: GroupLimits, trace: Callable[[str, str], Sequence[TracedMessage]]
) -> Advice:
    """Advise a time to live where few messages waited far longer than usual, and count which it had given up.

    A time to live counts from a message's creation, over all its attempts. Where messages are tried again, how long
    they waited does not tell how old they were.
    """
    say = _advice_on("ttl", group)
    if group.delivered < ENOUGH or group.wait_p99 is None or group.wait_max is None:
        return say(AdviceVerdict.UNKNOWN, f"Only {group.delivered:,} deliveries were seen.", group.delivered)
    ttl_ms = LONG_TAIL * max(group.wait_p99, LATE_MS)
    if limits.ttl is None and group.wait_max > ttl_ms:
        if group.delivered > group.enqueued * (1 + EXPIRY_RATE):
            text = "Messages are delivered several times: how long they waited does not tell how old they were."
            return say(AdviceVerdict.UNKNOWN, text, group.delivered)
        messages = trace(group.queue, group.group)
        late = sum(message.wait_ms > ttl_ms for message in messages)
        if len(messages) < (1 - MODEL_ERROR / 2) * group.delivered:
            text = f"Only {len(messages):,} of {group.delivered:,} deliveries can be followed to their end."
            return say(AdviceVerdict.UNKNOWN, text, len(messages))
        if late:
            text = (
                f"99 % of the messages waited at most {max(group.wait_p99, LATE_MS) / 1_000:,.1f} s. If what comes"
                f" later than {ttl_ms / 1_000:,.0f} s is of no use, a ttl of that length had given up {late:,} of"
                f" {len(messages):,} messages."
            )
            return say(AdviceVerdict.CHANGE, text, len(messages))
    return say(AdviceVerdict.KEEP, "No message waited far longer than is usual.", group.delivered)


def spread(late: ScheduleLateness) -> Advice:
    """Advise to spread schedules that fall due together and are late because of it."""
    say = _advice_on("schedules", late)
    if late.messages < ENOUGH:
        return say(AdviceVerdict.UNKNOWN, f"Only {late.messages:,} scheduled messages were seen.", late.messages)
    low, high = wilson(late.most_in_a_minute, late.messages)
    if low > CROWD_SHARE and late.late_p95 > LATE_MS:
        window = math.ceil(late.late_max / 60_000)
        text = (
            f"{late.most_in_a_minute:,} of {late.messages:,} ({low:.0%} to {high:.0%}) were due in the minute of"
            f" {late.fullest_minute:%H:%M} and 5 % came {late.late_p95 / 1_000:,.1f} s late or later; it took"
            f" {window} min to deliver them: a jitter window of {window} min spreads them over that time."
        )
        return say(AdviceVerdict.CHANGE, text, late.messages)
    return say(AdviceVerdict.KEEP, "Scheduled messages do not crowd each other.", late.messages)


def lease_length(group: GroupFigures) -> Advice:
    """Advise longer leases where leases ran out under handlers still at work."""
    say = _advice_on("lease", group)
    if group.delivered < ENOUGH:
        return say(AdviceVerdict.UNKNOWN, f"Only {group.delivered:,} deliveries were seen.", group.delivered)
    low, high = wilson(min(group.leases_expired, group.acks_refused), group.delivered)
    if low > EXPIRY_RATE:
        text = (
            f"{group.leases_expired:,} leases ran out and {group.acks_refused:,} acks came too late ({low:.2%} to"
            f" {high:.2%} of deliveries): the handlers lived on. A lease beyond their longest run"
            f" (99 % end within {(group.run_p99 or 0) / 1_000:,.1f} s) avoids handling twice."
        )
        return say(AdviceVerdict.CHANGE, text, group.delivered)
    return say(AdviceVerdict.KEEP, "Leases do not run out under handlers that are still at work.", group.delivered)


def concurrency(group: GroupFigures, trace: Callable[[str, str], Sequence[TracedMessage]]) -> Advice:
    """Advise another number of slots when a simulation that reproduces the waits shows its effect."""
    say = _advice_on("concurrency", group)
    if group.processed < ENOUGH or group.wait_p95 is None:
        return say(AdviceVerdict.UNKNOWN, f"Only {group.processed:,} messages were handled.", group.processed)
    messages = trace(group.queue, group.group)
    if len(messages) < ENOUGH:
        return say(
            AdviceVerdict.UNKNOWN, f"Only {len(messages):,} messages ended at their first attempt.", len(messages)
        )
    ready = [message.ready_ms for message in messages]
    runs = [max(0, message.end_ms - message.at_ms) for message in messages]
    slots = most_overlapping([(message.at_ms, message.end_ms) for message in messages])
    seen, modelled = (
        percentile([message.wait_ms for message in messages], 0.95),
        percentile(waits(ready, runs, slots), 0.95),
    )
    if abs(modelled - seen) > max(MODEL_ERROR * seen, LEAST_WAIT_MS):
        text = (
            f"A model with {slots} slots gives a p95 wait of {modelled:,.0f} ms where {seen:,.0f} ms were seen:"
            " something else than the number of slots decides."
        )
        return say(AdviceVerdict.UNKNOWN, text, len(messages))
    wanted = max(percentile(runs, 0.95), LEAST_WAIT_MS)
    for other in _slots_to_try(slots, more=seen > wanted):
        then = percentile(waits(ready, runs, other), 0.95)
        if then <= wanted:
            text = (
                f"With {other} slots instead of {slots} the p95 wait would have been {then:,.0f} ms (was {seen:,.0f})."
            )
            return say(AdviceVerdict.CHANGE, text, len(messages))
    return say(AdviceVerdict.KEEP, f"{slots} slots fit the load (p95 wait {seen:,.0f} ms).", len(messages))


def _slots_to_try(slots: int, *, more: bool) -> list[int]:
    """Return other numbers of slots, least first; fewer ones only when the saving is real."""
    if more:
        return sorted({math.ceil(slots * factor) for factor in (1.25, 1.5, 2, 3, 4)} - {slots})
    return sorted({max(1, slots // 4), max(1, slots // 2)} - {slots})


def _advice_on(subject: str, group: GroupFigures | ScheduleLateness) -> Callable[[AdviceVerdict, str, int], Advice]:
    def say(verdict: AdviceVerdict, text: str, observed: int) -> Advice:
        return Advice(
            subject=subject, queue=group.queue, group=group.group, verdict=verdict, text=text, observed=observed
        )

    return say


def _nice(number: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, ... that is not below a number."""
    power = 10 ** math.floor(math.log10(number)) if number >= 1 else 1
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= number))
