"""The thing named does not exist, or exists with other settings."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError, listed, meant, shown


class NotFoundError(GodwitError):
    """The thing named does not exist."""

    code = 5


class QueueNotFound(NotFoundError):
    """No queue of this name is declared."""

    def __init__(self, queue: str, known: tuple[str, ...] = ()) -> None:
        self.queue, self.known = queue, known
        super().__init__(queue, known)

    @property
    def fact(self) -> str:
        return f"Queue {shown(self.queue)} is not declared (declared: {listed(self.known)})"

    @property
    def remedy(self) -> str:
        return (
            f"{meant(self.queue, self.known)}Declare it before use: in godwit.toml, with `godwit declare QUEUE`, with "
            "mq.declare(), or by a consumer that is registered before the manager is opened."
        )


class GroupNotFound(NotFoundError):
    """The queue has no group of this name."""

    def __init__(self, queue: str, group: str, known: tuple[str, ...] = ()) -> None:
        self.queue, self.group, self.known = queue, group, known
        super().__init__(queue, group, known)

    @property
    def fact(self) -> str:
        return f"Queue {shown(self.queue)} has no group {shown(self.group)} (it has: {listed(self.known)})"

    @property
    def remedy(self) -> str:
        how = "`godwit declare QUEUE --group GROUP`"
        return f"{meant(self.group, self.known)}Declare the group ({how}), or use one it has."


class MessageNotHeld(NotFoundError):
    """The message is not among those held here, so it cannot be settled by its id."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(message_id)

    @property
    def fact(self) -> str:
        return f"Message {shown(self.message_id)} is not held here"

    @property
    def remedy(self) -> str:
        return "Settle a message where it was pulled, once, and before its lease ends."


class LetterNotFound(NotFoundError):
    """No dead letter has this id: it never existed, or it was replayed or discarded."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(letter_id)

    @property
    def fact(self) -> str:
        return f"There is no dead letter {shown(self.letter_id)}"

    @property
    def remedy(self) -> str:
        return "It was replayed or discarded, or never existed; list those there are (godwit dlq list)."


class ScheduleNotFound(NotFoundError):
    """No schedule, campaign or scheduled message has this id, or it is beyond the scheduler's reach."""

    def __init__(self, schedule_id: str) -> None:
        self.schedule_id = schedule_id
        super().__init__(schedule_id)

    @property
    def fact(self) -> str:
        return f"There is no schedule {shown(self.schedule_id)}"

    @property
    def remedy(self) -> str:
        return "It ended, is already with the broker, or never existed; list those there are (godwit schedule list)."


class TopicNotFound(NotFoundError):
    """The in-process broker has no topic of this name."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    @property
    def fact(self) -> str:
        return f"Topic not found: {self.topic}"

    @property
    def remedy(self) -> str:
        return "Register it with register_topic()."


class SubscriptionNotFound(NotFoundError):
    """The in-process broker has no subscription of this name."""

    def __init__(self, subscription: str) -> None:
        self.subscription = subscription
        super().__init__(subscription)

    @property
    def fact(self) -> str:
        return f"Subscription not found: {self.subscription}"

    @property
    def remedy(self) -> str:
        return "Register it with register_subscription()."


class Unroutable(NotFoundError):
    """A message names no queue, no rule matches it and there is no default queue."""

    def __init__(self, message_id: str, type: str, rules: int) -> None:
        self.message_id, self.type, self.rules = message_id, type, rules
        super().__init__(message_id, type, rules)

    @property
    def fact(self) -> str:
        tried = f"none of {self.rules:,} routing rules matches it" if self.rules else "there are no routing rules"
        return f"Message {shown(self.message_id)} of type {shown(self.type)} names no queue and {tried}"

    @property
    def remedy(self) -> str:
        return "Give it a queue, add a rule, or set default_queue; `godwit route` explains each step."


class NotRouted(NotFoundError):
    """A message reached no queue of a RabbitMQ server: nothing is bound under its key, or the queue was removed."""

    def __init__(self, message_id: str, type: str, exchange: str) -> None:
        self.message_id, self.type, self.exchange = message_id, type, exchange
        super().__init__(message_id, type, exchange)

    @property
    def fact(self) -> str:
        what = f"Message {shown(self.message_id)} of type {shown(self.type)}"
        return f"{what} reaches no queue behind {shown(self.exchange)}"

    @property
    def remedy(self) -> str:
        return "Bind a queue under the message's type, or use a type that is bound; it was not stored."


class AlreadyExistsError(GodwitError):
    """A queue, group, topic or subscription exists with settings that cannot be changed in place."""

    code = 6

    def __init__(self, what: str, name: str, differs: str) -> None:
        self.what, self.name, self.differs = what, name, differs
        super().__init__(what, name, differs)

    @property
    def fact(self) -> str:
        return f"{self.what} {shown(self.name)} exists with another {self.differs}"

    @property
    def remedy(self) -> str:
        return "Use the settings it has, or remove it first."


class TopologyMismatch(AlreadyExistsError):
    """A queue or exchange exists on the server with an argument that cannot be changed in place."""

    def __init__(self, name: str, argument: str, wanted: str, found: str) -> None:
        self.argument, self.wanted, self.found = argument, wanted, found
        super().__init__("Server object", name, argument)
        self.args = (name, argument, wanted, found)

    @property
    def fact(self) -> str:
        return f"{shown(self.name)} exists on the server with {self.argument} {self.found}, wanted was {self.wanted}"

    @property
    def remedy(self) -> str:
        return "Use the settings it has; or drain it, delete it (rabbitmqctl delete_queue) and declare it again."
