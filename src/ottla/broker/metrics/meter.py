"""Measures the requests of a node: times by API, the usage of each client, and the log of slow requests.

The dispatcher calls a meter at these points; without metrics and without a request log it has none:

1. `due`, when the header of a request is decoded. If it returns a weight, the dispatcher returns `measure`.
2. `fetched`, for the response to a Fetch that is sent at once.
3. `waits`, for a request whose response comes later, and `completed` when it comes; `throttled` for a pause.

`due` and `fetched` run for each request, so that a kernel has them (`RequestCounter`). Of an API with more than `EXACT`
requests in a window, few are measured from then on, and each counts as several: a measured request costs 4 to
11 us more (decision 33). A request log measures every request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ottla.broker.metrics import client_usage
from ottla.broker.metrics._request_counter import USAGE, RequestCounter
from ottla.broker.metrics.requests import EXACT, FETCH, FOLLOWER_FETCH
from ottla.broker.metrics.slow_requests import Measured
from ottla.common.completion import Completion
from ottla.network.connection import FETCHED_BY_REPLICA, Connection, Frames, MutingResponse

if TYPE_CHECKING:
    from ottla.broker.metrics.client_usage import ClientUsage, ClientUsages
    from ottla.broker.metrics.requests import RequestTimes
    from ottla.broker.metrics.slow_requests import SlowRequests
    from ottla.protocol.frames import RequestHeader

PRODUCE: Final = 0
_PAUSED: Final = {PRODUCE: client_usage.PRODUCE, FETCH: client_usage.FETCH}

MeasuredDispatch: TypeAlias = "Callable[[Connection, memoryview, bool], Frames | Completion[Frames]]"


class Meter:
    """The measurements of one node, for all its dispatchers."""

    def __init__(self, times: RequestTimes, clients: ClientUsages, slow: SlowRequests | None = None) -> None:
        self.times = times
        self.clients = clients
        self._replicas = clients.replicas
        self._slow = slow
        exact = EXACT if slow is None else sys.maxsize
        counter = RequestCounter(times.counts, exact, clients.replicas, self._bind, self._fetched_by_replica)
        self.due, self.fetched = counter.due, counter.fetched
        # The API of the request of each connection whose response is not complete.
        self._waiting: dict[Connection, int] = {}

    # -- each request ------------------------------------------------------------------------------------------

    def waits(self, connection: Connection, key: int) -> None:
        """Note a request whose response comes later."""
        if key == FETCH and FETCHED_BY_REPLICA in connection.state:
            self._fetched_by_replica(connection)
            key = FOLLOWER_FETCH
        self._waiting[connection] = key
        self.times.waiting[key] += 1

    def completed(self, connection: Connection) -> None:
        """Note that the response to the request of a connection is complete, or that nothing waits for it any more."""
        key = self._waiting.pop(connection, None)
        if key is not None:
            self.times.waiting[key] -= 1

    def throttled(self, connection: Connection, key: int, response: Frames) -> None:
        """Count the pause of a client that exceeded a quota, if there is one."""
        if isinstance(response, MutingResponse):
            usage = cast("ClientUsage", connection.state[USAGE])
            usage.pause(_PAUSED.get(key, client_usage.REQUEST), response.pause_s)

    # -- measured requests -------------------------------------------------------------------------------------

    def measure(
        self, dispatch: MeasuredDispatch, connection: Connection, frame: memoryview, header: RequestHeader, weight: int
    ) -> Frames | Completion[Frames]:
        """Let the dispatcher handle a request, and measure it as one that stands for `weight` requests."""
        request_bytes = len(frame)  # the frame is released when the dispatcher returns
        began_ns = perf_counter_ns()
        response = dispatch(connection, frame, True)
        local_ns = perf_counter_ns() - began_ns
        self._rebind(connection, header).request_ns += local_ns * weight
        key = header.api_key
        if key == FETCH and FETCHED_BY_REPLICA in connection.state:
            key = FOLLOWER_FETCH
        times, slow = self.times.of(key), self._slow
        if not isinstance(response, Completion):
            times.at_once.record(local_ns, weight)
            if slow is not None:
                slow.look(connection, header, Measured(request_bytes, response, local_ns))
            return response
        times.local.record(local_ns, weight)

        def record(done: Completion[Frames]) -> None:
            time_ns = perf_counter_ns() - began_ns
            times.remote.record(time_ns - local_ns, weight)
            later = None if done.error is not None else done.result()
            if isinstance(later, MutingResponse):
                times.throttle.record(int(later.pause_s * 1e9), weight)
            times.total.record(time_ns, weight)
            if slow is not None:
                slow.look(connection, header, Measured(request_bytes, later, local_ns, time_ns - local_ns))

        # The connection adds its callback later: this one runs first, and the write of the response does not count.
        response.on_done(record)
        return response

    # -- clients of connections --------------------------------------------------------------------------------

    def _bind(self, connection: Connection, client_id: str | None) -> ClientUsage:
        """Find the client of a new connection."""
        usage = self.clients.acquire(connection.principal.partition(":")[2], client_id or "")
        connection.state[USAGE] = usage
        connection.on_close(lambda: self._closed(connection))
        return usage

    def _rebind(self, connection: Connection, header: RequestHeader) -> ClientUsage:
        """Return the client of this request, which later requests of the connection count for, too."""
        usage = cast("ClientUsage", connection.state[USAGE])
        user, client_id = connection.principal.partition(":")[2], header.client_id or ""
        if usage is self._replicas or usage.is_of(user, client_id):
            return usage
        self.clients.release(usage)
        usage = connection.state[USAGE] = self.clients.acquire(user, client_id)
        return usage

    def _fetched_by_replica(self, connection: Connection) -> None:
        """Count the connection's fetches as a replica's, from the first one on."""
        usage = cast("ClientUsage", connection.state[USAGE])
        if usage is not self._replicas:
            self.clients.release(usage)
            connection.state[USAGE] = self._replicas
            self.times.counts[FETCH] -= 1
            self.times.counts[FOLLOWER_FETCH] += 1

    def _closed(self, connection: Connection) -> None:
        self.completed(connection)
        usage = cast("ClientUsage", connection.state[USAGE])
        if usage is not self._replicas:
            self.clients.release(usage)
            # Not released again by a request that closed its connection.
            connection.state[USAGE] = self._replicas
