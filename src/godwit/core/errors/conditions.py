"""What must hold first does not: room, a package, a store, a closed breaker."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError, shown


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
    """The queue is being drained: it takes no messages while its consumers empty it."""

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


class EffectHeld(GodwitError):
    """The key of an effect is held by a caller that is making it, or that died less than its hold ago."""

    code = 10

    def __init__(self, key: str, seconds: float) -> None:
        self.key, self.seconds = key, seconds
        super().__init__(key, seconds)

    @property
    def fact(self) -> str:
        return f"The effect {shown(self.key)} is being made by another holder, for {self.seconds:.1f} s at most"

    @property
    def remedy(self) -> str:
        return "Try again then: it is done by that time, or free."
