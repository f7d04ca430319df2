"""The Django example as its reader would run it: `manage.py migrate`, `runserver` and `godwit worker`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [*MANAGE, "godwit", "queues", "--json"]
    shown = subprocess.run(command, cwd=SHOP, env=environment, check=True, capture_output=True, text=True)  # noqa: ASYNC221
    assert shown.stdout.count('"dead": 0') + shown.stdout.count('"dead":0') == 3, shown.stdout
