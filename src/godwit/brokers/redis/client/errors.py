"""From what went wrong on the wire to the errors of this library."""

from __future__ import annotations

from typing import Final, NamedTuple

from godwit.core.errors import BrokerError, BrokerUnavailable, StorageFull


class ServedClient(NamedTuple):
    """A connection as its server calls it, and the run id of that server; both empty when they are not known."""

    id: int = 0
    run_id: str = ""


class LinkLost(Exception):
    """The connection could not be made, or broke; whether the call was carried out is not known."""

    client = ServedClient()
    """The connection, when it was one: the server may still read what was sent over it."""


class Refused(Exception):
    """The server answered with an error; its first word says which."""

    @property
    def word(self) -> str:
        """The kind of error: NOSCRIPT, OOM, READONLY, ..."""
        text = str(self)
        # Older servers wrap an error inside a script: ERR Error running script (call to f_...): ...: OOM ...
        return next((word for word in _WORDS if word in text), text.partition(" ")[0])


_WORDS: Final = (
    "NOSCRIPT", "READONLY", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "MISCONF", "MASTERDOWN", "LOADING",
    "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "VERSION", "MODE", "NOMASTER", "UNBLOCKED", "BUSY", "NOREPLICAS", "OOM",
)  # fmt: skip
PASSING: Final = frozenset({"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "NOREPLICAS"})
"""Errors that end by themselves: a server that starts, whose role changes, or a slot on its way to another server."""
ELSEWHERE: Final = frozenset({"READONLY", "CLUSTERDOWN", "MASTERDOWN"})
"""Errors after which another server may be the right one."""
UNTOUCHED: Final = PASSING | {"NOSCRIPT", "MOVED", "ASK"}
"""Errors after which a script may be sent again: it was not run."""

_REMEDIES: Final = {
    "READONLY": "Connect to the master: this is a replica, which takes no writes.",
    "NOAUTH": "Give the password in the URL (redis://:password@host) or in REDIS_PASSWORD.",
    "WRONGPASS": "Check the password (REDIS_PASSWORD) and the user name in the URL.",
    "NOPERM": "Let this user run the commands of streams, sorted sets, hashes and scripts on keys godwit:* and queues.",
    "WRONGTYPE": "Another program uses this key: remove it, or give the queue another name.",
    "MISCONF": "Give the server's disk room, or mend what its log says about saving.",
    "LOADING": "Wait until the server has loaded its data.",
    "CLUSTERDOWN": "Wait until the cluster serves all slots; `godwit doctor` says which it does not.",
    "MODE": "Use redis:// for a single server, redis+cluster:// for a cluster, redis+sentinel:// for sentinels.",
    "NOMASTER": "Check the master's name in the URL (redis+sentinel://host:port/master) and SENTINEL MASTERS.",
    "NOREPLICAS": "Start the replicas that min-replicas-to-write asks for, or lower it.",
}
_OTHERWISE: Final = "See the server's log; `godwit doctor` checks its settings."


def unavailable(address: str, error: LinkLost | Refused) -> BrokerError:
    """Return the error for a call that has failed for good."""
    if isinstance(error, LinkLost):
        remedy = "Check the address (REDIS_URL, REDIS_HOST) and that the server runs."
        return BrokerUnavailable(address, str(error), remedy)
    word, text = error.word, str(error)
    if word in {"MODE", "NOMASTER"}:
        return BrokerUnavailable(address, text.removeprefix(f"{word} "), _REMEDIES[word])
    if word == "VERSION":
        return BrokerUnavailable(address, text.removeprefix("VERSION "), "Use Redis 6.2 or newer, or Valkey.")
    if word == "OOM":
        return StorageFull(address)
    if word not in _REMEDIES and "AUTH" in text:  # ERR AUTH <password> called without any password configured ...
        word = "WRONGPASS"
    return BrokerUnavailable(address, text, _REMEDIES.get(word, _OTHERWISE))
