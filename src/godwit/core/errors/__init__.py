"""Every error Godwit raises.

    GodwitError
    ├── InvalidArgumentError (3)    the caller's input is wrong; nothing was changed
    │   ├── BlockedLoop             a synchronous call inside a running event loop
    │   ├── ConfigurationError      godwit.toml or the environment says something impossible
    │   ├── InvalidAckId
    │   ├── InvalidCondition
    │   ├── InvalidHandler          a function cannot handle messages as it was registered
    │   ├── InvalidMessage
    │   ├── InvalidName
    │   ├── InvalidSchedule
    │   ├── InvalidSetting
    │   │   └── UnknownOption       a URL has an option that is not known
    │   ├── RowsRefused
    │   ├── StoreRefused            the store does not take a value
    │   ├── TransformFailed
    │   ├── UnknownArgument
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
    ├── ManifestMoved (10)          another process replaced files of a lake
    ├── PipelineFailed (13)         a job on Spark ended early
    ├── PositionGap                 a batch does not follow on what a pipeline has done
    ├── PositionMoved (10)          another run has published the same rows; nothing was changed
    ├── BodiesMissing (9)           messages to be replayed are not in the journal as a whole
    ├── PlanTooDense (9)            a plan has more messages in a minute than its campaign allows
    ├── StagingLost (10)            staged numbers are gone before they were added
    ├── SparkUnavailable (14)       Spark does not start, or cannot do what it is asked
    ├── StoreRequired (9)           a feature needs a store and none is configured
    ├── EffectHeld (10)             another caller is making the same effect right now
    ├── StoreError (14)             the store cannot serve; live messages do not depend on it
    │   ├── StoreBusy, StoreClosed, StoreFull, StoreUnavailable
    │   ├── SchemaOutdated
    │   │   └── ForeignConnection   a connection of the application does not lead to the store's tables
    │   └── SchemaTooNew
    └── BrokerError (14)            the backend cannot serve
        ├── BrokerBusy, BrokerClosed, BrokerUnavailable, NotOpen, NotReplicated
        └── StorageFull, StorageCorrupt, StorageTooNew, StorageUnsupported

Modules:

    root          the root of all errors, and how they show values
    arguments     the caller's input is wrong; nothing was changed
    existence     the thing named does not exist, or exists with other settings
    conditions    what must hold first does not: room, a package, a store, a closed breaker
    pipeline      the journal and the jobs over it
    store         the store cannot serve; live messages do not depend on it
    broker        the backend cannot serve

`str(error)` is one sentence of fact followed by one of remedy; both are also attributes. Arguments equal the
constructor's signature, so every error pickles. `code` follows the gRPC status numbers of the broker specification.
"""

from __future__ import annotations

from godwit.core.errors.arguments import (
    BlockedLoop,
    ConfigurationError,
    InvalidAckId,
    InvalidArgumentError,
    InvalidCondition,
    InvalidHandler,
    InvalidMessage,
    InvalidName,
    InvalidSchedule,
    InvalidSetting,
    RowsRefused,
    StoreRefused,
    TransformFailed,
    UnknownArgument,
    UnknownOption,
    UnknownScheme,
)
from godwit.core.errors.broker import (
    BrokerBusy,
    BrokerClosed,
    BrokerError,
    BrokerUnavailable,
    NotOpen,
    NotReplicated,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
    StorageUnsupported,
)
from godwit.core.errors.conditions import (
    CircuitOpen,
    EffectHeld,
    ExtraRequired,
    JavaRequired,
    PartialPublish,
    QueueDraining,
    QueueFull,
    SchedulerRequired,
    StoreRequired,
)
from godwit.core.errors.existence import (
    AlreadyExistsError,
    GroupNotFound,
    LetterNotFound,
    MessageNotHeld,
    NotFoundError,
    NotRouted,
    QueueNotFound,
    ScheduleNotFound,
    SubscriptionNotFound,
    TopicNotFound,
    TopologyMismatch,
    Unroutable,
)
from godwit.core.errors.pipeline import (
    BodiesMissing,
    JournalDamaged,
    JournalLost,
    ManifestMoved,
    PipelineFailed,
    PlanTooDense,
    PositionGap,
    PositionMoved,
    SparkUnavailable,
    StagingLost,
)
from godwit.core.errors.root import GodwitError, listed, meant, shown
from godwit.core.errors.store import (
    ForeignConnection,
    SchemaOutdated,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

__all__ = [
    "AlreadyExistsError",
    "BlockedLoop",
    "BodiesMissing",
    "BrokerBusy",
    "BrokerClosed",
    "BrokerError",
    "BrokerUnavailable",
    "CircuitOpen",
    "ConfigurationError",
    "EffectHeld",
    "ExtraRequired",
    "ForeignConnection",
    "GodwitError",
    "GroupNotFound",
    "InvalidAckId",
    "InvalidArgumentError",
    "InvalidCondition",
    "InvalidHandler",
    "InvalidMessage",
    "InvalidName",
    "InvalidSchedule",
    "InvalidSetting",
    "JavaRequired",
    "JournalDamaged",
    "JournalLost",
    "LetterNotFound",
    "ManifestMoved",
    "MessageNotHeld",
    "NotFoundError",
    "NotOpen",
    "NotReplicated",
    "NotRouted",
    "PartialPublish",
    "PipelineFailed",
    "PlanTooDense",
    "PositionGap",
    "PositionMoved",
    "QueueDraining",
    "QueueFull",
    "QueueNotFound",
    "RowsRefused",
    "ScheduleNotFound",
    "SchedulerRequired",
    "SchemaOutdated",
    "SchemaTooNew",
    "SparkUnavailable",
    "StagingLost",
    "StorageCorrupt",
    "StorageFull",
    "StorageTooNew",
    "StorageUnsupported",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreRequired",
    "StoreUnavailable",
    "SubscriptionNotFound",
    "TopicNotFound",
    "TopologyMismatch",
    "TransformFailed",
    "UnknownArgument",
    "UnknownOption",
    "UnknownScheme",
    "Unroutable",
    "listed",
    "meant",
    "shown",
]
