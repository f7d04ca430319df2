"""The Flask example as its reader would run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.examples.web_processes import STARTED, serving
from tests.project.specification import ROOT
from tests.waiting import eventually

SHOP = ROOT / "examples" / "flask"


async def test_an_order_taken_by_the_web_server_is_charged_by_the_worker(tmp_path: Path) -> None:
    environment = {**os.environ, "GODWIT_URL": f"sqlite:///{tmp_path}/shop.db", "PYTHONWARNINGS": "error"}
    work = [sys.executable, "-m", "godwit", "worker", "shop:mq"]

    def web(port: int) -> list[str]:
        return [sys.executable, "-m", "flask", "--app", "shop", "run", "--port", str(port)]

    with serving(web, work, folder=SHOP, environment=environment) as customer:
        await eventually(
            lambda: customer.call("GET", "/orders/none") == (404, {"error": "no such order"}), within=STARTED
        )
        status, taken = customer.call("POST", "/orders", {"amount": 7})
        assert status == 202
        charged = {"status": "completed", "result": {"charged": 7}}
        await eventually(lambda: customer.call("GET", f"/orders/{taken['id']}") == (200, charged), within=STARTED)
