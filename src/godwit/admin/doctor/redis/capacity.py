"""How far a Redis server is from its limits: memory, append-only file, connections, speed, clock."""

from __future__ import annotations

from typing import Final

from godwit.admin.doctor.findings import Finding, note, ok, problem, warning
from godwit.admin.doctor.redis.facts import RedisFacts
from godwit.admin.doctor.units import rate_in_words, seconds_in_words, size

FULL_SHARE, HIGH_SHARE = 0.9, 0.75
OFTEN_SECONDS: Final = 120.0
SLOW_FORK_SECONDS: Final = 0.1
SLOW_TRIP, VERY_SLOW_TRIP = 0.005, 0.05
SLOW_WORST: Final = 0.25
SKEW, BAD_SKEW = 1.0, 15.0
BUSY_SHARE: Final = 0.8
SHORTEST_TIMEOUT: Final = 60
"""Godwit's blocking connections wait a few seconds at a time; a server that closes them sooner costs reconnects."""
FRAGMENTED: Final = 1.5
FRAGMENTED_BYTES: Final = 256 << 20


def judge(facts: RedisFacts) -> list[Finding]:
    """Return one finding for each of these checks."""
    return [memory(facts), fragmentation(facts), growth(facts), connections(facts), latency(facts), clock(facts)]


def memory(facts: RedisFacts) -> Finding:
    """Full memory refuses publishes; without a limit the kernel ends the server."""
    used, limit = facts.number("used_memory"), facts.number("maxmemory")
    total = facts.number("total_system_memory")
    if limit:
        share = used / limit
        found = f"{size(used)} of {size(limit)} ({share:.0%}), {size(max(0, limit - used))} head-room"
        why = "At the limit publishes are refused (QueueFull); what is there can still be drained."
        remedy = "Drain the queues, raise maxmemory, lower journal_max_bytes, or add workers."
        if share >= FULL_SHARE:
            return problem("memory", found, why, remedy)
        return warning("memory", found, why, remedy) if share >= HIGH_SHARE else ok("memory", found)
    share = used / total if total else 0.0
    found = f"{size(used)} of the machine's {size(total)}, no limit"
    if share >= HIGH_SHARE:
        return problem(
            "memory",
            found,
            "Without maxmemory the kernel ends the server when the machine runs out of memory.",
            "Drain the queues, and set maxmemory to about two thirds of the machine.",
        )
    return note(
        "memory",
        found,
        "A backlog can grow until the kernel ends the server; with maxmemory publishes are refused instead.",
        f"CONFIG SET maxmemory {max(1, total * 2 // 3 >> 20)}mb, with maxmemory-policy noeviction.",
    )


def fragmentation(facts: RedisFacts) -> Finding:
    """Memory that the allocator holds without using it."""
    value = facts.info.get("mem_fragmentation_ratio", 1.0)
    ratio = float(value) if isinstance(value, int | float) else 1.0
    resident = facts.number("used_memory_rss")
    found = f"{size(resident)} resident, {ratio:.2f} times what is used"
    if ratio > FRAGMENTED and resident - facts.number("used_memory") > FRAGMENTED_BYTES:
        return note(
            "fragmentation",
            found,
            "After a backlog the allocator keeps memory; it is used again, but a fork has to count on it.",
            "CONFIG SET activedefrag yes, or restart the server at a quiet time.",
        )
    return ok("fragmentation", found)


def growth(facts: RedisFacts) -> Finding:
    """How fast the append-only file grows and how often it is rewritten."""
    check, rate = "append-only file", facts.aof_bytes_per_second
    if not facts.number("aof_enabled"):
        return note(check, "off", "See persistence.")
    current, base = facts.number("aof_current_size"), facts.number("aof_base_size")
    found = f"{size(current)}, grows {rate_in_words(rate or 0.0)}"
    percentage = facts.setting_number("auto-aof-rewrite-percentage")
    if facts.settings and not percentage:
        return warning(
            check,
            f"{found}, never rewritten (auto-aof-rewrite-percentage 0)",
            "The file keeps every message ever carried, until the disk is full and the server refuses writes.",
            "CONFIG SET auto-aof-rewrite-percentage 100.",
        )
    every: float | None = None
    if rate:
        least = facts.setting_number("auto-aof-rewrite-min-size")
        every = max(base * percentage / 100, least - base) / rate
        found = f"{found}, rewritten about every {seconds_in_words(every)}"
    fork = facts.number("latest_fork_usec") / 1e6
    if fork > SLOW_FORK_SECONDS:
        return warning(
            check,
            f"{found}; the last fork for a rewrite stopped the server for {seconds_in_words(fork)}",
            "The server answers no client while it forks; the time grows with its memory.",
            "Keep backlogs and journals small, turn transparent huge pages off, or use smaller servers.",
        )
    if not rate or every is None:
        return ok(check, f"{found}; not being written")
    if every < OFTEN_SECONDS:
        return warning(
            check,
            found,
            "Every rewrite forks and writes all data anew; so often it costs more than the messages themselves.",
            f"CONFIG SET auto-aof-rewrite-min-size {max(64, int(rate * 600) >> 20)}mb (ten minutes at this rate).",
        )
    return ok(check, found)


def connections(facts: RedisFacts) -> Finding:
    """Clients that cannot connect cannot settle."""
    check, clients = "connections", facts.number("connected_clients")
    limit = facts.setting_number("maxclients") or facts.number("maxclients")
    refused, timeout = facts.number("rejected_connections"), facts.setting_number("timeout")
    found = f"{clients:,} of {limit:,}, {facts.number('blocked_clients'):,} of them waiting"
    if limit and clients >= limit * BUSY_SHARE:
        return warning(
            check,
            found,
            "At the limit new processes are refused.",
            "CONFIG SET maxclients higher, lower REDIS_MAX_CONNECTIONS, or look for clients that leak connections.",
        )
    if refused:
        return warning(
            check,
            f"{found}; {refused:,} refused since the start",
            "Clients were refused because all connections were taken.",
            "CONFIG SET maxclients higher, and look for clients that leak connections (CLIENT LIST).",
        )
    if 0 < timeout < SHORTEST_TIMEOUT:
        return warning(
            check,
            f"{found}; idle ones are closed after {timeout} s",
            "Quiet workers and producers have to connect again and again.",
            "CONFIG SET timeout 0 (tcp-keepalive finds dead clients).",
        )
    return ok(check, found)


def latency(facts: RedisFacts) -> Finding:
    """Every call is at least one round trip."""
    median, worst = facts.round_trip_median, facts.round_trip_worst
    found = f"{seconds_in_words(median)} a round trip, {seconds_in_words(worst)} the slowest"
    why = "Every publish, pull and settlement waits for at least one round trip."
    if median > VERY_SLOW_TRIP:
        return problem("latency", found, why, "Run workers and producers near the server: same zone, same network.")
    if median > SLOW_TRIP:
        return warning("latency", found, why, "Move the server nearer, or publish in batches, which share round trips.")
    if worst > SLOW_WORST:
        return warning(
            "latency",
            found,
            "Something stops the server now and then: a slow command, a fork, swapping, or a busy machine.",
            "Look at SLOWLOG GET and LATENCY DOCTOR, and for other users of the server (KEYS, large deletes).",
        )
    return ok("latency", found)


def clock(facts: RedisFacts) -> Finding:
    """Leases and delays follow the server's clock; due times come from the publishers'."""
    skew = facts.skew_seconds
    ahead = "ahead of" if skew > 0 else "behind"
    found = f"{seconds_in_words(abs(skew))} {ahead} this machine's"
    why = (
        "Leases follow the server's clock alone. Due and expiry times are made by publishers, so with clocks apart "
        "messages come or expire that much too early or too late."
    )
    remedy = "Let both machines follow NTP (chrony, systemd-timesyncd)."
    if abs(skew) > BAD_SKEW:
        return problem("clock", found, why, remedy)
    return warning("clock", found, why, remedy) if abs(skew) > SKEW else ok("clock", found)
