"""The doctor at a RabbitMQ server; with three nodes and their management interface it is in test_cluster.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pamqp import commands

from godwit.admin.doctor import Severity, examine
from godwit.admin.doctor.rabbitmq.management import judge_members, judge_nodes
from godwit.admin.doctor.rabbitmq.protocol import version
from godwit.core.errors import BrokerUnavailable
from tests.brokers.rabbitmq import raw
from tests.conformance.harness import G, Harness, Q
from tests.servers.rabbitmq import RabbitNode

SHORT = timedelta(milliseconds=500)


async def test_a_single_node_is_examined_and_what_cannot_be_seen_is_said(rabbit: Harness, node: RabbitNode) -> None:
    await rabbit.declare()
    found = {finding.check: finding for finding in await examine(rabbit._backend._url, span=SHORT)}  # type: ignore[attr-defined]
    shown = ".".join(map(str, (await raw.of(rabbit).connection()).version))
    assert found["version"].found.startswith(f"RabbitMQ {shown}")
    assert found["alarms"].severity is Severity.OK
    assert found["nodes"].severity is Severity.NOTE
    assert "rabbitmq_management" in found["nodes"].remedy


async def test_a_group_that_the_server_does_not_have_is_a_problem(rabbit: Harness, node: RabbitNode) -> None:
    await rabbit.declare()
    async with raw.channel(node.url) as channel:
        await channel.call(commands.Queue.Delete(queue=raw.of(rabbit).names.group(Q, G)))
    findings = await examine(rabbit._backend._url, span=SHORT)  # type: ignore[attr-defined]
    (missing,) = [finding for finding in findings if finding.check == "queues"]
    assert missing.severity is Severity.PROBLEM
    await rabbit.declare()


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(BrokerUnavailable):
        await examine("amqp://guest:guest@127.0.0.1:1/", span=SHORT)


@pytest.mark.parametrize(("found", "severity"), [((3, 10, 8), "note"), ((4, 1, 0), "ok"), ((), "note")])
def test_old_versions_are_worth_knowing(found: tuple[int, ...], severity: str) -> None:
    assert version(found).severity == severity


def nodes(count: int, **last: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [{"name": f"rabbit@h{n}", "running": True} for n in range(count)]
    made[-1].update(last)
    return made


@pytest.mark.parametrize(
    ("seen", "severity"),
    [
        (nodes(3), "ok"),
        (nodes(5), "ok"),
        (nodes(1), "warning"),
        (nodes(2), "warning"),
        (nodes(3, running=False), "problem"),
        (nodes(3, mem_alarm=True), "problem"),
        (nodes(3, disk_free_alarm=True), "problem"),
    ],
)
def test_fewer_than_three_nodes_one_that_is_down_and_alarms_are_told(seen: list[dict[str, Any]], severity: str) -> None:
    assert judge_nodes(seen).severity == severity


def test_quorum_queues_with_too_few_or_absent_members_are_told() -> None:
    def queue(name: str, members: int, online: int) -> dict[str, Any]:
        return {"name": name, "type": "quorum", "members": list("abc"[:members]), "online": list("abc"[:online])}

    assert [one.severity for one in judge_members([queue("q", 3, 3)], ["q"])] == ["ok"]
    assert [one.severity for one in judge_members([queue("q", 1, 1), queue("r", 3, 2)], ["q", "r"])] == [
        "warning",
        "problem",
    ]
    assert [one.severity for one in judge_members([queue("somebody else's", 1, 1)], ["q"])] == ["ok"]
