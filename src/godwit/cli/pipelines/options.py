"""Options that the commands of `godwit pipeline` share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

DEFAULT_NAME: Final = "default"

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The pipeline's name: it keeps its own position.")]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[2], spark://host:7077."),
]
Once = Annotated[bool, typer.Option("--once", help="Stop when everything there was at the start is read.")]
