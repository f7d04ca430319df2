"""Which server has a key: one has all, a cluster's nodes share the slots, sentinels name the present master.

No I/O here: who wants to know asks those whom `asked` lists the `questions`, and gives the newest answers (see
`newness_of`) to `learn`. The event loop and the thread that renews leases do so each in their own way. Assignments are
whole values, so that both may look at any time.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import hiredis

from godwit.brokers.redis.client.errors import Refused
from godwit.brokers.redis.url import RedisUrl, Role, ServerAddress, TopologyKind

SLOTS: Final = 16_384
Question = tuple[str, ...]


@lru_cache(maxsize=16_384)
def slot_of(key: str) -> int:
    """Return the slot of a key: that of its hash tag, where it has one."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key.encode(), 0) % SLOTS


class Topology:
    """A single server that has everything."""

    may_be_deposed = False
    """Whether a server that comes back may still take itself for the master, so that others are asked first."""

    def __init__(self, target: RedisUrl) -> None:
        self.target = target
        self.generation = 0
        """How often something was learned; a failure seen before the last time may be out of date."""

    def address_of(self, key: str) -> ServerAddress | None:  # noqa: ARG002
        """Return the server of a key, None when no server is known to have it."""
        return self.target.data

    def channel_of(self, key: str) -> str:  # noqa: ARG002
        """Return what keys that one blocking command may wait for have in common."""
        return ""

    def addresses(self) -> Sequence[ServerAddress]:
        """Return all servers with data that are known."""
        return (self.target.data,)

    def asked(self) -> Sequence[ServerAddress]:
        """Return those who know where things are, the likeliest to answer first; none when it cannot change."""
        return ()

    questions: Sequence[Question] = ()
    """What to ask them."""

    def newness_of(self, asked: ServerAddress, answers: Sequence[Any]) -> tuple[int, int]:
        """Return how new answers are, the newest being the greatest; refuse those that say nothing."""
        raise AssertionError(f"one server is where it is: no other is asked, and {asked.place} was ({answers})")

    def learn(self, asked: ServerAddress, answers: Sequence[Any]) -> None:
        """Take the answers of one who was asked."""

    def moved(self, slot: int, place: str, asked: ServerAddress) -> None:
        """Take from a redirection where a slot is now."""
        raise Refused(f"MODE it is a node of a cluster: slot {slot} is on {place}, not on {asked.place}")

    def named(self, place: str, asked: ServerAddress) -> ServerAddress:
        """Return the server that a redirection names."""
        host, _, port = place.rpartition(":")
        host = host.strip("[]")
        return self.target.data.at(host if host not in {"", "?"} else asked.host, int(port))


class Sentinels(Topology):
    """A master, known to sentinels by a name."""

    may_be_deposed = True  # until the sentinels tell it otherwise, about ten seconds after its return

    def __init__(self, target: RedisUrl) -> None:
        super().__init__(target)
        self.questions = (
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master),
            ("SENTINEL", "MASTER", target.master),
        )
        self._master: ServerAddress | None = None
        self._sentinels = target.seeds

    def address_of(self, key: str) -> ServerAddress | None:  # noqa: ARG002
        """Return the present master."""
        return self._master

    def addresses(self) -> Sequence[ServerAddress]:
        """Return the master, when it is known."""
        return (self._master,) if self._master is not None else ()

    def asked(self) -> Sequence[ServerAddress]:
        """Return the sentinels, who answered last first."""
        return self._sentinels

    def newness_of(self, asked: ServerAddress, answers: Sequence[Any]) -> tuple[int, int]:
        """Return the epoch of the master's address: each failover has a higher one.

        The sentinel that leads a failover names the new master, with its epoch, before the failover has ended.
        """
        address, facts = answers
        if address is None:
            raise Refused(f"NOMASTER the sentinel {asked.place} knows no master {self.target.master!r}")
        found = _replied(facts)
        return 0, int(found[found.index(b"config-epoch") + 1]) if b"config-epoch" in found else 0

    def learn(self, asked: ServerAddress, answers: Sequence[Any]) -> None:
        """Take the master's address."""
        host, port = (_text(part) for part in _replied(answers[0]))
        self._master = self.target.data.at(host, int(port))
        self._sentinels = (asked, *(sentinel for sentinel in self._sentinels if sentinel != asked))
        self.generation += 1


class Cluster(Topology):
    """Nodes that share the slots."""

    questions = (("CLUSTER", "SLOTS"), ("CLUSTER", "INFO"))

    def __init__(self, target: RedisUrl) -> None:
        super().__init__(target)
        self._nodes: tuple[ServerAddress, ...] = ()
        self._slots: list[ServerAddress | None] = [None] * SLOTS

    def address_of(self, key: str) -> ServerAddress | None:
        """Return the master of the key's slot."""
        return self._slots[slot_of(key)]

    def channel_of(self, key: str) -> str:
        """Return the slot: a blocking command waits for keys of one alone."""
        return str(slot_of(key))

    def addresses(self) -> Sequence[ServerAddress]:
        """Return the masters."""
        return self._nodes

    def places(self) -> dict[int, str]:
        """Return the server of each slot that has one."""
        return {slot: address.place for slot, address in enumerate(self._slots) if address is not None}

    def asked(self) -> Sequence[ServerAddress]:
        """Return every node that is known, then those of the URL."""
        return tuple(dict.fromkeys((*self._nodes, *self.target.seeds)))

    def newness_of(self, asked: ServerAddress, answers: Sequence[Any]) -> tuple[int, int]:  # noqa: ARG002
        """Return whether the node takes part in the cluster, and the cluster's epoch as far as it has heard."""
        slots, info = map(_replied, answers)
        facts = dict(line.split(":", 1) for line in _text(info).splitlines() if ":" in line)
        if not slots:
            raise Refused("CLUSTERDOWN it knows of no slots")
        return int(facts.get("cluster_state") == "ok"), int(facts.get("cluster_current_epoch", 0))

    def learn(self, asked: ServerAddress, answers: Sequence[Any]) -> None:
        """Take the map of slots."""
        slots: list[ServerAddress | None] = [None] * SLOTS
        nodes: dict[ServerAddress, None] = {}
        for first, last, master, *_ in answers[0]:
            node = self.named(f"{_text(master[0])}:{int(master[1])}", asked)
            nodes[node] = None
            slots[first : last + 1] = [node] * (last + 1 - first)
        self._slots, self._nodes = slots, tuple(nodes)
        self.generation += 1

    def moved(self, slot: int, place: str, asked: ServerAddress) -> None:
        """Take from a redirection where a slot is now."""
        node = self.named(place, asked)
        self._slots[slot] = node
        if node not in self._nodes:
            self._nodes = (*self._nodes, node)


def _replied(reply: Any) -> Any:
    """Return a reply; an error is what it was refused with."""
    if isinstance(reply, hiredis.ReplyError):
        raise Refused(str(reply))
    return reply


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def topology(target: RedisUrl) -> Topology:
    """Return what a target is, nothing known yet."""
    return {TopologyKind.SINGLE: Topology, TopologyKind.SENTINEL: Sentinels, TopologyKind.CLUSTER: Cluster}[
        target.kind
    ](target)


def misplaced(role: Role, mode: str) -> Refused | None:
    """Return the refusal of a server whose mode (of INFO) is not what the URL says it is."""
    fits = {Role.SINGLE: "standalone", Role.MASTER: "standalone", Role.NODE: "cluster", Role.SENTINEL: "sentinel"}
    if not mode or mode == fits[role]:
        return None
    words = {"standalone": "a single server", "cluster": "a node of a cluster", "sentinel": "a sentinel"}
    return Refused(f"MODE it is {words.get(mode, mode)}, not a {_WANTED[role]}")


_WANTED: Final = {
    Role.SINGLE: "single server", Role.MASTER: "master", Role.NODE: "node of a cluster", Role.SENTINEL: "sentinel",
}  # fmt: skip
