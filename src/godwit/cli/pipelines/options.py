"""Options that the commands of `godwit pipeline` share."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from godwit.cli.args.connection import check_exists, settings_for, sqlite_file
from godwit.cli.args.values import duration, whole
from godwit.core.settings import Settings

DEFAULT_NAME: Final = "default"
FIVE_SECONDS: Final = timedelta(seconds=5)

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The pipeline's name: it keeps its own position.")]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[2], spark://host:7077."),
]
Once = Annotated[bool, typer.Option("--once", help="Stop when everything there was at the start is read.")]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", metavar="QUEUE", help="Only this queue; may be repeated.", show_default="all"),
]
LakeFolder = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="FOLDER",
        help="Where Parquet files are: a folder, or an address that Spark supports.",
        show_default="beside the SQLite file, else ./godwit-lake",
    ),
]
Every = Annotated[
    timedelta,
    typer.Option(parser=duration, metavar="DURATION", help="How often to look for new rows.", show_default="5s"),
]
MaxRows = Annotated[
    int, typer.Option("--max-rows", parser=whole(1, 1_000_000_000), metavar="N", help="At most so many rows a batch.")
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER",
        help="Keep Spark's checkpoint there. Not needed: the position in the store decides.",
        show_default="a new one each time",
    ),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Go on behind rows that the journal no longer holds; they are counted.")
]

Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own; may be repeated.", show_default=False),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", parser=whole(0, 65_535), metavar="PORT", help="Serve /metrics there, on the loopback address."
    ),
]


def settings_of(url: str | None, store: str | None) -> Settings:
    """Return the configuration of a command whose broker must exist."""
    settings = settings_for(url, store)
    check_exists(settings.broker_url)
    return settings


def lake_of(settings: Settings, folder: str | None) -> str:
    """Return the lake's folder: as given, else beside the SQLite file, else in the working folder."""
    if folder is not None:
        return folder
    file = sqlite_file(settings.broker_url)
    return str(Path(f"{file.with_suffix('')}-lake")) if file is not None else "godwit-lake"
