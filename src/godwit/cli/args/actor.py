"""Who works with the command line, as the journal names it."""

from __future__ import annotations

import getpass
import os

from godwit.brokers.arguments import check_actor


def actor_name(given: str | None) -> str:
    """Return the name given with --actor, else that of the operating system's user."""
    if given is not None:
        return check_actor(given) or ""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's number without a name
        return f"uid {os.getuid()}"
