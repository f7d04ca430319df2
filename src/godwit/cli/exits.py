"""Exit codes: what a script learns from the outcome of a command. `docs/cli.md` explains them."""

from __future__ import annotations

from enum import IntEnum

from godwit.core.errors import (
    BrokerBusy,
    GodwitError,
    InvalidAckId,
    InvalidArgumentError,
    NotFoundError,
    PartialPublish,
    QueueDraining,
    QueueFull,
)


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    EMPTY = 1
    BAD_INPUT = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    TRY_LATER = 5
    PARTLY = 6
    UNRECONCILED = 7
    UNHEALTHY = 8
    BUG = 70
    INTERRUPTED = 130


def exit_of(error: GodwitError) -> Exit:
    """Return the exit code for an error."""
    match error:
        case PartialPublish():
            return Exit.PARTLY
        case NotFoundError() | InvalidAckId():
            return Exit.NOT_FOUND
        case InvalidArgumentError():
            return Exit.BAD_INPUT
        case QueueFull() | QueueDraining() | BrokerBusy():
            return Exit.TRY_LATER
        case _:
            return Exit.UNAVAILABLE
