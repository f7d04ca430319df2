"""The `godwit` command."""


def main() -> None:
    """Run the command named on the command line; ends the process with its exit code."""
    # Late, so that the demo's workers, which live in this package, start without typer and rich.
    from godwit.cli.app import app

    app(prog_name="godwit")
