"""Loads the manager that `module:name` on the command line names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from godwit.core.errors import InvalidArgumentError
from godwit.manager import MessageQueueManager


class UnusableTarget(InvalidArgumentError):
    """The target `module:name` cannot be loaded or is not a manager."""

    def __init__(self, target: str, problem: str, remedy: str) -> None:
        self.target, self.problem = target, problem
        self._remedy = remedy
        super().__init__(target, problem, remedy)

    @property
    def fact(self) -> str:
        """What is wrong with the target."""
        return f"{self.target!r} {self.problem}"

    @property
    def remedy(self) -> str:
        """What to do."""
        return self._remedy


def load_manager(target: str) -> MessageQueueManager:
    """Return the manager that `module:name` names; modules are also searched in the working folder."""
    module_name, separator, name = target.partition(":")
    if not separator or not module_name or not name:
        raise UnusableTarget(target, "does not have the form module:name", "Write, for example, shop.queues:mq.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        target_object: object = importlib.import_module(module_name)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({Path(frame.filename).name}, line {frame.lineno})"
        problem = f"cannot be imported: {type(error).__name__}: {error}{where}"
        raise UnusableTarget(target, problem, "Run it with python to see the whole error.") from error
    for part in name.split("."):
        if not hasattr(target_object, part):
            raise UnusableTarget(target, f"names nothing: {module_name} has no {part!r}", "Check the spelling.")
        target_object = getattr(target_object, part)
    if not isinstance(target_object, MessageQueueManager):
        kind = type(target_object).__name__
        raise UnusableTarget(target, f"is a {kind}, not a MessageQueueManager", "Name the object your consumers use.")
    return target_object
