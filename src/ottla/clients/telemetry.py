"""Pushes a client's metrics to a broker that asks for them (KIP-714), without a cost for a client that is not asked.

`Telemetry` begins with the first connection to a broker that has the requests. It asks for a subscription, and pushes
the metrics that the subscription names at its interval, all to one broker while it is connected. No error of telemetry
reaches the program: the next interval tries again, or telemetry stops, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from ottla.clients.errors import ClientError, Closed, RequestTimedOut, UnsupportedByBroker
from ottla.clients.network_errors import client_error
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid, uuid_to_text
from ottla.common.jitter import random_share
from ottla.network.client import ClientConnection, NetworkError
from ottla.network.requests_in_flight import Latency
from ottla.protocol import otlp
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.records import Codec
from ottla.records.codecs import compress

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL_S: Final = 300.0
AFTER_ERROR_S: Final = 300.0
"""The pause after an unhandled error, which the next step may meet again."""
LAST_PUSH_S: Final = 1.0
"""How long the push of a client that closes may take."""
_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_LATER: Final = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.TELEMETRY_TOO_LARGE)
_PREFIX: Final = "org.apache.kafka."
_GROUPS: Final = {
    "records-consumed-total": "fetch.manager.",
    "bytes-consumed-total": "fetch.manager.",
    "records-lag-max": "fetch.manager.",
    "assigned-partitions": "coordinator.",
    "rebalance-latency-avg": "coordinator.",
    "rebalance-latency-max": "coordinator.",
}
"""The part of Kafka's name between the client and the metric."""
_LATENCIES: Final = {
    FetchRequest.API_KEY: "fetch.manager.fetch.latency",
    OffsetCommitRequest.API_KEY: "coordinator.commit.latency",
}
"""Requests of consumers that have metrics of their own."""
_CREATIONS: Final = "connection-creation-total"


class Connections(Protocol):
    """The part of `network.Cluster` that telemetry uses."""

    @property
    def request_timeout_s(self) -> float: ...

    async def any_connection(self, *, timeout_s: float | None = None) -> ClientConnection: ...

    def open_connections(self) -> list[tuple[int | None, ClientConnection]]: ...

    def metrics(self) -> dict[str, float]: ...


class Times(defaultdict[str, Latency]):
    """Times of a client's own events, by the ends of the metrics' names; the averages and maxima are pushed."""

    def __init__(self) -> None:
        super().__init__(Latency)


class Role(NamedTuple):
    """A client that has metrics: `name` is producer or consumer, `collect` returns them by the names of `metrics()`.

    `begin` is called when a subscription asks for metrics, with which the client may begin to measure.
    """

    name: str
    collect: Callable[[], Mapping[str, float]]
    begin: Callable[[], None] = lambda: None


class _Subscription(NamedTuple):
    id: int
    metrics: tuple[str, ...]
    codec: Codec
    is_delta: bool

    @property
    def is_wanted(self) -> bool:
        return bool(self.metrics)

    def has(self, name: str) -> bool:
        return self.metrics == ("*",) or name.startswith(self.metrics)


class Telemetry:
    """The telemetry of one client, on the event loop of its connections."""

    def __init__(self, cluster: Connections, role: Role) -> None:
        self._cluster = cluster
        self._metrics = _Metrics(role)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._connection: ClientConnection | None = None
        self._subscription: _Subscription | None = None
        self._interval_s = DEFAULT_INTERVAL_S
        self._instance_id: Uuid = ZERO_UUID
        self._has_id = asyncio.Event()

    @property
    def times(self) -> Times | None:
        """Where the client adds times of events; None while no subscription asks for metrics."""
        return self._metrics.times

    def connected(self, connection: ClientConnection) -> None:
        """A connection was opened: begin, if its broker takes part, and `close` was not called meanwhile."""
        if not self._closed and self._task is None and _takes_part(connection):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="push metrics")

    async def client_instance_id(self, timeout_s: float) -> str:
        """Return the id that a broker assigned to this client, as text.

        Raises UnsupportedByBroker, RequestTimedOut, Closed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._cluster.any_connection(timeout_s=timeout_s)
                self.connected(connection)
                if self._closed:
                    raise Closed("The client was closed")
                if self._task is None:
                    text = f"{connection.address} does not take metrics of clients: it needs a metrics plugin, or"
                    raise UnsupportedByBroker(f"{text} ottla.metrics.listener")
                await self._has_id.wait()
        except TimeoutError as error:
            raise RequestTimedOut(f"No client instance id within {timeout_s:g} s") from error
        return uuid_to_text(self._instance_id)

    async def close(self) -> None:
        """Stop, after a last push if the subscription wants one and its broker is connected. Raises no error of it."""
        self._closed = True
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        connection, subscription = self._connection, self._subscription
        if connection is None or connection.closed or subscription is None or not subscription.is_wanted:
            return
        try:
            await self._push(connection, subscription, is_last=True, timeout_s=LAST_PUSH_S)
        except ClientError as error:
            logger.debug("The last push of metrics failed: %s", error)
        except Exception:  # an unhandled error of metrics must not keep the client from closing
            logger.exception("Unhandled error in the last push of metrics")

    async def _run(self) -> None:
        is_repeated = has_failed = False
        while True:
            try:
                code, delay_s = await self._step()
            except ClientError as error:
                logger.debug("Cannot push metrics: %s", error)
                code, delay_s = ErrorCode.NONE, self._interval_s
            except Exception as error:  # the metrics that follow may be complete again
                logger.log(
                    logging.DEBUG if has_failed else logging.ERROR,
                    "Unhandled error in a push of metrics, retry in %g s",
                    AFTER_ERROR_S,
                    exc_info=error,
                )
                has_failed = True
                code, delay_s = ErrorCode.NONE, AFTER_ERROR_S
            if code in _AGAIN:
                self._subscription = None
                # Never two requests for a subscription without a pause.
                delay_s = self._interval_s if is_repeated else 0.0
            elif code not in (ErrorCode.NONE, *_LATER):
                logger.debug("Metrics are not pushed any more: error %d", code)
                return
            is_repeated = code in _AGAIN
            await asyncio.sleep(delay_s)

    async def _step(self) -> tuple[int, float]:
        """Ask for the subscription, or push; returns the error code and the delay until the next step."""
        connection = await self._connected()
        if self._subscription is not None and self._subscription.is_wanted:
            return await self._push(connection, self._subscription), self._interval_s
        return await self._ask(connection)

    async def _connected(self) -> ClientConnection:
        """Return the connection to push on. Raises UnsupportedByBroker if the broker does not take part."""
        if self._connection is None or self._connection.closed:
            connection = await self._cluster.any_connection()
            if not _takes_part(connection):
                raise UnsupportedByBroker(f"{connection.address} does not take metrics")
            self._connection = connection
        return self._connection

    async def _ask(self, connection: ClientConnection) -> tuple[int, float]:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
        response: GetTelemetrySubscriptionsResponse = await self._send(connection, request)
        if response.error_code:
            return response.error_code, self._interval_s
        self._instance_id = response.client_instance_id
        self._has_id.set()
        self._interval_s = response.push_interval_ms / 1000 if response.push_interval_ms > 0 else DEFAULT_INTERVAL_S
        self._subscription = subscription = _Subscription(
            response.subscription_id,
            _prefixes(response.requested_metrics),
            _codec(response.accepted_compression_types),
            response.delta_temporality,
        )
        if not subscription.is_wanted:
            return ErrorCode.NONE, self._interval_s
        self._metrics.begin(self._cluster)
        # Clients that start together must not push together.
        return ErrorCode.NONE, self._interval_s * (0.5 + random_share())

    async def _push(
        self,
        connection: ClientConnection,
        subscription: _Subscription,
        *,
        is_last: bool = False,
        timeout_s: float | None = None,
    ) -> int:
        points = self._metrics.points(self._cluster, subscription)
        data = self._metrics.encoded(points)
        request = PushTelemetryRequest(
            client_instance_id=self._instance_id,
            subscription_id=subscription.id,
            terminating=is_last,
            compression_type=int(subscription.codec),
            metrics=bytes(compress(subscription.codec, data)),
        )
        response: PushTelemetryResponse = await self._send(connection, request, timeout_s)
        return response.error_code

    async def _send(self, connection: ClientConnection, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return await connection.send(
                request, timeout_s=self._cluster.request_timeout_s if timeout_s is None else timeout_s
            )
        except NetworkError as error:
            raise client_error(error) from error


async def client_instance_id(telemetry: Telemetry | None, timeout_s: float) -> str:
    """Return the client instance id of a client.

    Raises ClientError without enable.metrics.push, UnsupportedByBroker, RequestTimedOut.
    """
    if telemetry is None:
        raise ClientError("enable.metrics.push is false: this client has no client instance id")
    return await telemetry.client_instance_id(timeout_s)


def _takes_part(connection: ClientConnection) -> bool:
    return GetTelemetrySubscriptionsRequest.API_KEY in connection.versions


def _prefixes(requested: Iterable[str]) -> tuple[str, ...]:
    names = tuple(requested)
    return ("*",) if "*" in names else names


def _codec(accepted: Iterable[int]) -> Codec:
    """The broker's first choice."""
    return next((Codec(number) for number in accepted if number in Codec.__members__.values()), Codec.NONE)


class _Metrics:
    """Makes the points of a push, and remembers what the previous push had."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._started_ns = time.time_ns()
        self._totals: dict[str, float] = {}
        self._created = 0.0
        self._since_s = 0.0
        self.times: Times | None = None

    def begin(self, cluster: Connections) -> None:
        """Measure from now on: times of requests, and rates."""
        self.times = Times()
        self._role.begin()
        self._since_s = asyncio.get_running_loop().time()
        self._created = cluster.metrics()[_CREATIONS]
        for _, connection in cluster.open_connections():
            connection.measure()

    def encoded(self, points: Iterable[otlp.Point]) -> bytes:
        return otlp.encode(points, {}, self._started_ns, time.time_ns())

    def points(self, cluster: Connections, subscription: _Subscription) -> list[otlp.Point]:
        """Return the metrics that the subscription names."""
        start = f"{_PREFIX}{self._role.name}."
        found = []
        for name, value in {**cluster.metrics(), **self._role.collect()}.items():
            full = f"{start}{_GROUPS.get(name, '')}{name.replace('-', '.')}"
            if subscription.has(full):
                found.append(self._point(full, value, subscription))
        measured = (*self._of_connections(cluster, start), *self._of_events(start))
        found += [point for point in measured if subscription.has(point.name)]
        return found

    def _of_events(self, start: str) -> Iterator[otlp.Point]:
        times, self.times = self.times, Times()
        for name, latency in () if times is None else times.items():
            yield from _average_and_max(f"{start}{name}", latency)

    def _point(self, name: str, value: float, subscription: _Subscription) -> otlp.Point:
        if not name.endswith(".total"):
            return otlp.Point(name, value)
        if not subscription.is_delta:
            return otlp.Point(name, value, is_counter=True)
        before, self._totals[name] = self._totals.get(name, 0.0), value
        return otlp.Point(name, value - before, is_counter=True, is_delta=True)

    def _of_connections(self, cluster: Connections, start: str) -> Iterator[otlp.Point]:
        now_s, created = asyncio.get_running_loop().time(), cluster.metrics()[_CREATIONS]
        rate = (created - self._created) / max(now_s - self._since_s, 0.001)
        self._since_s, self._created = now_s, created
        yield otlp.Point(f"{start}connection.creation.rate", rate)
        by_name = Times()
        for node_id, connection in cluster.open_connections():
            of_node = Latency()
            for api_key, latency in connection.measure().items():
                of_node.include(latency)
                if self._role.name == "consumer" and api_key in _LATENCIES:
                    by_name[_LATENCIES[api_key]].include(latency)
            if node_id is not None and of_node.count:
                labels = (("node_id", str(node_id)),)
                yield from _average_and_max(f"{start}node.request.latency", of_node, labels)
        for name, latency in by_name.items():
            yield from _average_and_max(f"{start}{name}", latency)


def _average_and_max(name: str, latency: Latency, labels: tuple[tuple[str, str], ...] = ()) -> Iterator[otlp.Point]:
    yield otlp.Point(f"{name}.avg", latency.total_s / latency.count * 1000, labels)
    yield otlp.Point(f"{name}.max", latency.max_s * 1000, labels)
