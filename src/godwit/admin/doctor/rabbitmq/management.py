"""What only the management interface of a RabbitMQ server tells: nodes, quorum members, deprecated features."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote

from godwit.admin.doctor.findings import Finding, note, ok, problem, warning
from godwit.brokers.rabbitmq.url import Address

ENOUGH_NODES: Final = 3
_SECONDS: Final = 3


async def cluster_findings(url: str, queues: list[str]) -> list[Finding]:
    """Judge the cluster, when its management interface answers."""
    address = Address.from_url(url)
    for host, _ in address.hosts:
        try:
            nodes = await _ask(address, host, "nodes")
        except OSError:
            continue
        listed = await _ask(address, host, f"queues/{quote(address.vhost, safe='')}")
        deprecated = await _deprecated(address, host)
        return [judge_nodes(nodes), *judge_members(listed, queues), *deprecated]
    why = "Number of nodes, quorum members and deprecated features can only be seen through it."
    remedy = "Enable it (rabbitmq-plugins enable rabbitmq_management), or give its port with ?management=PORT."
    return [note("nodes", "the management interface does not answer", why, remedy)]


async def _ask(address: Address, host: str, path: str) -> Any:
    scheme = "https" if address.secure else "http"
    request = urllib.request.Request(f"{scheme}://{host}:{address.management}/api/{path}")  # noqa: S310 (http or https)
    login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
    request.add_header("Authorization", f"Basic {login}")

    def fetch() -> Any:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 (as above)
            return json.load(answer)

    return await asyncio.to_thread(fetch)


async def _deprecated(address: Address, host: str) -> list[Finding]:
    try:
        used = await _ask(address, host, "deprecated-features/used")
    except urllib.error.HTTPError:
        return []  # before 3.13 nothing tells
    names = [str(one.get("name")) for one in used]
    if not names:
        return [ok("features", "no deprecated feature is used")]
    why = "The next major version will refuse to start with them."
    return [warning("features", f"deprecated features are used: {', '.join(names)}", why, "See the server's log.")]


def judge_nodes(nodes: list[dict[str, Any]]) -> Finding:
    """Judge how many nodes there are, and whether all run without alarms."""
    down = [str(node["name"]) for node in nodes if not node.get("running")]
    alarmed = [str(node["name"]) for node in nodes if node.get("mem_alarm") or node.get("disk_free_alarm")]
    if alarmed:
        why = "A memory or disk alarm on one node blocks the publishers of all."
        return problem("nodes", f"alarm on {', '.join(alarmed)}", why, "Free memory or disk there.")
    if down:
        why = "A quorum queue works while most of its members do; the next failure may stop it."
        return problem("nodes", f"{len(down)} of {len(nodes)} nodes are down: {', '.join(down)}", why, "Start them.")
    if len(nodes) < ENOUGH_NODES:
        why = "With fewer than three nodes the loss of one stops every quorum queue, or loses it."
        return warning(
            "nodes", f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}", why, "Run three nodes in production."
        )
    return ok("nodes", f"{len(nodes)} nodes, all running")


def judge_members(listed: list[dict[str, Any]], queues: list[str]) -> list[Finding]:
    """Judge whether every quorum queue has three members that are online."""
    few, offline = [], []
    for one in listed:
        if one.get("type") != "quorum" or (
            one["name"] not in queues and not str(one["name"]).startswith("godwit.hold")
        ):
            continue
        members, online = one.get("members") or [], one.get("online") or []
        if len(members) < ENOUGH_NODES:
            few.append(str(one["name"]))
        elif len(online) < len(members):
            offline.append(str(one["name"]))
    findings = []
    if few:
        why = "A queue made on a smaller cluster does not grow with it: its data has too few copies."
        remedy = "Add members: rabbitmq-queues grow NODE all (needs three nodes)."
        findings.append(
            warning("members", f"{len(few)} quorum queues have fewer than 3 members ({few[0]})", why, remedy)
        )
    if offline:
        why = "A member that is away makes the queue less safe until it is back."
        findings.append(
            problem(
                "members", f"{len(offline)} quorum queues have members offline ({offline[0]})", why, "Start the node."
            )
        )
    return findings or [ok("members", "every quorum queue has three members online")]
