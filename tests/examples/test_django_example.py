"""The Django example as its reader would run it: `manage.py migrate`, `runserver` and `godwit worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from godwit import FailureKind, LetterFilter, Message, MessageQueueManager
from godwit.core.names import QueueName
from tests.examples.web_processes import STARTED, serving
from tests.project.specification import ROOT
from tests.waiting import eventually

SHOP = ROOT / "examples" / "django"
MANAGE = [sys.executable, "manage.py"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "SHOP_DB": str(tmp_path / "shop.db"), "PYTHONWARNINGS": "error"}


async def test_an_order_and_its_task_are_kept_and_done_or_neither_is(environment: dict[str, str]) -> None:
    subprocess.run([*MANAGE, "migrate", "-v", "0"], cwd=SHOP, env=environment, check=True, timeout=60)  # noqa: ASYNC221

    def web(port: int) -> list[str]:
        return [*MANAGE, "runserver", "--noreload", f"127.0.0.1:{port}"]

    work = [*MANAGE, "godwit", "worker", "--processes", "2"]
    with serving(web, work, folder=SHOP, environment=environment) as customer:
        await eventually(lambda: customer.call("GET", "/")[0] == 404, within=STARTED)
        assert customer.call("POST", "/orders", {"article": "tea", "amount": -1})[0] == 500
        status, taken = customer.call("POST", "/orders", {"article": "tea", "amount": 7})
        assert status == 202
        done = {"charged": True, "receipt": f"order {taken['id']}: tea, 7 euros"}
        await eventually(lambda: customer.call("GET", f"/orders/{taken['id']}") == (200, done), within=STARTED)
        result = {"status": "SUCCESSFUL", "value": done["receipt"]}
        await eventually(lambda: customer.call("GET", f"/receipts/{taken['receipt']}") == (200, result), within=STARTED)
        await _refuses_what_is_no_task(f"sqlite:///{environment['SHOP_DB']}")
    command = [*MANAGE, "godwit", "queues", "--json"]
    shown = subprocess.run(command, cwd=SHOP, env=environment, check=True, capture_output=True, text=True)  # noqa: ASYNC221
    dead = {
        (queue["name"], group["name"]): group["dead"] for queue in json.loads(shown.stdout) for group in queue["groups"]
    }
    assert dead == {("default", "tasks"): 0, ("orders", "billing"): 0, ("receipts", "tasks"): 4}


async def _refuses_what_is_no_task(url: str) -> None:
    """Messages that another program has put into a queue of tasks are dead letters at once, whatever they name."""
    nothing: dict[str, object] = {"args": [], "kwargs": {}}
    hostile = [("os.system", nothing), ("shop.tasks.gone", nothing), ("x", nothing), ("shop.tasks.write_receipt", [1])]
    messages = [Message(queue="receipts", type=path, payload=payload) for path, payload in hostile]
    async with MessageQueueManager.from_url(url) as mq:
        await mq.enqueue_many(messages)

        async def all_are_dead() -> bool:
            return await mq.dead_letters.count(LetterFilter(name=QueueName("receipts"))) == len(hostile)

        await eventually(all_are_dead, within=STARTED)
        found = [letter async for letter in mq.dead_letters.letters(LetterFilter(name=QueueName("receipts")))]
    assert {letter.kind for letter in found} == {FailureKind.PERMANENT}
