"""`godwit pipeline replay`: messages of the past, sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from godwit.cli.args.options import Json, Store, Url
from godwit.cli.exits import Exit
from godwit.cli.pipelines.options import DEFAULT_NAME, LakeFolder, Master, Name, lake_of, settings_of
from godwit.cli.pipelines.progress import interrupt_on_sigterm, show_work
from godwit.cli.shown.output import print_json, remarks
from godwit.cli.shown.quantities import count_text

if TYPE_CHECKING:
    from godwit.pipeline.jobs.replay import ReplayResult

EXAMPLES: Final = """Examples:

\b
  godwit pipeline replay 'event == "dead_lettered" && queue == "a"' --dry-run
  godwit pipeline replay 'type == "order" && priority > 50' --to orders-again
  godwit pipeline replay 'error_fingerprint == "3f2a"' --id mended --rate 50
"""
LOCAL: Final = "local[*]"


def replay(
    condition: Annotated[
        str,
        typer.Argument(metavar="CONDITION", help="Which messages: a condition on columns.", show_default=False),
    ],
    replay_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="One replay: sent again under it, nothing arrives twice."),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE", help="Another queue, all its groups.", show_default="where they were"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Spread delivery to so many messages per second."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, but send nothing.")] = False,
    name: Name = DEFAULT_NAME,
    lake: LakeFolder = None,
    master: Master = LOCAL,
    url: Url = None,
    store: Store = None,
    as_json: Json = False,
) -> Exit:
    """Send messages of the lake and the journal again, chosen by a condition.

    Conditions compare columns with values: == != < <= > >=, in [...], .contains(), .startsWith(), .endsWith(),
    joined by && || and !. Exit code 1 when nothing is chosen.
    """
    from godwit.pipeline.jobs.replay import ReplaySettings, run_replay

    configuration = settings_of(url, store)
    settings = ReplaySettings(
        broker_url=configuration.broker_url,
        store_url=configuration.store_url,
        lake=lake_of(configuration, lake),
        condition=condition,
        name=name,
        replay_id=replay_id,
        queue=queue,
        per_second=rate,
        dry_run=dry_run,
        master=master,
    )
    with interrupt_on_sigterm(), show_work("replay", quiet=as_json):
        result = run_replay(settings)
    if as_json:
        print_json(result)
    else:
        show(result)
    return Exit.OK if result.chosen else Exit.EMPTY


def show(result: ReplayResult) -> None:
    """Print the result of a replay."""
    console = remarks()
    if not result.chosen:
        console.print("No message is chosen.")
        return
    did = "sent" if result.sent else "chosen, none sent (--dry-run)"
    console.print(f"{count_text(result.chosen, 'message')} {did}.")
    for queue, count in result.queues.items():
        console.print(f"  {count:>9,}  from {queue}")
    if result.sent:
        spread = f", delivered over {result.seconds:,} s" if result.seconds else ""
        console.print(f"Replay {result.replay_id}{spread}.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLES)(replay)
