"""The backend cannot serve."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError


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
        return "It cannot be opened again: make a new one."


class NotOpen(BrokerClosed):
    """A manager is used before it was opened, or where it is not open."""

    def __init__(
        self,
        problem: str = "is not open",
        how: str = "Use it inside `async with mq:`; code without an event loop calls mq.sync, which opens it.",
    ) -> None:
        self.problem, self.how = problem, how
        super().__init__("The manager")
        self.args = (problem, how)

    @property
    def fact(self) -> str:
        return f"The manager {self.problem}"

    @property
    def remedy(self) -> str:
        return self.how


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
