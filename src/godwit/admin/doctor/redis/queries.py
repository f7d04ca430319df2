"""Asks the nodes of a cluster, or sentinels, how they are."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import hiredis

from godwit.admin.doctor.redis.topologies import ClusterFacts, SentinelFacts, read_nodes
from godwit.brokers.redis.client.connection import RedisConnection
from godwit.brokers.redis.client.errors import LinkLost, Refused, unavailable
from godwit.brokers.redis.client.topology import Cluster
from godwit.brokers.redis.url import RedisUrl, ServerAddress

_SECONDS = 5.0


async def ask(address: ServerAddress, *commands: tuple[str, ...]) -> list[Any]:
    """Send commands to one server; errors are values."""
    link = RedisConnection(address)
    await link.open(_SECONDS)
    try:
        return await link.send(*commands)
    finally:
        link.close()


async def ask_cluster(target: RedisUrl) -> tuple[ClusterFacts, dict[int, str]]:
    """Return what the first node that answers says, and the masters of all slots."""
    problem: LinkLost | Refused = LinkLost("no server was asked")
    for seed in target.seeds:
        try:
            nodes, slots = await ask(seed, ("CLUSTER", "NODES"), ("CLUSTER", "SLOTS"))
        except (LinkLost, Refused) as error:
            problem = error
            continue
        cluster = Cluster(target)
        cluster.learn(seed, (slots,))
        return read_nodes(nodes.decode()), cluster.places()
    raise unavailable(target.shown, problem)


async def ask_sentinels(target: RedisUrl) -> tuple[SentinelFacts, str | None]:
    """Return what the sentinels say, and where the master is."""
    silent: list[str] = []
    answers: list[list[Any]] = []
    problem: LinkLost | Refused = LinkLost("no server was asked")
    name = target.master
    for seed in target.seeds:
        try:
            answers.append(await ask(seed, ("SENTINEL", "MASTER", name), ("SENTINEL", "CKQUORUM", name)))
        except (LinkLost, Refused) as error:
            silent.append(seed.place)
            problem = error
    if not answers:
        raise unavailable(target.shown, problem)
    said, quorum = answers[0]
    if isinstance(said, hiredis.ReplyError):
        raise unavailable(target.shown, Refused(f"NOMASTER the sentinels know no master {name!r}"))
    words = [word.decode() for word in said]
    known = dict(zip(words[::2], words[1::2], strict=True))
    refusal = isinstance(quorum, hiredis.ReplyError)
    facts = SentinelFacts(
        answered=len(answers),
        silent=silent,
        known=int(known.get("num-other-sentinels", 0)) + 1,
        quorum=int(known.get("quorum", 0)),
        usable=not refusal,
        why_not=str(quorum).removeprefix("NOQUORUM ") if refusal else "",
    )
    down = "o_down" in known.get("flags", "") or "s_down" in known.get("flags", "")
    return facts, None if down else f"{known['ip']}:{known['port']}"


def url_at(url: str, place: str) -> str:
    """Return the URL of one server, entered as the URL of all of them says."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    names = [name for name in parts.path.split("/") if name]
    database = names[1:2] if parts.scheme.endswith("+sentinel") else names[:1]
    ours = ("replicas=", "sentinel_")
    query = "&".join(option for option in parts.query.split("&") if option and not option.startswith(ours))
    scheme = parts.scheme.partition("+")[0]
    return urlunsplit((scheme, f"{account}{at}{place}", f"/{''.join(database) or 0}", query, ""))
