"""The FastAPI example as its reader would run it: a web server, a worker, and a customer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path

from godwit.brokers.urls import connect
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.vocabulary import Event
from tests.project.specification import ROOT
from tests.waiting import eventually

SHOP = ROOT / "examples" / "web"
STARTED = timedelta(seconds=60)
JSON = {"Content-Type": "application/json"}


async def test_an_order_taken_by_the_web_server_is_charged_by_the_worker(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    environment = {**os.environ, "GODWIT_URL": url}
    log = tmp_path / "server.log"
    serve = [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0"]
    work = [sys.executable, "-m", "godwit", "worker", "shop:mq"]
    with log.open("wb") as written:
        server = subprocess.Popen(serve, cwd=SHOP, env=environment, stderr=written)  # noqa: ASYNC220
        worker = subprocess.Popen(work, cwd=SHOP, env=environment)  # noqa: ASYNC220
        try:
            await eventually(lambda: _port(log) is not None, within=STARTED)
            customer = HTTPConnection("127.0.0.1", _port(log) or 0, timeout=30)
            customer.request("POST", "/orders", '{"article": "tea", "amount": 7}', JSON)
            answer = customer.getresponse()
            assert answer.status == 202
            message_id = json.loads(answer.read())["id"]
            customer.request("POST", "/orders", '{"article": "tea"}', JSON)
            refused = customer.getresponse()
            refused.read()
            assert refused.status == 422
            async with connect(url) as broker:

                async def charged() -> list[dict[str, object]]:
                    chunks = await broker.journal.read("orders#0", limit=1_000)
                    rows = [row for chunk in chunks for row in rows_of(decode_chunk(chunk), "orders#0")]
                    return [row for row in rows if row["event"] is Event.ACKED]

                async def one_is_charged() -> bool:
                    return len(await charged()) == 1

                await eventually(one_is_charged, within=STARTED)
                (row,) = await charged()
            assert (row["message_id"], row["result"]) == (message_id, b'{"charged":7}')
            customer.request("GET", "/health/queue")
            health = customer.getresponse()
            assert json.loads(health.read())["healthy"] is True
            assert health.status == 200
            customer.close()
        finally:
            for process in (server, worker):
                process.terminate()
                process.wait(120)


def _port(log: Path) -> int | None:
    found = re.search(r"127\.0\.0\.1:(\d+)", log.read_text())
    return int(found.group(1)) if found else None
