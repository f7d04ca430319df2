"""Run benchmarks by name, show them and write them down: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import importlib
import sys
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.results import Report, number, save

NAMES: Final = (
    "memory",
    "producer",
    "recorder",
    "rabbitmq",
    "redis",
    "redis_topologies",
    "scheduler",
    "spark",
    "sqlite",
    "wake",
    "worker",
    "worker_memory",
)
BY_NAME: Final = ("peers",)
"""Those that need more than this project's environment run only when they are asked for."""


def show(found: Report, console: Console) -> None:
    """Print one run."""
    table = Table(title=f"{found.benchmark}: {found.date}, {found.machine}", title_justify="left")
    table.add_column("measured")
    for column in ("median", "goal", "floor"):
        table.add_column(column, justify="right")
    table.add_column("reached")
    for result in found.results:
        bounds = [number(value) if value is not None else "" for value in (result.goal, result.floor)]
        table.add_row(f"{result.name} ({result.unit})", number(result.median), *bounds, result.verdict)
    console.print(table)
    for name, value in found.settings.items():
        console.print(f"  {name}: {value}", style="dim")


def main(arguments: list[str]) -> int:
    """Run the benchmarks named, or all; exit 1 when a median is below its floor."""
    console = Console()
    known = (*NAMES, *BY_NAME)
    unknown = [name for name in arguments if name not in known]
    if unknown:
        console.print(f"There is no benchmark {unknown[0]!r}. Choose from: {', '.join(known)}.")
        return 2
    below = 0
    for name in arguments or NAMES:
        with console.status(f"measuring {name} ..."):
            found: Report = importlib.import_module(f"benchmarks.{name}").run()
        show(found, console)
        save(found)
        below += sum(result.verdict == "BELOW" for result in found.results)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
