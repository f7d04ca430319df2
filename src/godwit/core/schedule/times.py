"""When an expression fires in a zone, with Debian cron's rules where the zone's clocks jump.

* A job with a star at the beginning of its second, minute or hour follows the wall clock: it does not fire at local
  times that are skipped, and fires again at those that are repeated.
* Any other job fires once for each local time: in the skipped time right after the change, in the repeated time at its
  first passage. Several of its times in one skipped stretch are one firing, because a firing is known by its instant.
* A jump of three hours or more is a correction of the clock: skipped times stay skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from godwit.core.schedule.cron import Cron
from godwit.core.schedule.zones import Zone

CORRECTION_SECONDS: Final = 3 * 3_600


def next_fire(cron: Cron, zone: Zone, after: int) -> int | None:
    """Return the first instant later than `after` (both in seconds since 1970) at which it fires."""
    return _next_wild(cron, zone, after) if cron.wild else _next_fixed(cron, zone, after)


def fires(cron: Cron, zone: Zone, after: int) -> Iterator[int]:
    """Return the instants at which it fires, one after the other."""
    found = next_fire(cron, zone, after)
    while found is not None:
        yield found
        found = next_fire(cron, zone, found)


def _next_wild(cron: Cron, zone: Zone, after: int) -> int | None:
    """Walk through stretches of equal offset: inside one, wall clock and time go together."""
    at = after + 1
    offset = zone.offset(at)
    while True:
        local = cron.next_local(at + offset)
        if local is None:
            return None
        change = zone.next_change(at, local - offset)
        if change is None:
            return local - offset
        at, offset = change.at, change.after


def _next_fixed(cron: Cron, zone: Zone, after: int) -> int | None:
    """Walk through local times; a local time never comes before an earlier one, so the first that is later counts."""
    local = cron.next_local(after + zone.offset(after))
    while local is not None:
        instant = _instant(zone, local)
        if instant is not None and instant > after:
            return instant
        local = cron.next_local(local + 1)
    return None


def _instant(zone: Zone, local: int) -> int | None:
    """Return when the zone's clocks first show a local time, or passed over it; None when that was a correction."""
    guess = local - zone.offset(local)
    change = zone.change_around(guess)
    if change is None:
        return guess
    if local < change.at + change.before:
        return local - change.before
    if local >= change.at + change.after:
        return local - change.after
    return change.at if change.after - change.before < CORRECTION_SECONDS else None
