"""The caller's input is wrong; nothing was changed."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError, meant, shown


class InvalidArgumentError(GodwitError):
    """The caller's input is wrong; nothing was changed."""

    code = 3


class BlockedLoop(InvalidArgumentError):
    """A synchronous call inside a running event loop would block it, and with it what the call waits for."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(call)

    @property
    def fact(self) -> str:
        return f"{self.call} was called inside a running event loop, which it would block"

    @property
    def remedy(self) -> str:
        return f"Await {self.call.replace('.sync', '')} there, or call it from a thread (asyncio.to_thread)."


class ConfigurationError(InvalidArgumentError):
    """A line of godwit.toml, an environment variable or an argument cannot be used."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem = where, problem
        self._remedy = remedy
        super().__init__(where, problem, remedy)

    @property
    def fact(self) -> str:
        return f"{self.where}: {self.problem}"

    @property
    def remedy(self) -> str:
        return self._remedy


class InvalidAckId(InvalidArgumentError):
    """The ack id is unknown, was already used, or its lease was taken back."""

    def __init__(self, ack_id: str) -> None:
        self.ack_id = ack_id
        super().__init__(ack_id)

    @property
    def fact(self) -> str:
        return f"Invalid ack ID: {self.ack_id}"

    @property
    def remedy(self) -> str:
        return "It was settled before, its lease ran out, or it never existed; pull again to get a valid one."


class InvalidCondition(InvalidArgumentError):
    """A routing condition or a group's filter cannot be used; `column` counts from 1, 0 when it has no place."""

    def __init__(self, condition: str, column: int, problem: str, remedy: str) -> None:
        self.condition, self.column, self.problem = condition, column, problem
        self._remedy = remedy
        super().__init__(condition, column, problem, remedy)

    @property
    def fact(self) -> str:
        place = f" at column {self.column}" if self.column else ""
        return f"Condition {shown(self.condition)}{place}: {self.problem}"

    @property
    def remedy(self) -> str:
        return self._remedy


class InvalidHandler(InvalidArgumentError):
    """A function cannot handle messages as it was registered; `where` is its file and line."""

    def __init__(self, handler: str, where: str, problem: str, remedy: str) -> None:
        self.handler, self.where, self.problem = handler, where, problem
        self._remedy = remedy
        super().__init__(handler, where, problem, remedy)

    @property
    def fact(self) -> str:
        return f"Handler {self.handler} ({self.where}) {self.problem}"

    @property
    def remedy(self) -> str:
        return self._remedy


class InvalidMessage(InvalidArgumentError):
    """A message, or one of a batch, cannot be accepted; none of the batch was published."""

    def __init__(self, field: str, problem: str, remedy: str, index: int | None = None) -> None:
        self.field, self.problem, self.index = field, problem, index
        self._remedy = remedy
        super().__init__(field, problem, remedy, index)

    @property
    def fact(self) -> str:
        where = "Message" if self.index is None else f"Message {self.index} of the batch"
        return f"{where}: {self.field} {self.problem}"

    @property
    def remedy(self) -> str:
        return self._remedy

    def at(self, index: int) -> InvalidMessage:
        """Return the same error, naming the message's place in its batch."""
        return InvalidMessage(self.field, self.problem, self._remedy, index)


class InvalidName(InvalidArgumentError):
    """A queue, group, type or message id is not a usable name."""

    def __init__(self, what: str, name: str, allowed: str) -> None:
        self.what, self.name, self.allowed = what, name, allowed
        super().__init__(what, name, allowed)

    @property
    def fact(self) -> str:
        return f"{shown(self.name)} is not a {self.what} name"

    @property
    def remedy(self) -> str:
        return f"Allowed: {self.allowed}."


class InvalidSchedule(InvalidArgumentError):
    """A schedule cannot be kept: its expression, zone, times or key; nothing was stored."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        self.field, self.problem = field, problem
        self._remedy = remedy
        super().__init__(field, problem, remedy)

    @property
    def fact(self) -> str:
        return f"Schedule: {self.field} {self.problem}"

    @property
    def remedy(self) -> str:
        return self._remedy


class InvalidSetting(InvalidArgumentError):
    """A setting of a queue, a group or a call has an impossible value."""

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        self.setting, self.value, self.allowed = setting, value, allowed
        super().__init__(setting, value, allowed)

    @property
    def fact(self) -> str:
        return f"{self.setting} is {shown(self.value)}"

    @property
    def remedy(self) -> str:
        return f"Allowed: {self.allowed}."


class RowsRefused(InvalidArgumentError):
    """Rows of a table cannot be messages; none of their task's rows was sent."""

    def __init__(self, refused: int, rows: int, samples: tuple[str, ...]) -> None:
        self.refused, self.rows, self.samples = refused, rows, samples
        super().__init__(refused, rows, samples)

    @property
    def fact(self) -> str:
        return f"{self.refused:,} of {self.rows:,} rows cannot be messages: {'; '.join(self.samples)}"

    @property
    def remedy(self) -> str:
        return "Mend or leave out these rows and write the table again."


class TransformFailed(InvalidArgumentError):
    """The application's transform of a queue did not return a usable message; nothing was published."""

    def __init__(self, queue: str, problem: str) -> None:
        self.queue, self.problem = queue, problem
        super().__init__(queue, problem)

    @property
    def fact(self) -> str:
        return f"The transform of queue {shown(self.queue)} {self.problem}"

    @property
    def remedy(self) -> str:
        return "Return a Message with the same id and queue, made with msgspec.structs.replace()."


class UnknownArgument(InvalidArgumentError, TypeError):
    """A call does not take a keyword argument of this name."""

    def __init__(self, call: str, argument: str, known: tuple[str, ...]) -> None:
        self.call, self.argument, self.known = call, argument, known
        super().__init__(call, argument, known)

    @property
    def fact(self) -> str:
        return f"{self.call} takes no argument {shown(self.argument)}"

    @property
    def remedy(self) -> str:
        return f"{meant(self.argument, self.known)}It takes {', '.join(self.known)}."


class UnknownScheme(InvalidArgumentError):
    """A URL names a broker or a store that does not exist."""

    def __init__(self, scheme: str, known: tuple[str, ...], what: str = "broker") -> None:
        self.scheme, self.known, self.what = scheme, known, what
        super().__init__(scheme, known, what)

    @property
    def fact(self) -> str:
        return f"No {self.what} has the URL scheme {shown(self.scheme)}"

    @property
    def remedy(self) -> str:
        return f"{meant(self.scheme, self.known)}Use one of {', '.join(f'{scheme}://' for scheme in self.known)}."


class StoreRefused(InvalidArgumentError):
    """The store does not take a value: nothing of the call was stored, and repeating it does not help."""

    def __init__(self, operation: str, reason: str) -> None:
        self.operation, self.reason = operation, reason
        super().__init__(operation, reason)

    @property
    def fact(self) -> str:
        return f"The store does not take a value of {self.operation}: {self.reason}"

    @property
    def remedy(self) -> str:
        return "Change the value; nothing of this call was stored."


class UnknownOption(InvalidSetting):
    """A URL has an option that its broker or store does not know."""

    def __init__(self, url: str, option: str, known: tuple[str, ...]) -> None:
        self.url, self.option, self.known = url, option, known
        super().__init__(f"option {option!r} of the URL", url, ", ".join(known))
        self.args = (url, option, known)

    @property
    def fact(self) -> str:
        return f"The URL {self.url} has an unknown option {shown(self.option)}"

    @property
    def remedy(self) -> str:
        if not self.known:
            return "It takes no options; a ? in a file's name is written %3F."
        return f"{meant(self.option, self.known)}It takes {', '.join(self.known)}."
