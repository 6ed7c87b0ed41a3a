"""Admission: how many requests, and bytes of their bodies, are in memory at the same time.

A request that exceeds a limit is refused before its body is read: with 429 if its user has too many requests, with 503
if the proxy has. Nothing is queued, so a proxy at its limits answers immediately.

A body is read within `request.timeout.ms` (408). Its bytes count until the answer is complete, since the records may
wait for the broker that long. `ottla.web.guard` limits the size of each body (413).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect

from ottla.rest.errors import overloaded, too_many_requests
from ottla.rest.settings import RestSettings
from ottla.web.errors import HttpError

CLIENT_CLOSED_REQUEST: Final = 499


class Limits:
    """The requests and bytes in memory now."""

    def __init__(self, settings: RestSettings) -> None:
        self._most_requests: int = settings.requests_max
        self._most_of_user: int = settings.requests_per_user_max
        self._most_bytes: int = settings.requests_max_bytes
        self.body_timeout_s = settings.seconds("request_timeout_ms")
        self.requests: Counter[bytes] = Counter()
        self.total = 0
        self.bytes = 0

    def enter(self, user: bytes) -> None:
        """Count a request. Raises HttpError. Each call needs a `leave`."""
        if self.total >= self._most_requests:
            raise overloaded(f"The proxy has {self.total} requests, its limit: try again later.")
        if self.requests[user] >= self._most_of_user:
            raise too_many_requests(f"You have {self.requests[user]} requests, the limit for a user: try again later.")
        self.total += 1
        self.requests[user] += 1

    def leave(self, user: bytes) -> None:
        """Count the end of a request."""
        self.total -= 1
        self.requests[user] -= 1
        if self.requests[user] <= 0:
            del self.requests[user]

    def reserve(self, size: int) -> None:
        """Count bytes of a body. Raises HttpError. The caller releases them."""
        if self.bytes + size > self._most_bytes:
            raise overloaded("The proxy has too many bytes of requests in memory: try again later.")
        self.bytes += size

    def release(self, size: int) -> None:
        """Count bytes as free."""
        self.bytes -= size


class Body:
    """The body of one request, whose bytes count until `release`."""

    __slots__ = ("_limits", "reserved")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.reserved = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Return the whole body. Raises HttpError."""
        found: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                async for chunk in chunks:
                    self.reserve(len(chunk))
                    found.append(chunk)
        except TimeoutError:
            raise HttpError(408, 408, "The body of the request did not arrive in time.") from None
        except ClientDisconnect:
            raise HttpError(CLIENT_CLOSED_REQUEST, CLIENT_CLOSED_REQUEST, "The client disconnected.") from None
        return found[0] if len(found) == 1 else b"".join(found)

    def reserve(self, size: int) -> None:
        """Count bytes of the request or its answer. Raises HttpError."""
        self._limits.reserve(size)
        self.reserved += size

    def release(self) -> None:
        """Count all bytes of the body as free."""
        self._limits.release(self.reserved)
        self.reserved = 0
