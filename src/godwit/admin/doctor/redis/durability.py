"""Whether a Redis server keeps what it has confirmed: version, role, persistence, eviction."""

from __future__ import annotations

from typing import Final

from godwit.admin.doctor.findings import Finding, note, ok, problem, warning
from godwit.admin.doctor.redis.facts import RedisFacts
from godwit.admin.doctor.redis.topologies import lag
from godwit.admin.doctor.units import size

OLDEST: Final = (6, 2)
USUAL: Final = (7, 0)
LAGGING_BYTES: Final = 1 << 20
LAGGING_SECONDS: Final = 5


def judge(facts: RedisFacts) -> list[Finding]:
    """Return one finding for each of these checks."""
    return [version(facts), role(facts), persistence(facts), fsync(facts), eviction(facts), replicas(facts)]


def version(facts: RedisFacts) -> Finding:
    """Old servers lack commands the scripts use."""
    found = f"{facts.program} {facts.shown_version}"
    if facts.version < OLDEST:
        return problem(
            "version",
            found,
            "The scripts use commands that came with 6.2; Godwit refuses older servers.",
            "Upgrade to Redis 7 or Valkey.",
        )
    if facts.version < USUAL:
        return note(
            "version",
            found,
            "Godwit is tested on 7.0 and newer; before 7.0 the append-only file is one file, whose rewrite costs more.",
            "Upgrade to Redis 7 or Valkey when you can.",
        )
    return ok("version", found)


def role(facts: RedisFacts) -> Finding:
    """Refuse replicas: they take no writes."""
    if facts.info.get("role") in {"slave", "replica"}:
        master = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
        return problem(
            "role",
            f"a replica of {master}",
            "A replica refuses writes, and every pull and settlement is one.",
            f"Connect to {master}, or to Sentinel, which knows the present master.",
        )
    mode = str(facts.info.get("redis_mode") or facts.info.get("server_mode") or "standalone")
    return ok("role", f"master, {mode}")


def persistence(facts: RedisFacts) -> Finding:
    """Without the append-only file a restart loses what was confirmed."""
    check = "persistence"
    if facts.info.get("loading"):
        return warning(
            check, "the server is loading its data", "Until it is done every call is refused.", "Wait and look again."
        )
    if not facts.number("aof_enabled"):
        saves = facts.setting("save")
        kept = f"snapshots only (save {saves})" if saves else "nothing is written to disk"
        return problem(
            check,
            f"appendonly no: {kept}",
            "When the server stops, every message accepted since the last snapshot is lost, although its publish "
            "was confirmed.",
            "CONFIG SET appendonly yes, and the same line in redis.conf (CONFIG REWRITE).",
        )
    if facts.info.get("aof_last_write_status", "ok") != "ok":
        return problem(
            check,
            "the last write to the append-only file failed",
            "The server refuses writes until it can write again; usually the disk is full or broken.",
            "Free space on the server's disk and read its log.",
        )
    if facts.info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return warning(
            check,
            "the last rewrite of the append-only file failed",
            "The file goes on growing, and a restart has to read all of it.",
            "Give the server memory for a fork (vm.overcommit_memory = 1) and room on its disk, then BGREWRITEAOF.",
        )
    return ok(check, "append-only file on")


def fsync(facts: RedisFacts) -> Finding:
    """How much a power cut may cost."""
    check, value = "fsync", facts.setting("appendfsync")
    if not facts.number("aof_enabled"):
        return note(check, "nothing to sync", "There is no append-only file.")
    if value is None:
        return note(
            check,
            "cannot be seen: CONFIG GET is refused",
            "Whether a power cut costs messages depends on appendfsync.",
            "Ask the server's operator for appendfsync everysec or always.",
        )
    if value == "no":
        return warning(
            check,
            "appendfsync no",
            "The kernel decides when to write: a power cut may lose the last half minute of confirmed messages.",
            "CONFIG SET appendfsync everysec (at most about a second), or always (nothing).",
        )
    if facts.setting("no-appendfsync-on-rewrite") == "yes":
        return warning(
            check,
            f"appendfsync {value}, but no-appendfsync-on-rewrite yes",
            "While the file is rewritten nothing is synced, so a power cut then loses as much as appendfsync no.",
            "CONFIG SET no-appendfsync-on-rewrite no.",
        )
    if value == "always":
        return ok(check, "appendfsync always", "Nothing confirmed is lost, not even by a power cut.")
    return ok(
        check,
        "appendfsync everysec",
        "A crash of the server loses nothing confirmed; a power cut of its machine at most about the last second.",
    )


def eviction(facts: RedisFacts) -> Finding:
    """Refuse eviction: it deletes messages."""
    check = "eviction"
    policy = facts.setting("maxmemory-policy") or str(facts.info.get("maxmemory_policy", ""))
    if not policy:
        return note(check, "cannot be seen", "A server that evicts keys deletes messages without a trace.")
    if policy == "noeviction":
        return ok(check, "noeviction", "A full server refuses publishes; draining still works.")
    remedy = "CONFIG SET maxmemory-policy noeviction; give caches a server of their own."
    if facts.number("maxmemory"):
        return problem(
            check,
            f"{policy}; {facts.number('evicted_keys'):,} keys evicted since the start",
            "When memory is full the server deletes keys: queues, leases and dead letters vanish without a trace.",
            remedy,
        )
    return warning(
        check,
        f"{policy}, without a memory limit",
        "It does nothing yet; as soon as maxmemory is set the server deletes queues when it is full.",
        remedy,
    )


def replicas(facts: RedisFacts) -> Finding:
    """Warn when no replica keeps a second copy on another disk."""
    count = facts.number("connected_slaves")
    if not count:
        return note(
            "replicas",
            "none",
            "Messages live on one machine: when its disk is lost, so are they.",
            "Add a replica (and Sentinel for a switch by itself), or accept it for what you carry.",
        )
    behind = lag(facts.info)
    if behind is not None and (behind[1] > LAGGING_BYTES or behind[2] > LAGGING_SECONDS):
        place, offset, seconds = behind
        return warning(
            "replicas",
            f"{count}; {place} is {size(offset)} and {seconds} s behind",
            "A switch to it loses what it lacks, and publishes with min_replicas wait for it or fail.",
            "Look at the replica's load, disk and network, and at its log.",
        )
    return ok(
        "replicas",
        str(count),
        "Replication is asynchronous: a switch to a replica may lose the last moments before it; min_replicas waits.",
    )
