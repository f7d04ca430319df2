"""What time asks for in all queues; what fails in one of them holds up no other."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from godwit.brokers.redis.client.errors import PASSING, Refused
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.dead_letters import RedisDeadLetters
from godwit.brokers.redis.inbox import Inbox
from godwit.brokers.redis.journal import RedisJournal
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.brokers.redis.layout.repartition import finish_repartitioning
from godwit.brokers.redis.recount import recount_group
from godwit.brokers.redis.shared import RedisShared
from godwit.core import background
from godwit.core.error_text import error_text
from godwit.core.errors import BrokerClosed, BrokerError, BrokerUnavailable, GodwitError
from godwit.core.logs import get_logger
from godwit.core.names import GroupName, QueueName

T = TypeVar("T")
PART_SECONDS: Final = 3.0
"""How long each part of a round may take that has no end of its own: the parts behind it get their turn."""
PART_MESSAGES: Final = 10_000
"""How many messages of one queue a part moves, at about 100,000 a second."""
COUNT_AGAIN_SECONDS: Final = 60.0
"""How long a group is left alone in which nothing was found to mend."""
log = get_logger(__name__)


class RedisMaintenance:
    """Leases that ran out, expiry, delays, inboxes, dead letters, ids, repartitioning, shared values and journals."""

    def __init__(
        self,
        reach: ScriptRunner,
        catalog: Catalog,
        inbox: Inbox,
        letters: RedisDeadLetters,
        journal: RedisJournal,
        shared: RedisShared,
    ) -> None:
        self._reach, self._catalog, self._inbox = reach, catalog, inbox
        self._letters, self._journal, self._shared = letters, journal, shared
        self._troubles: dict[str, str] = {}
        self._turns: dict[str, int] = {}
        self._sound_until: dict[tuple[QueueName, GroupName, int], float] = {}
        self._well = 0
        """Steps that went well in this round."""

    async def run(self) -> int:
        """Do it all once; return the number of changes. An error is raised only when nothing went well."""
        before, self._troubles, self._well = self._troubles, {}, 0
        errors: list[BrokerError] = []
        changes = await self._round(errors)
        for queue, trouble in self._troubles.items():
            if before.get(queue) != trouble:
                log.error("a queue cannot be maintained", queue=queue, error=trouble)
        if errors and not self._well:
            raise errors[0]
        return changes

    async def _round(self, errors: list[BrokerError]) -> int:
        queues = {queue.name: queue for queue in await self._catalog.all()}
        changes = await self._expire(list(queues.values()), errors)
        changes += await self._move_inboxes(list(queues.values()), errors)
        changes += await self._feed(queues, errors)
        shards = [(name, partition) for name, queue in queues.items() for partition in queue.partitions]
        forgotten = [(shard[0], (*keys.step(*shard), *keys.arrivals(*shard)[:3]), ()) for shard in shards]
        self._taken(shards, await self._reach.run_each("forget", forgotten), errors)
        for queue in queues.values():
            if queue.spec.older:
                await self._alone(
                    queue.name, errors, partial(finish_repartitioning, self._reach, self._catalog, queue), None
                )
        await self._alone("shared values", errors, self._shared.forget, None)
        trim = self._journal.trim_all
        await self._alone("journals", errors, lambda: trim({name: queue.spec for name, queue in queues.items()}), 0)
        return changes

    async def _expire(self, queues: Sequence[QueueConfig], errors: list[BrokerError]) -> int:
        """Do what time asks for in all groups."""
        changes = 0
        left = [queue.at(partition) for queue in queues if queue.groups for partition in queue.partitions]
        until = time.monotonic() + PART_SECONDS
        while left:
            answers = await self._reach.run_each("maintain", [_care_of(queue) for queue in left], signed=True)
            changes += await self._recount_failed(left, answers, errors)
            found = self._taken(left, answers, errors)
            changes += sum(done for _, (done, *_) in found)
            for queue, (_, _, doubtful) in found:
                for number in doubtful:
                    changes += await self._recount(queue, list(queue.groups)[number - 1], errors)
            left = [queue for queue, (done, more, _) in found if done and more] if time.monotonic() < until else []
        return changes

    async def _recount(self, queue: QueueConfig, group: GroupName, errors: list[BrokerError]) -> int:
        """Count a group anew, unless nothing was found to mend there a short time ago: it takes long."""
        place, now = (queue.name, group, queue.partition), time.monotonic()
        if now < self._sound_until.get(place, 0.0):
            return 0
        mended = await self._alone(queue.name, errors, partial(recount_group, self._reach, queue, group), 0)
        if not mended:
            self._sound_until[place] = now + COUNT_AGAIN_SECONDS
        return mended

    async def _recount_failed(
        self, queues: Sequence[QueueConfig], answers: Sequence[Any], errors: list[BrokerError]
    ) -> int:
        """Count the groups anew where a script failed: what it met there may be what does not agree."""
        changes = 0
        for queue, answer in zip(queues, answers, strict=True):
            cause = answer.__cause__ if isinstance(answer, BrokerUnavailable) else None
            if isinstance(cause, Refused) and cause.word not in PASSING:
                for group in queue.groups:
                    changes += await self._recount(queue, group, errors)
        return changes

    async def _move_inboxes(self, queues: Sequence[QueueConfig], errors: list[BrokerError]) -> int:
        changes = 0
        waiting = await self._reach.ask_each(*(("EXISTS", keys.inbox(queue.name)) for queue in queues))
        filled = [queue for queue, there in self._taken(queues, waiting, errors) if there]
        for queue in self._in_turn("inboxes", filled):
            move = partial(self._inbox.move, queue.name, most=PART_MESSAGES)
            changes += await self._alone(queue.name, errors, move, 0)
        return changes

    async def _feed(self, queues: Mapping[QueueName, QueueConfig], errors: list[BrokerError]) -> int:
        """Move dead letters into declared dead letter queues."""
        changes = 0
        fed = {name: queues.get(queue.spec.dead_letter_queue or "") for name, queue in queues.items()}
        targets = {name: target for name, target in fed.items() if target is not None and target.groups}
        for queue in self._in_turn("letters", [queues[name] for name in targets]):
            feed = partial(self._letters.feed, queue, targets[queue.name], most=PART_MESSAGES)
            changes += await self._alone(queue.name, errors, feed, 0)
        return changes

    def _in_turn(self, part: str, queues: Sequence[QueueConfig]) -> Iterator[QueueConfig]:
        """Give queues until the time of this part is up, beginning behind the last one of the round before."""
        until = time.monotonic() + PART_SECONDS
        first = self._turns.get(part, 0) % len(queues) if queues else 0
        for number, queue in enumerate((*queues[first:], *queues[:first]), 1):
            yield queue
            if time.monotonic() >= until:
                self._turns[part] = first + number
                return

    async def _alone(self, name: str, errors: list[BrokerError], step: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """Do a step for one queue; what goes wrong is noted, and the others go on."""
        try:
            answer = await step()
        except BrokerClosed:
            raise
        except GodwitError as error:
            self._note(name, error, errors)
            return otherwise
        except Exception as error:  # noqa: BLE001 - one queue never ends the upkeep of the others
            if name not in self._troubles:
                background.failed("maintenance", error, queue=name)
            self._troubles[name] = error_text(error)
            return otherwise
        self._well += 1
        return answer

    def _taken(self, asked: Iterable[T], answers: Sequence[Any], errors: list[BrokerError]) -> list[tuple[T, Any]]:
        """Return what was answered, with whom it is about; note what failed."""
        found = []
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, GodwitError):
                name = one.name if isinstance(one, QueueConfig) else one[0]  # type: ignore[index]
                self._note(name, answer, errors)
            else:
                self._well += 1
                found.append((one, answer))
        return found

    def _note(self, name: str, error: GodwitError, errors: list[BrokerError]) -> None:
        self._troubles[name] = str(error)
        if isinstance(error, BrokerError):
            errors.append(error)


def _care_of(queue: QueueConfig) -> tuple[QueueName, tuple[str, ...], tuple[str, ...]]:
    """Return queue, keys and arguments of `maintain.lua`."""
    blocks = (key for group in queue.groups for key in keys.block(queue.name, group, queue.partition))
    return queue.name, (*keys.step(queue.name, queue.partition), *blocks), tuple(queue.groups)
