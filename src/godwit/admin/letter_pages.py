"""Reading dead letters page by page; how many are in memory depends on their size, not on their number."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from godwit.brokers.contract import PUBLISH_CHUNK, Administration, DeadLetter, DeadLetters, LetterId
from godwit.core.errors import LetterNotFound, NotFoundError
from godwit.core.names import GroupName, QueueName

FIRST_PAGE: Final = 25
LARGEST_PAGE: Final = PUBLISH_CHUNK
PAGE_BYTES: Final = 16 << 20

Pages = AsyncGenerator[list[DeadLetter], None]


def weight(letter: DeadLetter) -> int:
    """Return about how many bytes a letter takes: its body and its history."""
    return letter.envelope.size + sum(len(error.message) + len(error.traceback or "") for error in letter.errors)


def next_size(size: int, page: list[DeadLetter]) -> int:
    """Return how many letters to ask for next: twice as many, as long as such pages stay small."""
    heaviness = sum(map(weight, page)) / len(page)
    return max(1, min(LARGEST_PAGE, size * 2, int(PAGE_BYTES / max(1.0, heaviness))))


async def pages(letters: DeadLetters, name: QueueName, group: GroupName | None, after: LetterId | None = None) -> Pages:
    """Give the letters beyond `after` of a queue or a shared dead letter queue, in order, a page at a time."""
    size = FIRST_PAGE
    while page := await letters.page(name, group=group, after=after, limit=size):
        yield page
        if len(page) < size:
            return
        after, size = page[-1].id, next_size(size, page)


async def pages_of_all(broker: Administration, group: GroupName | None) -> Pages:
    """Give the letters of every queue, each once, although a queue may be the dead letter queue of others."""
    for queue in sorted(await broker.stats(), key=lambda queue: queue.name):
        if any(one.dead for one in queue.groups):
            async for page in pages(broker.dead_letters, queue.name, group):
                if own := [letter for letter in page if letter.queue == queue.name]:
                    yield own


async def find(letters: DeadLetters, letter_id: LetterId) -> DeadLetter:
    """Return one letter; raises `LetterNotFound`.

    Ids begin with queue, partition and group, like ack ids, and those of one group sort by time of death. So the letter
    is the first one beyond the id just before it; should a broker count in another way, all of the group are read.
    """
    queue, _, rest = letter_id.partition("#")
    group = rest.partition("#")[2].partition("#")[0]
    if not group:
        raise LetterNotFound(letter_id)
    place = (QueueName(queue), GroupName(group))
    try:
        just_before = _before(letter_id)
        if just_before is not None:
            page = await letters.page(place[0], group=place[1], after=just_before, limit=1)
            if page and page[0].id == letter_id:
                return page[0]
        async for page in pages(letters, *place):
            for letter in page:
                if letter.id == letter_id:
                    return letter
    except NotFoundError:
        pass  # the queue is gone, and its letters with it
    raise LetterNotFound(letter_id)


def _before(letter_id: LetterId) -> LetterId | None:
    head, _, number = letter_id.rpartition("#")
    if not (number.isascii() and number.isdecimal()) or int(number) == 0:
        return None
    return LetterId(f"{head}#{int(number) - 1:0{len(number)}d}")
