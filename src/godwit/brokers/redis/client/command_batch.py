"""Commands that belong together, on their way to one or several servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.errors import Refused
from godwit.brokers.redis.client.pool import Then
from godwit.brokers.redis.client.scripts import Script

Command = Sequence[Argument]


class CommandBatch:
    """Commands that belong together, and the replies that have come."""

    __slots__ = ("_commands", "left", "replies", "signed", "then", "what")

    def __init__(self, commands: Sequence[Command], what: Script | None, *, signed: bool, then: Then | None) -> None:
        self._commands, self.what, self.signed, self.then = commands, what, signed, then
        self.replies: list[Any] = [None] * len(commands)
        self.left: Sequence[int] = range(len(commands))

    def key(self, index: int) -> str:
        """Return the key that decides where a command goes."""
        return self._commands[index][3 if self.what is not None else 1]  # type: ignore[return-value]

    def words(self, indexes: Sequence[int]) -> Sequence[Command]:
        """Return what is sent for some commands."""
        return self._commands if len(indexes) == len(self._commands) else [self._commands[index] for index in indexes]

    def take(self, indexes: Sequence[int], replies: list[Any]) -> dict[int, Refused]:
        """Take the replies to some commands; return what was refused."""
        refused: dict[int, Refused] = {}
        for place, index in enumerate(indexes):
            reply = replies[place]
            if isinstance(reply, hiredis.ReplyError):
                refused[index] = Refused(str(reply))
            else:
                self.replies[index] = reply
        if self.then is not None and not refused:
            self.replies = replies
        if len(indexes) == len(self.left) and not refused:
            self.left = ()
        else:
            done = set(indexes) - refused.keys()
            self.left = [index for index in self.left if index not in done]
        return refused
