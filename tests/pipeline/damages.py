"""Damages: what can happen to a broker or its journal, and by which finding or unknown span an audit must show it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from godwit.core.journal.projection import CopyState, Projection
from godwit.core.journal.vocabulary import Event
from tests.pipeline.histories import Row
from tests.pipeline.lives import ORDERED, Life, Seen

ARRIVALS: Final = frozenset({"enqueued", "scheduled", "replayed"})
ACTS: Final = 3
STEPS: Final = 80
Copy = tuple[str, str, int]
"""Shard, group and publish_seq."""


class Expected(NamedTuple):
    """A finding of one of these kinds about a copy, or (no copy) an unknown span of the shard."""

    shard: str
    kinds: frozenset[str]
    copy: Copy | None


class Case:
    """One life in acts, as the audit sees it; damages edit it."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.random = random.Random(seed * 7 + 1)
        self.rows: dict[str, list[Row]] = {}
        self.cuts: dict[str, list[int]] = {}
        self.copies: dict[str, list[CopyState]] = {}
        self.unread: dict[str, list[tuple[int, int]]] = {}
        self.past: dict[str, list[Row]] = {}
        """Rows that were read before the broker lost them."""
        self.gone: set[str] = set()
        self.expected: list[Expected] = []
        self.damage = ""

    async def play(self) -> None:
        life = Life(self.seed)
        await life.begin()
        ends: list[Seen] = []
        for act in range(ACTS):
            await life.go_on(STEPS)
            if act == ACTS - 1:
                await life.end()
            ends.append(await life.seen())
        self.rows, self.copies = ends[-1].rows, ends[-1].copies
        self.cuts = {shard: [len(seen.rows.get(shard, ())) for seen in ends] for shard in self.rows}

    def acts(self) -> Iterator[list[Row]]:
        """Yield the rows of each act that a reader gets."""
        for act in range(ACTS):
            yield [
                {**row, "shard": self.shard(shard)}
                for shard in sorted(self.rows)
                for row in self._act(shard, act)
                if not any(first <= row["seq"] <= last for first, last in self.unread.get(shard, ()))
            ]

    def _act(self, shard: str, act: int) -> Sequence[Row]:
        if shard in self.past:
            return self._before_backup(shard, act)
        first, last = ([0, *self.cuts[shard]])[act], self.cuts[shard][act]
        return self.rows[shard][first:last]

    def _before_backup(self, shard: str, act: int) -> Sequence[Row]:
        """Return rows that the broker lost later, and in the last act all that it has then."""
        if act == ACTS - 1:
            return self.rows[shard]
        first, last = ([0, *self.cuts[shard]])[act], self.cuts[shard][act]
        return self.past[shard][first:last]

    def shard(self, shard: str) -> str:
        """Return the name of a shard among those of all cases."""
        return f"{self.name}.{shard}"

    def busiest(self) -> str:
        return max(self.rows, key=lambda shard: len(self.rows[shard]))

    def insert(self, shard: str, index: int, row: Row) -> None:
        """Write one more row into a journal."""
        self.rows[shard].insert(index, {**row, "at": self.rows[shard][index - 1]["at"]})
        self.cuts[shard] = [cut + (cut >= index) for cut in self.cuts[shard]]
        self._renumber(shard)

    def remove(self, shard: str, gone: set[int]) -> None:
        """Take rows out of a journal as if they had never been written."""
        cuts = [cut - sum(index < cut for index in gone) for cut in self.cuts[shard]]
        self.rows[shard] = [row for index, row in enumerate(self.rows[shard]) if index not in gone]
        self.cuts[shard] = cuts
        self._renumber(shard)

    def _renumber(self, shard: str) -> None:
        self.rows[shard] = [{**row, "seq": seq} for seq, row in enumerate(self.rows[shard], 1)]

    def expect(self, shard: str, *kinds: str, copy: Copy | None = None) -> None:
        self.expected.append(Expected(shard, frozenset(kinds), copy))

    def steps(self, shard: str) -> dict[Copy, list[int]]:
        """Return where the rows of each copy are."""
        found: dict[Copy, list[int]] = {}
        for index, row in enumerate(self.rows[shard]):
            if row.get("publish_seq") is not None and row["event"] not in {"dropped", "duplicate"}:
                found.setdefault((shard, row["group"], row["publish_seq"]), []).append(index)
        return found

    def open_at(self, shard: str, index: int) -> dict[Copy, CopyState]:
        """Return the copies that are open before a row."""
        projection = Projection()
        for row in self.rows[shard][:index]:
            projection.apply({**row, "event": Event(row["event"])})
        return {(shard, copy.group, copy.publish_seq): copy for copy in projection.copies.values()}

    def choose(self, among: Sequence[Any]) -> Any:
        """Return one of these, or None when there are none."""
        return self.random.choice(list(among)) if among else None


def healthy(_case: Case) -> bool:
    return True


def trimmed_beginning(case: Case) -> bool:
    shard = case.busiest()
    case.unread[shard] = [(1, case.random.randint(1, max(1, case.cuts[shard][0] - 1)))]
    return True


def gap(case: Case) -> bool:
    shard = case.busiest()
    first = case.random.randint(2, len(case.rows[shard]) - 1)
    case.unread[shard] = [(first, case.random.randint(first, len(case.rows[shard]) - 1))]
    return True


def two_gaps(case: Case) -> bool:
    shard = case.busiest()
    places = sorted(case.random.sample(range(2, len(case.rows[shard])), 4))
    case.unread[shard] = [(places[0], places[1] - 1), (places[2], places[3] - 1)]
    return True


HEALTHY: Final[tuple[Callable[[Case], bool], ...]] = (healthy, healthy, trimmed_beginning, gap, two_gaps)


def drop_a_copy(case: Case) -> bool:
    """The broker loses a copy that is open."""
    shard = case.busiest()
    gone: CopyState | None = case.choose(case.copies[shard])
    if gone is None:
        return False
    case.copies[shard] = [copy for copy in case.copies[shard] if copy != gone]
    case.expect(shard, "lost", copy=(shard, gone.group, gone.publish_seq))
    return True


def forget_an_end(case: Case) -> bool:
    """A copy is gone without the row of its end."""
    shard = case.busiest()
    ended = [(copy, at) for copy, at in case.steps(shard).items() if case.rows[shard][at[-1]]["event"] == "acked"]
    chosen = case.choose(ended)
    if chosen is None:
        return False
    copy, at = chosen
    case.remove(shard, {at[-1]})
    if copy not in case.open_at(shard, len(case.rows[shard])):
        return False  # its group is gone too
    case.expect(shard, "lost", "stuck", copy=copy)
    return True


def another_in_its_place(case: Case) -> bool:
    """The broker holds another message under the number of a copy that is open."""
    shard = case.busiest()
    gone: CopyState | None = case.choose(case.copies[shard])
    if gone is None:
        return False
    other = msgspec.structs.replace(gone, message_id="another")
    case.copies[shard] = [other if copy == gone else copy for copy in case.copies[shard]]
    case.expect(shard, "lost", copy=(shard, gone.group, gone.publish_seq))
    return True


def end_twice(case: Case) -> bool:
    """A row of an end is written twice, the second time perhaps much later."""
    shard = case.busiest()
    acked = [index for index, row in enumerate(case.rows[shard]) if row["event"] == "acked"]
    chosen = case.choose(acked)
    if chosen is None:
        return False
    row = case.rows[shard][chosen]
    case.insert(shard, case.random.randint(chosen + 1, len(case.rows[shard])), row)
    case.expect(shard, "duplicated", copy=(shard, row["group"], row["publish_seq"]))
    return True


def lease_twice(case: Case) -> bool:
    """A copy is delivered to a second worker while the first has it."""
    shard = case.busiest()
    delivered = [index for index, row in enumerate(case.rows[shard]) if row["event"] == "delivered"]
    chosen = case.choose(delivered)
    if chosen is None:
        return False
    row = case.rows[shard][chosen]
    case.insert(shard, chosen + 1, {**row, "delivery_id": "another"})
    case.expect(shard, "duplicated", copy=(shard, row["group"], row["publish_seq"]))
    return True


def rise_again(case: Case) -> bool:
    """A copy that ended, by a purge or the end of its group perhaps, is delivered again."""
    shard = case.busiest()
    delivered = [row for row in case.rows[shard] if row["event"] == "delivered"]
    at = case.random.randint(1, len(case.rows[shard]))
    there = case.open_at(shard, at)
    born = {copy for copy, steps in case.steps(shard).items() if steps[0] < at}
    chosen = case.choose(sorted(born - there.keys()))
    if chosen is None or not delivered:
        return False
    _, group, number = chosen
    case.insert(shard, at, {**delivered[0], "group": group, "publish_seq": number, "message_id": "risen"})
    case.expect(shard, "duplicated", copy=chosen)
    return True


def rise_in_the_broker(case: Case) -> bool:
    """The broker holds a copy that ended."""
    shard = case.busiest()
    there = case.open_at(shard, len(case.rows[shard]))
    chosen = case.choose(sorted(case.steps(shard).keys() - there.keys()))
    if chosen is None:
        return False
    _, group, number = chosen
    risen = CopyState(
        queue=shard.partition("#")[0], group=group, publish_seq=number, message_id="risen", state="waiting"
    )
    case.copies[shard].append(risen)
    case.expect(shard, "duplicated", copy=chosen)
    return True


def swap_two_of_a_key(case: Case) -> bool:
    """Two messages of a key are delivered in the wrong order."""
    shard = case.busiest()
    rows, found = case.rows[shard], []
    kept = {row["group"]: row["seq"] for row in rows if row["event"] == "group_created"}
    first: dict[str, list[int]] = {}
    for row in rows:
        if row["event"] == "delivered" and row["group"] == ORDERED and row.get("ordering_key"):
            delivered = first.setdefault(row["ordering_key"], [])
            if row["publish_seq"] not in delivered:
                delivered.append(row["publish_seq"])
    for delivered in first.values():
        found += [(ORDERED, early, late) for early, late in pairwise(delivered) if early < late]
    chosen = case.choose(found)
    if chosen is None or ORDERED not in kept:
        return False
    group, number, other_number = chosen
    names = {row["publish_seq"]: row["message_id"] for row in rows if row.get("publish_seq") in chosen[1:]}
    swap = {number: other_number, other_number: number}
    case.rows[shard] = [
        {**row, "publish_seq": swap[row["publish_seq"]], "message_id": names[swap[row["publish_seq"]]]}
        if row["group"] == group and row.get("publish_seq") in swap and row["event"] not in ARRIVALS
        else row
        for row in rows
    ]
    case.expect(shard, "out_of_order", "duplicated", copy=(shard, group, number))
    return True


def stick_in_a_lease(case: Case) -> bool:
    """A lease that ended is never taken back."""
    shard = case.busiest()
    rows, steps = case.rows[shard], case.steps(shard)
    back = [copy for copy, at in steps.items() if rows[at[-1]]["event"] == "lease_expired"]
    there = case.open_at(shard, len(rows))
    chosen = case.choose([copy for copy in back if copy in there and steps[copy][-1] >= case.cuts[shard][0]])
    if chosen is None:
        return False
    case.remove(shard, {steps[chosen][-1]})
    case.expect(shard, "stuck", copy=chosen)
    return True


def lose_a_shard(case: Case) -> bool:
    """The broker has lost one queue with its journal."""
    shard = case.busiest()
    if _removed(case.rows[shard]):
        return False
    case.gone.add(shard)
    case.expect(shard)
    return True


def lose_everything(case: Case) -> bool:
    """The broker has lost all of its data."""
    case.gone.update(case.rows)
    for shard in case.rows:
        if not _removed(case.rows[shard]):
            case.expect(shard)
    return bool(case.expected)


def _removed(rows: Sequence[Row]) -> bool:
    last = [row["event"] for row in rows if row["event"] in {"queue_created", "queue_removed"}]
    return bool(last) and last[-1] == "queue_removed"


def begin_anew(case: Case) -> bool:
    """The broker lost everything and begins again: new messages take the places of lost ones, in another epoch."""
    shard = case.busiest()
    first = case.cuts[shard][ACTS - 2]
    if _removed(case.rows[shard][:first]):
        return False
    tail = [{**row, "epoch": f"{row['epoch']}-anew"} for row in case.rows[shard]]
    case.rows[shard] = [*case.rows[shard][:first], *tail]
    case.cuts[shard] = [*case.cuts[shard][:-1], len(case.rows[shard])]
    case.expect(shard)
    return True


def restore_a_backup(case: Case) -> bool:
    """The broker goes back to an earlier state and goes on from there, with other rows under the same numbers."""
    shard = case.busiest()
    first = case.cuts[shard][ACTS - 2]
    kept = case.random.randint(first // 2, first - 1)
    there = case.open_at(shard, kept)
    chosen = case.choose(sorted(there))
    if chosen is None or _removed(case.rows[shard][:first]):
        return False
    case.past[shard], case.rows[shard] = case.rows[shard][:first], case.rows[shard][:kept]
    highest = max(row["publish_seq"] for row in case.rows[shard] if row.get("publish_seq") is not None)
    arrival = next(row for row in case.rows[shard] if row["event"] == "enqueued")
    born: list[CopyState] = []
    for number in range(highest + 1, highest + 1 + case.random.randint(0, first)):
        name = f"new {number}"
        changes = {"group": chosen[1], "publish_seq": number, "message_id": name, "ordering_key": None}
        case.rows[shard].append({**case.rows[shard][-1], **arrival, **changes, "seq": len(case.rows[shard]) + 1})
        state = msgspec.structs.replace(there[chosen], publish_seq=number, message_id=name)
        born.append(state)
    case.copies[shard] = [*there.values(), *born]
    case.unread.pop(shard, None)
    case.expect(shard)
    return True


DAMAGES: Final[tuple[Callable[[Case], bool], ...]] = (
    drop_a_copy, forget_an_end, another_in_its_place, end_twice, lease_twice, rise_again, rise_in_the_broker,
    swap_two_of_a_key, stick_in_a_lease, lose_a_shard, lose_everything, begin_anew, restore_a_backup,
)  # fmt: skip
