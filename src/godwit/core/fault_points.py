"""Named points where a test lets the process die: `GODWIT_FAULT=name` at the first passage, `name:3` at the third.

`name%20` lets it die at each passage with a chance of 20 in a hundred.

The variable is read once, at import; without it a point costs one call of an empty function.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

VARIABLE = "GODWIT_FAULT"


def killer(setting: str) -> Callable[[str], None]:
    """Return the function that ends this process with SIGKILL at the point `setting` names, if it names one."""
    if not setting:
        return lambda _name: None
    if "%" in setting:
        return _killer_by_chance(*setting.split("%"))
    wanted, _, passage = setting.partition(":")
    left = int(passage or 1)

    def die_at_passage(name: str) -> None:
        nonlocal left
        if name == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return die_at_passage


def _killer_by_chance(wanted: str, chance: str) -> Callable[[str], None]:
    def die_by_chance(name: str) -> None:
        if name == wanted and random.random() * 100 < float(chance):
            os.kill(os.getpid(), signal.SIGKILL)

    return die_by_chance


fault_point = killer(os.environ.get(VARIABLE, ""))
