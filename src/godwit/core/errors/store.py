"""The store cannot serve; live messages do not depend on it."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError, listed


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


class ForeignConnection(SchemaOutdated):
    """A connection of the application does not lead to the store's tables."""

    @property
    def fact(self) -> str:
        return f"The connection leads to a database that lacks {listed(self.pending)}"

    @property
    def remedy(self) -> str:
        return (
            f"Open it on the store's own database, {self.store}; if it is that one, the tables are made by "
            "godwit db upgrade."
        )


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
