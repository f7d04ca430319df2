"""The Python blocks of docs/howto/spark.md as cells of a notebook: a running event loop, a kernel not activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.project.specification import ROOT

PAGE = ROOT / "docs" / "howto" / "spark.md"


@pytest.mark.timeout(400)
def test_all_cells_of_the_spark_page_run_in_jupyter(tmp_path: Path) -> None:
    notebook = tmp_path / "tour.ipynb"
    own = str(Path(sys.executable).parent)
    elsewhere = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own]
    environment = {name: value for name, value in os.environ.items() if name not in {"PYSPARK_PYTHON", "VIRTUAL_ENV"}}
    environment |= {"PATH": os.pathsep.join(elsewhere), "JUPYTER_PLATFORM_DIRS": "1", "HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.notebook", str(PAGE), str(notebook)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    shown = [
        output.text
        for cell in nbformat.read(notebook, as_version=4).cells
        for output in cell.outputs
        if "text" in output
    ]
    assert any("acked" in text for text in shown)
