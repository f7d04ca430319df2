"""The journal and the jobs over it."""

from __future__ import annotations

from godwit.core.errors.root import GodwitError, shown


class JournalLost(GodwitError):
    """The journal was trimmed past a reader's position, or is another journal than the reader knew."""

    def __init__(self, shard: str, asked: str, held: str, rows: int | None = None) -> None:
        self.shard, self.asked, self.held, self.rows = shard, asked, held, rows
        super().__init__(shard, asked, held, rows)

    @property
    def fact(self) -> str:
        lost = "" if self.rows is None else f": {self.rows:,} rows are lost"
        return f"Journal {shown(self.shard)} no longer holds {self.asked} (it holds {self.held}){lost}"

    @property
    def remedy(self) -> str:
        ways = "godwit pipeline: --accept-loss; Spark: failOnDataLoss=false; else read from the earliest position"
        return f"Accept it ({ways}), and keep the journal longer."


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
        return "Another process compacted them; there is nothing left to do."


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
    """Another run has published these rows; nothing was changed."""

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
