"""What can be wrong with a server, a URL or a message: a typed error that says what and what to do, nothing lost."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from pamqp import commands

from godwit.brokers.contract import Ack
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.core.errors import BrokerUnavailable, GodwitError, InvalidMessage, InvalidSetting, StorageCorrupt
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import LONG, G, Harness, Q, ids_of
from tests.servers.rabbitmq import RabbitNode
from tests.waiting import eventually

PATIENT = timedelta(seconds=5)


@pytest.mark.parametrize(
    ("login", "vhost", "reason", "remedy"),
    [
        ("guest:wrong", "", "login refused", "Check user and password"),
        ("nobody:guest", "", "login refused", "Check user and password"),
        ("guest:guest", "nowhere", "vhost nowhere not found", "Create virtual host 'nowhere'"),
    ],
)
async def test_a_login_that_fails_says_why_and_shows_no_password(
    node: RabbitNode, tmp_path: Path, login: str, vhost: str, reason: str, remedy: str
) -> None:
    url = f"amqp://{login}@127.0.0.1:{node.port}/{vhost}?ledger={tmp_path / 'l.db'}"
    with pytest.raises(BrokerUnavailable) as caught:
        async with RabbitMQBroker(url):
            pass
    assert reason in caught.value.fact
    assert remedy in caught.value.remedy
    assert "wrong" not in str(caught.value)


async def test_a_vhost_without_permission_says_which_permissions_are_missing(node: RabbitNode, tmp_path: Path) -> None:
    node.evaluate(
        'rabbit_auth_backend_internal:add_user(<<"limited">>, <<"secret">>, <<"test">>),'
        "rabbit_auth_backend_internal:set_permissions("
        '<<"limited">>, <<"/">>, <<"^$">>, <<".*">>, <<".*">>, <<"test">>).'
    )
    url = f"amqp://limited:secret@127.0.0.1:{node.port}/?ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}."
    with pytest.raises(BrokerUnavailable) as caught:
        async with RabbitMQBroker(url) as broker:
            await broker.declare(QueueSpec(name=Q))
    assert "access" in caught.value.fact
    assert "permissions configure, write and read" in caught.value.remedy
    assert "secret" not in str(caught.value)


async def test_nobody_at_the_address_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="Check that RabbitMQ runs at"):
        async with RabbitMQBroker(f"amqp://guest:guest@127.0.0.1:1/?ledger={tmp_path / 'l.db'}"):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "amqp://",
        "amqp://h:port/",
        "http://h/",
        "amqp://h/?nonsense=1",
        "amqp://h/?blocked=maybe",
        "amqp://h/?heartbeat=soon",
        "amqp://u:secret@/",
    ],
)
def test_a_url_that_cannot_be_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        RabbitMQBroker(url)
    assert "secret" not in str(caught.value)


async def test_a_ledger_that_is_another_programs_file_is_left_alone(node: RabbitNode, tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("not a database, but somebody's notes")
    with pytest.raises(StorageCorrupt):
        async with RabbitMQBroker(f"{node.url}?ledger={file}"):
            pass
    assert file.read_text() == "not a database, but somebody's notes"


@pytest.fixture
def two_ways(node: RabbitNode, tmp_path: Path) -> dict[str, RabbitMQBroker]:
    """Give a broker that waits when it is blocked, and one that fails."""
    base = f"{node.url}?ledger={tmp_path / 'l.db'}&namespace={tmp_path.name}."
    return {way: RabbitMQBroker(f"{base}&blocked={way}&publish_timeout=30") for way in ("wait", "fail")}


async def test_publishers_blocked_by_an_alarm_wait_or_fail_as_set_and_nothing_is_lost(
    two_ways: dict[str, RabbitMQBroker], node: RabbitNode
) -> None:
    async with two_ways["wait"] as waits, two_ways["fail"] as fails:
        await waits.declare(QueueSpec(name=Q))
        await waits.publish([seal(Message(id="before", queue=Q))])
        await fails.publish([seal(Message(id="too", queue=Q))])
        await asyncio.to_thread(node.evaluate, "vm_memory_monitor:set_vm_memory_high_watermark(0.00001).")
        try:
            # The server tells a connection once it is asked to take something.
            waiting = asyncio.create_task(waits.publish([seal(Message(id="waits", queue=Q))]))

            async def refused() -> bool:
                try:
                    await fails.publish([seal(Message(id="fails", queue=Q))])
                except BrokerUnavailable as error:
                    return "blocks publishers" in error.fact and "Free memory or disk" in error.remedy
                return False

            await eventually(refused, within=timedelta(seconds=30), what="a refused publish")
            assert not waiting.done()
        finally:
            await asyncio.to_thread(node.evaluate, "vm_memory_monitor:set_vm_memory_high_watermark(0.8).")
        await waiting
        got: set[str] = set()

        async def all_there() -> bool:
            deliveries = await waits.pull(Q, G, worker="w", limit=10, lease=LONG)
            got.update(ids_of(deliveries))
            await waits.settle([Ack(one.ack_id) for one in deliveries])
            return {"before", "too", "waits"} <= got

        await eventually(all_there, what="everything accepted")
        await waits.remove(Q)


async def test_a_message_over_the_servers_limit_is_refused_and_the_broker_goes_on(
    rabbit: Harness, node: RabbitNode
) -> None:
    await rabbit.declare()
    node.evaluate("application:set_env(rabbit, max_message_size, 20000), persistent_term:put(max_message_size, 20000).")
    try:
        with pytest.raises(InvalidMessage, match="refused by the server"):
            await rabbit.publish("large", payload="x" * 30_000)
        await rabbit.publish("small")
    finally:
        node.evaluate(
            "application:set_env(rabbit, max_message_size, 134217728),persistent_term:put(max_message_size, 134217728)."
        )
    assert await rabbit.ids() == ["small"]


async def test_a_message_of_many_frames_comes_out_as_it_went_in(rabbit: Harness) -> None:
    await rabbit.declare()
    sent = rabbit.envelope("large", payload="ä" * 1_000_000)
    await rabbit.broker.publish([sent])
    (delivery,) = await rabbit.pull(wait=PATIENT)
    assert delivery.envelope == sent


async def send(node: RabbitNode, rabbit: Harness, body: bytes, **properties: str) -> None:
    """Publish as a program without Godwit would."""
    names = raw.of(rabbit).names
    async with raw.channel(node.url) as channel:
        connection = channel._connection
        from pamqp.body import ContentBody
        from pamqp.frame import marshal
        from pamqp.header import ContentHeader

        header = ContentHeader(body_size=len(body), properties=commands.Basic.Properties(**properties))  # type: ignore[arg-type]
        frames: list[object] = [
            commands.Basic.Publish(exchange=names.exchange(Q), routing_key="foreign.key"),
            header,
            *([ContentBody(body)] if body else []),
        ]
        connection.write(b"".join(marshal(frame, channel.number) for frame in frames))  # type: ignore[arg-type]
        await channel.call(commands.Queue.Declare(queue=names.group(Q, G), passive=True))


async def test_foreign_json_without_our_headers_is_a_message_at_its_first_attempt(
    rabbit: Harness, node: RabbitNode
) -> None:
    await rabbit.declare()
    await send(node, rabbit, json.dumps({"user": 7}).encode(), message_id="theirs", message_type="birthday")
    await send(node, rabbit, b"[1, 2]")
    one, two = [*await rabbit.pull(1, wait=PATIENT, lease=LONG), *await rabbit.pull(1, wait=PATIENT, lease=LONG)]
    assert (one.message_id, one.attempt, one.failures) == ("theirs", 1, 0)
    message = one.open()
    assert (message.payload, message.type) == ({"user": 7}, "birthday")
    assert (two.open().payload, two.open().type) == ([1, 2], "foreign.key")
    await rabbit.retry(one, timedelta(milliseconds=100))
    (again,) = await rabbit.pull(1, wait=PATIENT)
    assert (again.message_id, again.attempt, again.failures) == ("theirs", 2, 1)
    assert (await rabbit.events()).count("enqueued") == 2


@pytest.mark.parametrize("body", [b"\xff\xfe not text", b"{broken", b""], ids=["bytes", "broken", "empty"])
async def test_foreign_messages_that_cannot_be_read_are_dead_letters_with_their_bytes(
    rabbit: Harness, node: RabbitNode, body: bytes
) -> None:
    await rabbit.declare()
    await send(node, rabbit, body)
    await rabbit.publish("ours")
    got: list[str] = []

    async def both() -> bool:
        got.extend(await rabbit.ids())
        return got == ["ours"] and len(await rabbit.letters()) == 1

    await eventually(both, what="one message and one letter")
    (letter,) = await rabbit.letters()
    assert (letter.kind, letter.envelope.body) == (FailureKind.PERMANENT, body)
    assert "not JSON" in letter.errors[0].message


async def test_every_error_of_a_declaration_leaves_the_broker_usable(rabbit: Harness, node: RabbitNode) -> None:
    async with raw.channel(node.url) as channel:
        name = raw.of(rabbit).names.exchange(Q)
        await channel.call(commands.Exchange.Declare(exchange=name, exchange_type="fanout"))
        with pytest.raises(GodwitError):
            await rabbit.declare()
        await channel.call(commands.Exchange.Delete(exchange=name))
    await rabbit.declare()
    await rabbit.publish("a")
    assert await rabbit.ids() == ["a"]
    assert QueueName(Q) in [one.name for one in await rabbit.broker.stats()]
