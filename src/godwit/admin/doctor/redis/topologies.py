"""Whether several Redis servers serve as one: slots of a cluster, sentinels of a master, a slot with all the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from godwit.admin.doctor.findings import RANK, Finding, Severity, note, ok, problem, warning
from godwit.brokers.contract import ShardEnds
from godwit.brokers.redis.client.topology import SLOTS, slot_of
from godwit.brokers.redis.layout import keys
from godwit.core.journal.shards import shard_parts

ENOUGH_SENTINELS: Final = 3
HOT_SHARE: Final = 0.6
"""A slot with so much of all work keeps the other masters idle."""
FEW_ROWS: Final = 1_000
"""Less work than this says nothing about where it goes."""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of a cluster say of it: masters by slots, nodes that are not well."""

    masters: Mapping[str, int]
    """How many slots each master has, by its place."""
    bare: Sequence[str] = ()
    """Masters without a replica."""
    failing: Sequence[str] = ()
    moving: int = 0
    """Slots on their way from one node to another."""


class SentinelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What sentinels say of a master, and who of them says it."""

    answered: int
    silent: Sequence[str]
    """Those of the URL that do not answer."""
    known: int
    """Sentinels that know of each other, the one asked included."""
    quorum: int
    usable: bool
    """Whether enough of them reach each other to agree on a failover (SENTINEL CKQUORUM)."""
    why_not: str = ""


def read_nodes(text: str) -> ClusterFacts:
    """Read CLUSTER NODES."""
    masters: dict[str, int] = {}
    ids: dict[str, str] = {}
    followed: set[str] = set()
    failing: list[str] = []
    moving = 0
    for line in text.splitlines():
        name, place, flags, master, *_rest = line.split(" ")
        place, words = place.partition("@")[0], flags.split(",")
        ranges = [word for word in line.split(" ")[8:] if word]
        if {"fail", "fail?"} & set(words):
            failing.append(place)
        if "master" in words:
            ids[name] = place
            held = [word.partition("-") for word in ranges if not word.startswith("[")]
            moving += sum(">-" in word for word in ranges)
            masters[place] = sum(int(last or first) - int(first) + 1 for first, _, last in held)
        elif not {"fail", "fail?"} & set(words):
            followed.add(master)
    bare = [ids[name] for name in ids if name not in followed and masters[ids[name]]]
    serving = {place: count for place, count in masters.items() if place not in failing}
    return ClusterFacts(masters=serving, bare=bare, failing=failing, moving=moving)


def slots(facts: ClusterFacts) -> Finding:
    """Queues whose slot no server has are out of reach."""
    covered = sum(facts.masters.values())
    shares = ", ".join(f"{place} {count:,}" for place, count in facts.masters.items())
    if covered < SLOTS:
        failing = f"; not answering: {', '.join(facts.failing)}" if facts.failing else ""
        return problem(
            "slots",
            f"{SLOTS - covered:,} of {SLOTS:,} slots are uncovered ({shares}){failing}",
            "Queues and partitions whose slot no master has cannot be published to or worked on.",
            "Start the missing nodes, or give their slots to others: redis-cli --cluster fix.",
        )
    if facts.failing:
        return warning(
            "slots",
            f"all covered, but {', '.join(facts.failing)} do not answer",
            "The next failure may leave slots uncovered.",
            "Start these nodes, or forget them: CLUSTER FORGET.",
        )
    if facts.moving:
        return note(
            "slots",
            f"all covered, {facts.moving:,} on their way",
            "A queue whose slot is on its way answers when it has arrived; calls wait for up to 10 s.",
        )
    return ok("slots", f"all {SLOTS:,} covered ({shares})")


def cluster_replicas(facts: ClusterFacts) -> Finding:
    """Look for masters without a replica: each is a single server."""
    if facts.bare:
        return note(
            "replicas of masters",
            f"none of {', '.join(facts.bare)}",
            "When such a master fails, its queues stand still until it is back.",
            "Add replicas (CLUSTER REPLICATE), and min_replicas where nothing confirmed may be lost.",
        )
    return ok("replicas of masters", f"at least one for each of {len(facts.masters)} masters")


def sentinels(facts: SentinelFacts) -> Finding:
    """Sentinels that cannot agree do not fail over."""
    found = f"{facts.known} know of each other, {facts.quorum} have to agree"
    if not facts.usable:
        return problem(
            "sentinels",
            f"{found}; no quorum: {facts.why_not}",
            "When the master fails no replica takes its place.",
            "Start the missing sentinels (SENTINEL CKQUORUM says when it is enough), or lower the quorum.",
        )
    if facts.silent:
        return warning(
            "sentinels",
            f"{found}; {', '.join(facts.silent)} of the URL do not answer",
            "With one more gone there may be no failover.",
            "Start them, or name others in the URL.",
        )
    if facts.known < ENOUGH_SENTINELS:
        return warning(
            "sentinels",
            found,
            "Fewer than three cannot lose one and still agree by majority.",
            "Run three sentinels on three machines.",
        )
    return ok("sentinels", found)


def hot_slot(
    before: Mapping[str, ShardEnds], after: Mapping[str, ShardEnds], *, masters: int, place_of: Mapping[int, str]
) -> Finding:
    """Say whether one slot has most of the work; `place_of` names the masters of slots."""
    grown = {shard: ends.last_seq - before[shard].last_seq for shard, ends in after.items() if shard in before}
    watched = sum(grown.values()) >= FEW_ROWS
    work = grown if watched else {shard: ends.last_seq for shard, ends in after.items()}
    total = sum(work.values())
    when = "now" if watched else "since the queues were created"
    if masters < 2 or total < FEW_ROWS:  # noqa: PLR2004
        return ok("hot slot", "too little work to tell" if masters > 1 else "one master has all slots")
    shard = max(work, key=work.__getitem__)
    queue, partition = shard_parts(shard) or (shard, 0)
    slot, share = slot_of(keys.part(queue, "meta", partition)), work[shard] / total
    found = f"slot {slot} ({shard} on {place_of.get(slot, 'no master')}) has {share:.0%} of all transitions {when}"
    if share >= HOT_SHARE:
        return warning(
            "hot slot",
            found,
            f"One master works while the other {masters - 1} wait: a queue's partition is in one slot.",
            f"Give queue {queue!r} more partitions (partitions = {2 * masters}), or spread the work over queues.",
        )
    return ok("hot slot", found)


def merged(findings: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Return one finding for each check of several servers: the worst, with the server's name when it is not fine."""
    by_check: dict[str, list[tuple[str, Finding]]] = {}
    for place, found in findings.items():
        for finding in found:
            by_check.setdefault(finding.check, []).append((place, finding))
    merged = []
    for found_at in by_check.values():
        place, finding = max(found_at, key=lambda one: RANK[one[1].severity])
        same = sum(one.severity is finding.severity for _, one in found_at)
        where = f"{place}: " if finding.severity is not Severity.OK else ""
        more = f" ({same} of {len(found_at)} servers)" if len(found_at) > 1 else ""
        merged.append(msgspec.structs.replace(finding, found=f"{where}{finding.found}{more}"))
    return merged


def lag(info: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Return the replica that is furthest behind: its place, bytes and seconds; None when there is none."""
    replicas = [value for name, value in info.items() if name.startswith("slave") and isinstance(value, dict)]
    offset = int(info.get("master_repl_offset", 0))
    behind = [
        (
            f"{replica.get('ip')}:{replica.get('port')}",
            offset - int(replica.get("offset", 0)),
            int(replica.get("lag", 0)),
        )
        for replica in replicas
    ]
    return max(behind, key=lambda one: (one[2], one[1]), default=None)
