"""The requests of one connection that wait for a response, and the timer of their timeouts.

There is one timer for all requests. It is set when a request expires before all others, and it stays when a request is
answered, so most requests do not touch it. When it fires, it looks for requests that are late.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from ottla.network.errors import NetworkError
from ottla.protocol.message import Message

# The clock of uvloop counts whole milliseconds.
RESOLUTION_S: Final = 0.001


class Completion(Protocol):
    """Takes the outcome of one request, on the event loop. A future is one."""

    def done(self) -> bool:
        """Whether the outcome is known or unwanted."""
        ...

    def set_result(self, response: Message | None, /) -> None:
        """The response, None for a request that has none."""
        ...

    def set_exception(self, error: NetworkError, /) -> None:
        """There will be no response."""
        ...


class RequestInFlight:
    """A request that was sent. `expires_s` is in the time of the event loop."""

    __slots__ = ("api_key", "completion", "expires_s", "timeout_s", "version")

    def __init__(self, api_key: int, version: int, completion: Completion, expires_s: float, timeout_s: float) -> None:
        self.api_key = api_key
        self.version = version
        self.completion = completion
        self.expires_s = expires_s
        self.timeout_s = timeout_s


FailLate: TypeAlias = Callable[[list[RequestInFlight]], None]


class Latency:
    """Times of requests or other events, since they are measured."""

    __slots__ = ("count", "max_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Add the time of one event."""
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)

    def include(self, other: Latency) -> None:
        """Add the times of another one."""
        self.count += other.count
        self.total_s += other.total_s
        self.max_s = max(self.max_s, other.max_s)


class RequestsInFlight:
    """Requests by correlation id, of which `last_id` was the last.

    Only the timer refers to the connection. A closed connection, whose buffer has 64 KiB, is therefore freed at once,
    and does not wait for the garbage collector.
    """

    __slots__ = ("_loop", "_ready_id", "_requests", "_timer", "_timer_s", "last_id", "latencies")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._requests: dict[int, RequestInFlight] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf
        self.last_id = 0
        self._ready_id = 0
        self.latencies: defaultdict[int, Latency] | None = None
        """From a request until its response, by API key. Measured only while it is not None."""

    def next_id(self) -> int:
        """The correlation id of the next request."""
        self.last_id = (self.last_id + 1) & 0x7FFFFFFF
        return self.last_id

    def handshake_is_complete(self) -> None:
        """Later requests are the caller's."""
        self._ready_id = self.last_id

    @property
    def never_answered(self) -> bool:
        """Whether requests were sent after the handshake, and none of them has a response."""
        return 0 < self.last_id - self._ready_id == len(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, correlation_id: int, request: RequestInFlight, fail_late: FailLate) -> None:
        """Add a request that is being sent. `fail_late` gets expired requests after their removal."""
        self._requests[correlation_id] = request
        if request.expires_s < self._timer_s:
            self._set_timer(request.expires_s, fail_late)

    def take(self, correlation_id: int) -> RequestInFlight | None:
        """Remove and return the request, None if there is none."""
        request = self._requests.pop(correlation_id, None)
        if self.latencies is not None and request is not None:
            self.latencies[request.api_key].add(max(0.0, self._loop.time() - request.expires_s + request.timeout_s))
        return request

    def take_all(self) -> list[RequestInFlight]:
        """Remove and return all requests, in the order in which they were sent."""
        requests, self._requests = self._requests, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_s = None, math.inf
        return list(requests.values())

    def _set_timer(self, at_s: float, fail_late: FailLate) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._expire, fail_late)

    def _expire(self, fail_late: FailLate) -> None:
        self._timer, self._timer_s = None, math.inf
        now_s = self._loop.time() + RESOLUTION_S
        late = [key for key, request in self._requests.items() if request.expires_s <= now_s]
        expired = [self._requests.pop(key) for key in late]
        if self._requests:
            self._set_timer(min(request.expires_s for request in self._requests.values()), fail_late)
        if expired:
            fail_late(expired)
