"""No task escapes the supervisor: places where tasks and threads are made are listed here, each with its reason."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.runtime.test_background_tasks import EVERYWHERE, ON_REDIS, SHORT_LIVED

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "godwit"
MAKERS: Final = frozenset({"create_task", "ensure_future", "TaskGroup", "Thread", "run_coroutine_threadsafe", "Timer"})
AWAITED: Final = "its maker waits for it and raises its error"
REPORTED: Final = "whatever it raises goes to background.failed"
CALLERS: Final = "whatever it raises goes to the callers that wait for it"
HANDLERS: Final = "handlers: what they raise is the answer of their messages"

ALLOWED: Final[dict[str, tuple[int, str]]] = {
    "core/background.py": (2, "the supervisor"),
    "runtime/delivery/dispatch.py": (1, HANDLERS),
    "runtime/delivery/puller.py": (1, HANDLERS),
    "runtime/delivery/settler.py": (1, REPORTED),
    "runtime/delivery/renewer.py": (1, REPORTED),
    "runtime/worker/watchdog.py": (1, "consumers: the watchdog starts them again and shows why"),
    "runtime/worker/shutdown.py": (2, AWAITED),
    "runtime/effects/once.py": (1, "a thread that cannot be stopped: a supervised task outlasts it"),
    "runtime/producer/batcher.py": (1, CALLERS),
    "runtime/sync_bridge.py": (5, CALLERS),
    "runtime/threads.py": (1, AWAITED),
    "telemetry/health.py": (1, AWAITED),
    "sqlite_writer/writer_thread.py": (1, REPORTED),
    "messagequeue/cleaner.py": (2, REPORTED),
    "brokers/redis/broker.py": (1, CALLERS),
    "brokers/redis/client/discovery.py": (2, CALLERS),
    "brokers/rabbitmq/amqp/reconnect.py": (2, AWAITED),
    "brokers/rabbitmq/pull_wait.py": (1, CALLERS),
    "store/postgres/schedule/campaigns.py": (1, AWAITED),
    "store/sqlite/schedule/campaigns.py": (2, AWAITED),
    "pipeline/spark/connections.py": (2, CALLERS),
    "pipeline/spark/jvm.py": (1, AWAITED),
    "cli/commands/worker.py": (3, AWAITED),
    "cli/demo/worker.py": (1, AWAITED),
    "testing.py": (1, AWAITED),
}


def makers(source: str) -> Iterator[int]:
    """Give the lines on which a task or a thread is made."""
    for node in ast.walk(ast.parse(source)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in MAKERS:
            yield getattr(node, "lineno", 0)


def test_tasks_and_threads_are_made_by_the_supervisor_or_listed_with_a_reason() -> None:
    found = Counter(
        {
            str(path.relative_to(SOURCE)): number
            for path in SOURCE.rglob("*.py")
            if (number := len(list(makers(path.read_text()))))
        }
    )
    assert found == {place: number for place, (number, _) in ALLOWED.items()}


def test_a_task_made_in_any_way_is_found() -> None:
    ways = "asyncio.create_task(x)\nloop = get(); loop.create_task(x)\nmake = ensure_future\nthreading.Thread(target=x)"
    assert len(list(makers(ways))) == 4


def test_every_supervised_task_is_made_to_fail_by_a_test() -> None:
    kept = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keep":
                kept |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant) and type(one.value) is str}
    assert kept <= EVERYWHERE | ON_REDIS | SHORT_LIVED.keys(), (
        "let the walk over all background tasks know the new ones"
    )
