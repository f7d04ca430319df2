"""Wake-ups between processes: each has a datagram socket in a directory beside the file, and rings all others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SUFFIX: Final = ".sock"
SETTLED_SECONDS: Final = 0.1
"""A directory changed so recently may change again within the same tick of its file system's clock."""
DATAGRAM_BYTES: Final = 60_000


class WakeSocket:
    """Our socket, and the way to those of other processes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        # Paths of sockets end at 108 bytes; through the directory's descriptor they are always short.
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._receiver: socket.socket | None = None
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        self._others: list[str] = []
        self._listed = -1

    def _path(self, name: str) -> str:
        return f"/proc/self/fd/{self._directory}/{name}"

    def listen(self, loop: asyncio.AbstractEventLoop, heard: Callable[[set[str]], None]) -> None:
        """Call `heard` with the names of queues, from now on."""
        if self._receiver is not None:
            return
        receiver = self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        receiver.bind(self._path(self._name))
        loop.add_reader(receiver, self._receive, heard)

    def _receive(self, heard: Callable[[set[str]], None]) -> None:
        names: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            while self._receiver is not None:
                names.update(self._receiver.recv(DATAGRAM_BYTES).decode().split("\n"))
        heard(names)

    def ring(self, names: set[str]) -> None:
        """Tell all other processes that something is ready in these queues; one caller at a time."""
        others = self._listening()
        if not others:
            return
        text = "\n".join(names).encode()[:DATAGRAM_BYTES]
        for name in others:
            try:
                self._sender.sendto(text, self._path(name))
            except (ConnectionRefusedError, FileNotFoundError):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._directory)
            except OSError:
                continue  # its buffer is full: it has been rung, and looks by itself every moment

    def _listening(self) -> list[str]:
        changed = os.fstat(self._directory).st_mtime_ns
        if changed != self._listed:
            names = os.listdir(self._directory)  # noqa: PTH208 (by descriptor: the path may be too long)
            self._others = [name for name in names if name.endswith(SUFFIX) and name != self._name]
            settled = time.time_ns() - changed > SETTLED_SECONDS * 1e9
            self._listed = changed if settled else -1
        return self._others

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take our socket away."""
        if self._receiver is not None:
            loop.remove_reader(self._receiver)
            self._receiver.close()
            self._receiver = None
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._directory)
        self._sender.close()
        os.close(self._directory)
