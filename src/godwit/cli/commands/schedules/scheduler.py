"""`godwit scheduler`: publish scheduled messages when they are due."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Final

import typer

from godwit.cli.args.connection import manager_for
from godwit.cli.args.options import Json, Store, Url
from godwit.cli.exits import Exit
from godwit.cli.shown.log_lines import LogFormat, LogFormatOption, LogLevel, LogLevelOption, write_logs
from godwit.cli.shown.output import print_json, remarks

EXAMPLES: Final = """Examples:

\b
  godwit scheduler
  godwit scheduler --url redis://localhost --store postgresql://localhost/mq
  godwit scheduler --once --json
"""


def scheduler(
    once: Annotated[bool, typer.Option("--once", help="Run one tick and exit; for a cron job of your own.")] = False,
    url: Url = None,
    store: Store = None,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
    as_json: Json = False,
) -> Exit:
    """Run a scheduler until SIGTERM or Ctrl-C; run as many as you like, each firing is still one message.

    `godwit worker` runs one beside its consumers whenever a store is configured.
    """
    write_logs(log_level, log_format)

    async def run() -> Exit:
        async with manager_for(url, store) as mq:
            if once:
                ticked = await mq.scheduler.tick()
                if as_json:
                    print_json(ticked)
                else:
                    remarks().print(f"{ticked.sent + ticked.swept:,} messages sent.")
                return Exit.OK
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, mq.scheduler.stop)
            remarks().print("scheduling", highlight=False)
            await mq.scheduler.run()
        return Exit.OK

    return asyncio.run(run())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scheduler", epilog=EXAMPLES)(scheduler)
