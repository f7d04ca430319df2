"""Runs the Python blocks of a page as cells of a notebook: `python -m tests.pipeline.notebook PAGE NOTEBOOK`."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.project.test_docs_run import blocks


def main(page: Path, notebook: Path) -> None:
    cells = [nbformat.v4.new_code_cell(block.code) for block in blocks(page) if block.kind == "python"]
    cells.append(nbformat.v4.new_code_cell("assert session() is spark"))
    book = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(notebook.parent)}}
    NotebookClient(book, timeout=120, startup_timeout=120, kernel_name="python3", resources=resources).execute()
    nbformat.write(book, notebook)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
