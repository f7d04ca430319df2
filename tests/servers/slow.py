"""A network path that is slower than the loopback: a proxy in front of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.servers.processes import HOST


@asynccontextmanager
async def slow_path(port: int, *, seconds: float) -> AsyncIterator[int]:
    """Give a port behind which everything from the server at `port` arrives so much later."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await asyncio.sleep(delay)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, server_writer, 0.0), copy(server_reader, writer, seconds))

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
