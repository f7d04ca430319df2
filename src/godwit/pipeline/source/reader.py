"""Journals read from synchronous code: the bridge between Spark's workers and a broker's async port."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from godwit.brokers.contract import Broker, Journal
from godwit.brokers.urls import connect
from godwit.core.errors import JournalLost
from godwit.core.journal import Position
from godwit.core.logs import get_logger
from godwit.pipeline.source.offsets import Range

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
log = get_logger(__name__)
READ_ROWS: Final = 10_000


class OpenBroker:
    """A broker opened in this thread, asked synchronously. It belongs to the process that opened it."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._broker = connect(url)

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._broker.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._broker.close())
        finally:
            self._runner.close()

    @property
    def broker(self) -> Broker:
        """The broker itself, for `ask`."""
        return self._broker

    def ask(self, question: Callable[[Journal], Awaitable[T]]) -> T:
        """Return the answer to a question about the journal."""
        return self.do(lambda broker: question(broker.journal))

    def do(self, call: Callable[[Broker], Awaitable[T]]) -> T:
        """Carry out a call."""

        async def carry_out() -> T:
            return await call(self._broker)

        return self._runner.run(carry_out())


class Turner(Protocol):
    """Turns chunks of one shard into Arrow."""

    def add(self, chunks: Sequence[bytes], after: int, until: int) -> int:
        """Take the rows of chunks beyond `after` and up to `until`; return the seq of the last chunk's last row."""
        ...

    def full(self) -> Iterator[pa.RecordBatch]:
        """Give what need not wait for more."""
        ...

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Give what is left."""
        ...


def batches(url: str, wanted: Range, turner: Turner, *, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """Give the rows of a range as what `turner` makes of them."""
    # Rows live until their batch is made and hold no cycles: looking for garbage among them only costs time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with OpenBroker(url) as opened:
            after = wanted.after
            while after < wanted.until:
                try:
                    chunks = chunks_of(opened, wanted, after)
                except JournalLost as lost:
                    after = _skip(opened, wanted, after, lost, fail_on_data_loss=fail_on_data_loss)
                    continue
                if not chunks:
                    raise JournalLost(wanted.shard, f"rows {after + 1:,} to {wanted.until:,}", "fewer")
                after = max(after, turner.add(chunks, after, wanted.until))
                yield from turner.full()
        yield from turner.rest()
    finally:
        if collecting:
            gc.enable()


def chunks_of(opened: OpenBroker, wanted: Range, after: int) -> list[bytes]:
    """Return the next chunks of a range."""
    place, limit = Position(wanted.epoch, after), min(READ_ROWS, wanted.until - after)
    return opened.ask(lambda journal: journal.read(wanted.shard, place, limit=limit))


def _skip(opened: OpenBroker, wanted: Range, after: int, lost: JournalLost, *, fail_on_data_loss: bool) -> int:
    """Return where to go on when rows were trimmed while they were being read."""
    ends = opened.ask(lambda journal: journal.shards()).get(wanted.shard)
    if fail_on_data_loss or ends is None or ends.epoch != wanted.epoch or ends.first_seq - 1 <= after:
        raise lost
    until = ends.first_seq - 1
    log.warning("journal rows were lost", shard=wanted.shard, rows=until - after, first=after + 1, last=until)
    return until
