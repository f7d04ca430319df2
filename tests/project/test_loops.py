"""What is done, paused and done again, whatever happens to one turn of it, is a step of `core/periodic`."""

from __future__ import annotations

import ast
from typing import Final

from tests.project.specification import ROOT

SOURCE: Final = ROOT / "src" / "godwit"
OTHER_LOOPS: Final = {
    "brokers/rabbitmq/amqp/reconnect.py::_come_back": "ends when the connection is there",
    "brokers/rabbitmq/amqp/reconnect.py::send": "ends when the command is answered",
    "brokers/redis/client/client.py::_patiently": "ends when the call is answered",
    "brokers/redis/listen/wake_subscriber.py::_hear": "reads one reply after another, and pauses only to connect again",
    "cli/commands/worker.py::connected": "ends when the broker is there",
    "runtime/delivery/puller.py::run": "pulls without a pause while there is work",
    "runtime/delivery/settler.py::_settle_all": "ends when nothing waits to be settled",
    "runtime/effects/once.py::handle": "ends when the effect is free",
    "runtime/recorder/recorder.py::run": "is paced by what it reads, and woken by what this process writes",
}
"""Loops that pause after an error and are no periodic tasks, each with the reason."""


def test_a_loop_that_pauses_and_survives_errors_is_a_periodic_step() -> None:
    found = {
        f"{path.relative_to(SOURCE).as_posix()}::{function.name}"
        for path in SOURCE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.AsyncFunctionDef)
        for loop in ast.walk(function)
        if isinstance(loop, ast.While) and _pauses(loop) and any(isinstance(n, ast.Try) for n in ast.walk(loop))
    }
    assert found - {"core/periodic.py::repeat"} == OTHER_LOOPS.keys(), "use godwit.core.periodic.PeriodicTasks"


def _pauses(loop: ast.While) -> bool:
    calls = [ast.unparse(node) for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return any(call.startswith("asyncio.sleep(") and call != "asyncio.sleep(0)" for call in calls)
