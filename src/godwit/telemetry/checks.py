"""Health checks that most installations need, made from what they look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from godwit.core import background
from godwit.core.clock import Clock, milliseconds
from godwit.telemetry.health import Check, HealthCheck

FAILED = "failed"


def answers(name: str, probe: Callable[[], Awaitable[object]]) -> HealthCheck:
    """Be content when `probe` returns: for a broker, or a database when there is one."""

    async def check() -> Check:
        await probe()
        return Check(name, healthy=True, detail="answers")

    return check


def background_tasks() -> HealthCheck:
    """Be content while no background task of this process has failed lately."""

    async def check() -> Check:
        tasks = background.report()
        unwell = sorted({(task.name, task.trouble) for task in tasks if not task.is_well})
        detail = f"{len(tasks)} run"
        if unwell:
            detail += f"; failed lately: {', '.join(name for name, _ in unwell)} ({unwell[0][1]})"
        return Check("background", healthy=not unwell, detail=detail)

    return check


def consumers(states: Callable[[], Awaitable[Mapping[str, str]]], *, name: str = "consumers") -> HealthCheck:
    """Be content when no consumer instance is `failed`; `states` gives active, inactive or failed by instance."""

    async def check() -> Check:
        found = await states()
        failed = sorted(instance for instance, state in found.items() if state == FAILED)
        detail = f"{len(found) - len(failed)} of {len(found)} well"
        return Check(
            name, healthy=not failed, detail=detail + (f"; failed: {', '.join(failed[:10])}" if failed else "")
        )

    return check


def scheduler(
    last_tick_ms: Callable[[], int | None], *, at_most: timedelta, clock: Clock, name: str = "scheduler"
) -> HealthCheck:
    """Be content when the scheduler looked for due schedules within `at_most`."""

    async def check() -> Check:
        tick_ms = last_tick_ms()
        if tick_ms is None:
            return Check(name, healthy=False, detail="has not ticked yet")
        age_ms = clock.now_ms() - tick_ms
        return Check(name, healthy=age_ms <= milliseconds(at_most), detail=f"last tick {age_ms / 1000:g} s ago")

    return check
