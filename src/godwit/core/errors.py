"""Every error Godwit raises.

    GodwitError
    ├── InvalidArgumentError (3)    the caller's input is wrong; nothing was changed
    │   ├── ConfigurationError      godwit.toml or the environment says something impossible
    │   ├── InvalidAckId
    │   ├── InvalidCondition
    │   ├── InvalidMessage
    │   ├── InvalidName
    │   ├── InvalidSchedule
    │   ├── InvalidSetting
    │   ├── RowsRefused
    │   ├── TransformFailed
    │   └── UnknownScheme
    ├── NotFoundError (5)           the thing named does not exist
    │   ├── QueueNotFound, GroupNotFound, MessageNotHeld, LetterNotFound, ScheduleNotFound
    │   ├── TopicNotFound, SubscriptionNotFound
    │   ├── Unroutable
    │   └── NotRouted
    ├── AlreadyExistsError (6)      it exists, with other settings
    │   └── TopologyMismatch
    ├── QueueFull (8)               a group's limit is reached; retry when it has drained
    ├── QueueDraining (9)           a queue takes no messages until it is resumed
    ├── ExtraRequired (9)           an optional package is not installed
    ├── JavaRequired (9)            Spark needs a newer Java, or any
    ├── SchedulerRequired (9)       a recurring message needs a scheduler
    ├── CircuitOpen (14)            a breaker stops calls that would fail
    ├── PartialPublish              some chunks of a publish were stored before the cause
    ├── JournalLost                 the journal no longer holds what a reader asks for
    ├── JournalDamaged              a chunk of a journal cannot be read
    ├── ManifestMoved (10)          files of a lake were replaced by somebody else
    ├── PipelineFailed (13)         a job on Spark ended early
    ├── PositionGap                 a batch does not follow on what a pipeline has done
    ├── PositionMoved (10)          somebody else has published the same rows; nothing was changed
    ├── BodiesMissing (9)           messages to be replayed are not in the journal as a whole
    ├── PlanTooDense (9)            a plan has more messages in a minute than its campaign allows
    ├── StagingLost (10)            staged numbers are gone before they were added
    ├── SparkUnavailable (14)       Spark does not start, or cannot do what it is asked
    ├── StoreRequired (9)           a feature needs a store and none is configured
    ├── EffectHeld (10)             somebody else is making the same effect right now
    ├── StoreError (14)             the store cannot serve; live messages do not depend on it
    │   ├── StoreBusy, StoreClosed, StoreFull, StoreUnavailable
    │   └── SchemaOutdated, SchemaTooNew
    └── BrokerError (14)            the backend cannot serve
        ├── BrokerBusy, BrokerClosed, BrokerUnavailable, NotReplicated
        └── StorageFull, StorageCorrupt, StorageTooNew, StorageUnsupported

`str(error)` is one sentence of fact followed by one of remedy; both are also attributes. Arguments equal the
constructor's signature, so every error pickles. `code` follows the gRPC status numbers of the broker specification.
"""

from __future__ import annotations

from typing import ClassVar

SHOWN_VALUE_CHARACTERS = 80
SHOWN_NAMES = 10


class GodwitError(Exception):
    """The root of all errors of this library."""

    code: ClassVar[int] = 2

    @property
    def fact(self) -> str:
        """What happened, with the offending value."""
        return " ".join(str(argument) for argument in self.args)

    @property
    def remedy(self) -> str:
        """What the caller can do about it."""
        return ""

    def __str__(self) -> str:
        """Return the fact, then the remedy."""
        return f"{self.fact}. {self.remedy}" if self.remedy else self.fact


def shown(value: object) -> str:
    """Return `value` as it may appear in an error text: quoted and shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_VALUE_CHARACTERS else f"{text[:SHOWN_VALUE_CHARACTERS]}..."


def listed(names: tuple[str, ...]) -> str:
    """Return known names for an error text."""
    if not names:
        return "none"
    return ", ".join(map(repr, names[:SHOWN_NAMES])) + (", ..." if len(names) > SHOWN_NAMES else "")


class InvalidArgumentError(GodwitError):
    """The caller's input is wrong; nothing was changed."""

    code = 3


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


class UnknownScheme(InvalidArgumentError):
    """A URL names a broker that does not exist."""

    def __init__(self, scheme: str, known: tuple[str, ...]) -> None:
        self.scheme, self.known = scheme, known
        super().__init__(scheme, known)

    @property
    def fact(self) -> str:
        return f"No broker has the URL scheme {shown(self.scheme)}"

    @property
    def remedy(self) -> str:
        return f"Use one of {listed(self.known)}."


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
        return "Declare it before use."


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
        return "Declare the group, or use one it has."


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
    """A message reached no queue of a RabbitMQ server: nothing is bound under its key, or somebody removed it."""

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


class QueueFull(GodwitError):
    """A group's limit is reached; nothing of the chunk was stored."""

    code = 8

    def __init__(self, queue: str, group: str, limit: str, allowed: int) -> None:
        self.queue, self.group, self.limit, self.allowed = queue, group, limit, allowed
        super().__init__(queue, group, limit, allowed)

    @property
    def fact(self) -> str:
        return f"Group {shown(self.group)} of queue {shown(self.queue)} is full ({self.limit} {self.allowed:,})"

    @property
    def remedy(self) -> str:
        return "Publish again when its workers have caught up, raise the limit, or set overflow = drop for that group."


class QueueDraining(GodwitError):
    """Somebody drains the queue: it takes no messages while its consumers empty it."""

    code = 9

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(queue)

    @property
    def fact(self) -> str:
        return f"Queue {shown(self.queue)} is being drained and takes no messages"

    @property
    def remedy(self) -> str:
        return "Publish again once it is resumed (godwit resume), or use another queue."


class ExtraRequired(GodwitError):
    """An optional package is not installed."""

    code = 9

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(feature, extra)

    @property
    def fact(self) -> str:
        return f"{self.feature} needs a package that is not installed"

    @property
    def remedy(self) -> str:
        return f"Install godwit[{self.extra}]."


class JavaRequired(GodwitError):
    """Spark runs on Java, and there is none that it can use."""

    code = 9

    def __init__(self, found: str, least: int) -> None:
        self.found, self.least = found, least
        super().__init__(found, least)

    @property
    def fact(self) -> str:
        return f"Spark needs Java {self.least} or newer, and {self.found}"

    @property
    def remedy(self) -> str:
        return (
            f"Install one (Debian: apt-get install openjdk-{self.least}-jre-headless) or let JAVA_HOME name its folder."
        )


class SchedulerRequired(GodwitError):
    """A recurring message was published where nothing repeats it."""

    code = 9

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(message_id)

    @property
    def fact(self) -> str:
        return f"Message {shown(self.message_id)} is recurring, which needs a scheduler"

    @property
    def remedy(self) -> str:
        return "Hand it to the scheduler (schedule_message), or publish it once with another kind."


class StoreRequired(GodwitError):
    """Something was asked for that needs a store, and none is configured."""

    code = 9

    def __init__(self, feature: str) -> None:
        self.feature = feature
        super().__init__(feature)

    @property
    def fact(self) -> str:
        return f"{self.feature} needs a store, and none is configured"

    @property
    def remedy(self) -> str:
        # Never a local file by itself: twenty machines would have twenty truths.
        return "Name one with --store or GODWIT_STORE_URL: postgresql://..., or sqlite:///file.db on a single machine."


class CircuitOpen(GodwitError):
    """The breaker is open: recent calls failed, so this one was not made."""

    code = 14

    def __init__(self, breaker: str, seconds: float) -> None:
        self.breaker, self.seconds = breaker, seconds
        super().__init__(breaker, seconds)

    @property
    def fact(self) -> str:
        return "Circuit breaker is open - queue unavailable"

    @property
    def remedy(self) -> str:
        return f"Breaker {shown(self.breaker)} lets a call through again in {self.seconds:.0f} s."


class PartialPublish(GodwitError):
    """A later chunk failed after earlier ones were stored; publishing the whole call again is safe."""

    def __init__(self, accepted: tuple[str, ...], cause: str) -> None:
        self.accepted, self.cause = accepted, cause
        super().__init__(accepted, cause)

    @property
    def fact(self) -> str:
        return f"{len(self.accepted):,} messages were accepted before the publish stopped: {self.cause}"

    @property
    def remedy(self) -> str:
        return "Publish the same messages again: those accepted are recognised by their ids."


class JournalLost(GodwitError):
    """The journal was trimmed past a reader's position, or is another journal than the reader knew."""

    def __init__(self, shard: str, asked: str, held: str) -> None:
        self.shard, self.asked, self.held = shard, asked, held
        super().__init__(shard, asked, held)

    @property
    def fact(self) -> str:
        return f"Journal {shown(self.shard)} no longer holds {self.asked} (it holds {self.held})"

    @property
    def remedy(self) -> str:
        return "Accept the loss by reading from the earliest position, and keep the journal longer."


class JournalDamaged(GodwitError):
    """A chunk of a journal is not what was once written."""

    def __init__(self, shard: str, after: int, problem: str) -> None:
        self.shard, self.after, self.problem = shard, after, problem
        super().__init__(shard, after, problem)

    @property
    def fact(self) -> str:
        return f"Journal {shown(self.shard)} cannot be read beyond row {self.after:,}: {self.problem}"

    @property
    def remedy(self) -> str:
        return "Upgrade Godwit if a newer version wrote it; otherwise restore the broker from a backup."


class ManifestMoved(GodwitError):
    """Files of a lake that were to be replaced do not count any more; nothing was changed."""

    code = 10

    def __init__(self, lake: str, wanted: int, found: int) -> None:
        self.lake, self.wanted, self.found = lake, wanted, found
        super().__init__(lake, wanted, found)

    @property
    def fact(self) -> str:
        return f"Of {self.wanted:,} files of lake {shown(self.lake)} to be replaced {self.found:,} still count"

    @property
    def remedy(self) -> str:
        return "Somebody else compacted them; there is nothing left to do."


class BodiesMissing(GodwitError):
    """Messages that were to be replayed are not in the history as a whole; nothing was sent."""

    code = 9

    def __init__(self, missing: int, chosen: int) -> None:
        self.missing, self.chosen = missing, chosen
        super().__init__(missing, chosen)

    @property
    def fact(self) -> str:
        return f"The history lacks the bodies of {self.missing:,} of {self.chosen:,} messages to be replayed"

    @property
    def remedy(self) -> str:
        return 'Choose messages whose queue journals bodies (journal_body = "on") and whose arrival is archived.'


class PlanTooDense(GodwitError):
    """A plan has more messages in a minute than its campaign allows; nothing was changed."""

    code = 9

    def __init__(self, campaign: str, allowed: int, found: int, minute: str) -> None:
        self.campaign, self.allowed, self.found, self.minute = campaign, allowed, found, minute
        super().__init__(campaign, allowed, found, minute)

    @property
    def fact(self) -> str:
        return (
            f"Campaign {shown(self.campaign)} has {self.found:,} messages in the minute of {self.minute}"
            f" ({self.allowed:,} are allowed)"
        )

    @property
    def remedy(self) -> str:
        return "Spread it over a longer window, allow more, or plan fewer users."


class StagingLost(GodwitError):
    """Numbers that were staged are not there to be added; nothing was changed."""

    code = 10

    def __init__(self, run_id: str, staged: int, found: int) -> None:
        self.run_id, self.staged, self.found = run_id, staged, found
        super().__init__(run_id, staged, found)

    @property
    def fact(self) -> str:
        return f"Run {self.run_id} staged {self.staged:,} rows, and {self.found:,} are there"

    @property
    def remedy(self) -> str:
        return "The store was restarted or swept meanwhile; the batch is worked out again."


class PipelineFailed(GodwitError):
    """A job on Spark ended early; `kind` names the error behind it. What was published stays, nothing was half done."""

    code = 13

    def __init__(self, kind: str, reason: str) -> None:
        self.kind, self.reason = kind, reason
        super().__init__(kind, reason)

    @property
    def fact(self) -> str:
        return f"The job ended early ({self.kind}): {self.reason.rstrip('. ')}"

    @property
    def remedy(self) -> str:
        return "Start it again once that is mended: it goes on where it was."


class PositionGap(GodwitError):
    """Rows between a pipeline's position and the batch are missing; nothing was changed."""

    def __init__(self, pipeline: str, shard: str, epoch: str, seq: int, other: str, first: int) -> None:
        self.pipeline, self.shard, self.epoch, self.seq, self.other, self.first = (
            pipeline, shard, epoch, seq, other, first,
        )  # fmt: skip
        super().__init__(pipeline, shard, epoch, seq, other, first)

    @property
    def fact(self) -> str:
        begins = f"row {self.first:,}" + (f" of epoch {self.other}" if self.other != self.epoch else "")
        return (
            f"Pipeline {shown(self.pipeline)} has read journal {shown(self.shard)} up to row {self.seq:,} "
            f"of epoch {self.epoch}, and the batch begins with {begins}"
        )

    @property
    def remedy(self) -> str:
        return (
            "Leave out --checkpoint if it belongs to another pipeline; if the rows between are lost, accept that with "
            "--accept-loss."
        )


class PositionMoved(GodwitError):
    """Somebody else has published these rows; nothing was changed."""

    code = 10

    def __init__(self, pipeline: str, shard: str, first: int, seq: int) -> None:
        self.pipeline, self.shard, self.first, self.seq = pipeline, shard, first, seq
        super().__init__(pipeline, shard, first, seq)

    @property
    def fact(self) -> str:
        return (
            f"Pipeline {shown(self.pipeline)} is at row {self.seq:,} of {shown(self.shard)} already, "
            f"and the batch begins with row {self.first:,}"
        )

    @property
    def remedy(self) -> str:
        return "Another driver works on the same pipeline; one of them is enough."


class SparkUnavailable(GodwitError):
    """Spark does not start, or cannot do what it is asked."""

    code = 14

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self._remedy = remedy
        super().__init__(reason, remedy)

    @property
    def fact(self) -> str:
        return f"Spark cannot be used: {self.reason}"

    @property
    def remedy(self) -> str:
        return self._remedy


class EffectHeld(GodwitError):
    """The key of an effect is held by somebody who is making it, or who died less than its hold ago."""

    code = 10

    def __init__(self, key: str, seconds: float) -> None:
        self.key, self.seconds = key, seconds
        super().__init__(key, seconds)

    @property
    def fact(self) -> str:
        return f"The effect {shown(self.key)} is being made by somebody else, for {self.seconds:.1f} s at most"

    @property
    def remedy(self) -> str:
        return "Try again then: it is done by that time, or free."


class StoreError(GodwitError):
    """The store cannot serve at the moment; messages go on without it."""

    code = 14


class StoreBusy(StoreError):
    """The store did not get to the call in time, or gave way to another; nothing of it was stored."""

    def __init__(self, operation: str, reason: str) -> None:
        self.operation, self.reason = operation, reason
        super().__init__(operation, reason)

    @property
    def fact(self) -> str:
        return f"The store did not get to {self.operation}: {self.reason}"

    @property
    def remedy(self) -> str:
        return "Repeat the call, or lower the load."


class StoreClosed(StoreError):
    """The store was closed and takes no more calls."""

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(store)

    @property
    def fact(self) -> str:
        return f"The store {self.store} is closed"

    @property
    def remedy(self) -> str:
        return "Open a new one."


class StoreFull(StoreError):
    """The store's disk is full; the step was rolled back as a whole."""

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(store)

    @property
    def fact(self) -> str:
        return f"There is no room left to write to the store {self.store}"

    @property
    def remedy(self) -> str:
        return "Free some space; nothing of this call was stored, and what was stored before is still there."


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""

    def __init__(self, store: str, reason: str, remedy: str) -> None:
        self.store, self.reason = store, reason
        self._remedy = remedy
        super().__init__(store, reason, remedy)

    @property
    def fact(self) -> str:
        return f"The store {self.store} cannot be used: {self.reason}"

    @property
    def remedy(self) -> str:
        return self._remedy


class SchemaOutdated(StoreError):
    """The store lacks migrations that this version needs."""

    code = 9

    def __init__(self, store: str, pending: tuple[str, ...]) -> None:
        self.store, self.pending = store, pending
        super().__init__(store, pending)

    @property
    def fact(self) -> str:
        return f"The schema of {self.store} lacks {listed(self.pending)}"

    @property
    def remedy(self) -> str:
        return "Run godwit db upgrade; workers may go on meanwhile."


class SchemaTooNew(StoreError):
    """The store has migrations that this version does not know."""

    code = 9

    def __init__(self, store: str, unknown: tuple[str, ...]) -> None:
        self.store, self.unknown = store, unknown
        super().__init__(store, unknown)

    @property
    def fact(self) -> str:
        return f"The schema of {self.store} has {listed(self.unknown)}, which this Godwit does not know"

    @property
    def remedy(self) -> str:
        return "Upgrade Godwit; nothing was changed."


class BrokerError(GodwitError):
    """The backend cannot serve at the moment."""

    code = 14


class BrokerBusy(BrokerError):
    """The backend did not get to the call before its deadline; whether it was carried out is not known."""

    def __init__(self, operation: str, seconds: float) -> None:
        self.operation, self.seconds = operation, seconds
        super().__init__(operation, seconds)

    @property
    def fact(self) -> str:
        return f"The broker did not get to {self.operation} within {self.seconds:g} s"

    @property
    def remedy(self) -> str:
        return "Repeat the call (a publish is recognised by its ids), or lower the load."


class BrokerClosed(BrokerError):
    """The broker was closed and takes no more calls."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        super().__init__(broker)

    @property
    def fact(self) -> str:
        return f"{self.broker} is closed"

    @property
    def remedy(self) -> str:
        return "Open a new one."


class BrokerUnavailable(BrokerError):
    """The backend cannot be reached or opened."""

    def __init__(self, url: str, reason: str, remedy: str) -> None:
        self.url, self.reason = url, reason
        self._remedy = remedy
        super().__init__(url, reason, remedy)

    @property
    def fact(self) -> str:
        return f"{self.url} cannot be used: {self.reason}"

    @property
    def remedy(self) -> str:
        return self._remedy


class NotReplicated(BrokerError):
    """Messages are on the master, but too few replicas said in time that they have them: a failover may lose them."""

    def __init__(self, queue: str, wanted: int, reached: int, seconds: float) -> None:
        self.queue, self.wanted, self.reached, self.seconds = queue, wanted, reached, seconds
        super().__init__(queue, wanted, reached, seconds)

    @property
    def fact(self) -> str:
        return (
            f"Messages for queue {self.queue!r} are on the master, but {self.reached} of {self.wanted} replicas had "
            f"them after {self.seconds:g} s: they may or may not survive a failover"
        )

    @property
    def remedy(self) -> str:
        return (
            "Publish the same messages again (their ids are recognised); start the replicas that are missing, or lower "
            "min_replicas of the queue."
        )


class StorageFull(BrokerError):
    """The disk (or the file's size limit) is full; the step was rolled back as a whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    @property
    def fact(self) -> str:
        return f"There is no room left to write {self.path}"

    @property
    def remedy(self) -> str:
        return "Free some space; nothing of this call was stored, and everything accepted before is still there."


class StorageCorrupt(BrokerError):
    """The file is not a readable database."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(path, reason)

    @property
    def fact(self) -> str:
        return f"{self.path} is not a readable Godwit file: {self.reason}"

    @property
    def remedy(self) -> str:
        return "Restore it from a backup (godwit backup makes one), or choose another path; the file was not changed."


class StorageTooNew(BrokerError):
    """The file was written by a newer version of Godwit."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        self.path, self.found, self.supported = path, found, supported
        super().__init__(path, found, supported)

    @property
    def fact(self) -> str:
        return f"{self.path} has schema version {self.found}, this Godwit knows up to {self.supported}"

    @property
    def remedy(self) -> str:
        return "Upgrade Godwit; the file was not changed."


class StorageUnsupported(BrokerError):
    """The file lies where its locks cannot be trusted."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(path, reason)

    @property
    def fact(self) -> str:
        return f"{self.path} cannot hold a Godwit file: {self.reason}"

    @property
    def remedy(self) -> str:
        return "Put it on a local disk, or use a broker with a server."
