"""The `godwit` command.

Modules and packages:

    app          the commands put together; errors become sentences and exit codes
    exits        exit codes, and the error behind each
    commands     the commands, one module each
    pipelines    the commands of `godwit pipeline`
    demo         the command `godwit demo` and its processes
    args         options and arguments, read and checked
    shown        what commands print, for people and for scripts
"""


def main() -> None:
    """Run the command named on the command line; ends the process with its exit code."""
    # Late, so that the demo's workers, which live in this package, start without typer and rich.
    from godwit.cli.app import app

    app(prog_name="godwit")
