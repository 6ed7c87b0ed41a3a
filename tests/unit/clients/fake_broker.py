"""A minimal broker on a real socket. The test decides each response, as a message or as raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Self

from ottla.protocol.frames import RequestHeader, decode_request_header, encode_response
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.registry import API, request_class

# As a broker without metrics: clients would ask it for a subscription between the requests of a test.
TELEMETRY = (71, 72)

# A response, raw bytes to send, or None for no response. A handler that raises ConnectionError closes the connection.
Answer = Message | bytes | None
Handler = Callable[[RequestHeader, Message], Answer]


def api_versions(highest: int | None = None) -> ApiVersionsResponse:
    """Return the response of a broker that supports all our versions, each at most `highest`."""
    rows = [
        ApiVersion(
            i.key, i.min_version, i.max_version if highest is None else max(i.min_version, min(highest, i.max_version))
        )
        for i in API.values()
        if i.key not in TELEMETRY
    ]
    return ApiVersionsResponse(api_keys=rows)


class FakeBroker:
    """Listens on a free port; `seen` are the received requests. With `handshake`, it answers ApiVersions itself."""

    def __init__(self, handler: Handler, *, handshake: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._handshake = handshake
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: list[tuple[RequestHeader, Message]] = []
        self.connections = 0
        self.port = 0
        self.chunk = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Close the port and all connections."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            header, position = decode_request_header(frame)
            request = request_class(header.api_key).decode_from(frame, position, header.api_version)[0]
            if header.api_key == 18 and self._handshake:
                answer: Answer = api_versions()
            else:
                self.seen.append((header, request))
                answer = self._handler(header, request)
            if answer is None:
                continue
            data = answer if isinstance(answer, bytes) else b"".join(encode_response(header, answer))
            step = self.chunk or len(data) or 1
            for i in range(0, len(data), step):
                writer.write(data[i : i + step])
                if self.chunk:
                    await writer.drain()
                    await asyncio.sleep(0)
