"""The dead letters a store keeps for brokers that cannot list their own."""

from __future__ import annotations

from godwit.core.failure import FailureKind
from godwit.core.keeping import KeptLetter
from godwit.store.contract import Store


def letter(number: int, *, queue: str = "orders", group: str = "default", under: str | None = None) -> KeptLetter:
    return KeptLetter(
        id=f"{queue}/{group}/{number}", queue=queue, group=group, message_id=f"m{number}", publish_seq=number,
        type="order", dead_letter_queue=under, kind=FailureKind.POISON, fingerprint=None, dead_at_ms=1_000 + number,
        attempt=3, failures=1, crashes=2, body=b"\x00body",
    )  # fmt: skip


async def test_letters_come_back_whole_oldest_first_in_pages(store: Store) -> None:
    letters = [letter(number) for number in (3, 1, 2)]
    await store.letters.keep(letters)
    await store.letters.keep(letters[:1])
    assert await store.letters.page("orders") == letters
    assert await store.letters.page("orders", limit=2) == letters[:2]
    assert await store.letters.page("orders", after=letters[1].id) == letters[2:]
    assert await store.letters.page("orders", group="other") == []
    assert await store.letters.fetch([letters[2].id, "nobody"]) == letters[2:]


async def test_a_dead_letter_queue_lists_those_of_several_queues(store: Store) -> None:
    await store.letters.keep([letter(1, under="dlq"), letter(2, queue="mail", under="dlq"), letter(3, queue="other")])
    assert [one.queue for one in await store.letters.page("dlq")] == ["orders", "mail"]
    assert await store.letters.count() == {("orders", "default"): 1, ("mail", "default"): 1, ("other", "default"): 1}


async def test_removing_names_those_that_were_not_there(store: Store) -> None:
    await store.letters.keep([letter(1), letter(2)])
    assert await store.letters.remove([letter(1).id, "nobody"]) == ["nobody"]
    assert await store.letters.remove([letter(1).id]) == [letter(1).id]
    assert await store.letters.page("orders") == [letter(2)]
