"""The reconciliation: the records of publishers and workers, compared with what the broker says.

Nothing is taken from one side alone. A message is *done* when a worker's record says so, *dead* or *open* when the
journal says so, and *lost* when a publisher got a receipt and neither side has the message any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from godwit.brokers.contract import GroupStats
from godwit.cli.demo.journal_tally import JournalTally
from godwit.cli.demo.records import Accepted, Handled
from godwit.cli.demo.workload import GROUPS, ORDERS, QueueGroup


class GroupBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of one group. Numbers count messages; `twice` those handled more than once."""

    queue: str
    group: str
    published: int
    done: int
    dead: int
    open: int
    lost: int
    twice: int
    out_of_order: int


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The balances of all groups, and a sentence for each problem."""

    lines: tuple[GroupBalance, ...]
    held: int
    slow: int
    """Leases that ran out although their worker was alive: the machine was too slow for them."""
    problems: tuple[str, ...]
    waits: dict[str, float]
    """Median seconds an order waited, by lane."""

    @property
    def reconciled(self) -> bool:
        """Say whether there is no problem."""
        return not self.problems

    def total(self, column: str) -> int:
        """Return the sum of a column."""
        return sum(getattr(line, column) for line in self.lines)


def reconcile(
    entries: Iterable[Accepted | Handled],
    tally: JournalTally,
    stats: Mapping[QueueGroup, GroupStats],
    letters: Mapping[QueueGroup, Collection[str]],
    *,
    held: Mapping[QueueGroup, Collection[str]],
    incidents: Iterable[str] = (),
) -> Reconciliation:
    """Compare the records with the journal, the dead letters and the stats, group by group."""
    accepted: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    handled: defaultdict[QueueGroup, list[Handled]] = defaultdict(list)
    for entry in entries:
        if isinstance(entry, Accepted):
            accepted[entry.queue][entry.id] = entry.doomed
        else:
            handled[QueueGroup(entry.queue, entry.group)].append(entry)  # names as recorded
    records = [
        _GroupRecords(
            group,
            accepted[group.queue],
            handled[group],
            tally,
            stats[group],
            set(letters[group]),
            set(held.get(group, ())),
        )
        for group in GROUPS
    ]
    problems = [*incidents, *(problem for record in records for problem in record.problems())]
    return Reconciliation(
        lines=tuple(record.line for record in records),
        held=sum(map(len, held.values())),
        slow=sum(len(tally.ran_out[group] - set(held.get(group, ()))) for group in GROUPS),
        problems=tuple(problems),
        waits=tally.median_waits(ORDERS),
    )


class _GroupRecords:
    """Both sides of one group."""

    def __init__(
        self,
        group: QueueGroup,
        accepted: dict[str, bool],
        handled: list[Handled],
        tally: JournalTally,
        stats: GroupStats,
        letters: set[str],
        held: set[str],
    ) -> None:
        self._group, self._tally, self._stats, self._letters, self._held = group, tally, stats, letters, held
        copies = [copy for copy in tally.projection.copies.values() if (copy.queue, copy.group) == group]
        self._accepted = set(accepted)
        self._doomed = {name for name, doomed in accepted.items() if doomed}
        self._dead = {copy.message_id for copy in copies if copy.state == "dead"}
        self._open = {copy.message_id for copy in copies if copy.state != "dead"}
        self._recorded = {entry.id for entry in handled}
        self._twice = {name for name, times in Counter(entry.id for entry in handled).items() if times > 1}
        self._lost = self._accepted - self._recorded - self._dead - self._open
        self._out_of_order = out_of_order(handled)

    @property
    def line(self) -> GroupBalance:
        return GroupBalance(
            queue=self._group.queue,
            group=self._group.group,
            published=len(self._accepted),
            done=len(self._recorded - self._dead - self._open),
            dead=len(self._dead),
            open=len(self._open),
            lost=len(self._lost),
            twice=len(self._twice),
            out_of_order=self._out_of_order + self._tally.disorder[self._group],
        )

    def problems(self) -> list[str]:
        """Return a sentence for each disagreement."""
        tally, group, line = self._tally, self._group, self.line
        doubtful: dict[str, Any] = {
            "accepted by a receipt but not in the journal": self._accepted - tally.arrived[group],
            "in the journal but in no publisher's record": tally.arrived[group] - self._accepted,
            "lost: accepted, and neither done, dead nor open": self._lost,
            "acked in the journal but in no worker's record": tally.acked[group] - self._recorded,
            "handled but neither acked nor open": self._recorded - tally.acked[group] - self._open,
            "both done and dead": tally.acked[group] & self._dead,
            "handled twice without having been held by the killed worker, nor a lease that ran out": (
                self._twice - self._held - tally.ran_out[group]
            ),
            "dead although handling them works": self._dead - self._doomed,
            "done although handling them cannot work": self._recorded & self._doomed,
            "dead in the journal but not among the dead letters, or the reverse": self._dead ^ self._letters,
        }
        sentences = [
            f"{group.queue}/{group.group}: {len(ids):,} {what} ({_some(ids)})" for what, ids in doubtful.items() if ids
        ]
        if line.out_of_order:
            sentences.append(f"{group.queue}/{group.group}: {line.out_of_order:,} out of order within their key")
        if line.published != line.done + line.dead + line.open:
            sentences.append(f"{group.queue}/{group.group}: {line.published:,} published is not done + dead + open")
        if (self._stats.depth, self._stats.dead) != (len(self._open), len(self._dead)):
            sentences.append(
                f"{group.queue}/{group.group}: stats say {self._stats.depth:,} open and {self._stats.dead:,} dead, "
                f"the journal {len(self._open):,} and {len(self._dead):,}"
            )
        return sentences


def out_of_order(handled: Iterable[Handled]) -> int:
    """Count first handlings of a message that came after a later one of its ordering key."""
    latest, seen, count = dict[str, int](), set[str](), 0
    for entry in sorted(handled, key=lambda entry: entry.at_ns):
        if entry.key is None or entry.id in seen:
            continue
        seen.add(entry.id)
        count += entry.turn < latest.get(entry.key, 0)
        latest[entry.key] = max(entry.turn, latest.get(entry.key, 0))
    return count


def _some(ids: Collection[str]) -> str:
    first = sorted(ids)[:2]
    return ", ".join(first) + (", ..." if len(ids) > len(first) else "")
