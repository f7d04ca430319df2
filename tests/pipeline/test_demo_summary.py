"""`./dev run` ends with the pipeline on what the demo just did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.project.specification import ROOT


def test_the_demo_ends_with_analytics_a_clean_audit_and_a_report(tmp_path: Path, archive: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "godwit", "demo", "--pipeline", "--json", "--messages", "1000"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
        timeout=500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert told["reconciled"]
    assert told["pipeline"]["audit"]["verdict"] == "clean"
    assert told["pipeline"]["audit"]["counts"]["lost"] == 0
    published = sum(line["published"] for line in told["lines"])
    counted = sum(day["messages_enqueued"] for day in told["pipeline"]["days"] if day["consumer_group"] is not None)
    assert counted == published
    page = Path(told["pipeline"]["page"])
    assert "<html" in page.read_text(encoding="utf-8")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {page.parent.name}, "everything temporary is gone, only the report stays"


def test_the_demo_of_dev_run_is_the_one_with_the_pipeline() -> None:
    dev = (ROOT / "dev").read_text(encoding="utf-8")
    assert "need_java\n    hand_over .venv/bin/python -m godwit demo --pipeline" in dev
