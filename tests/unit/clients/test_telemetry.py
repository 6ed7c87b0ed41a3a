"""Telemetry of a client against a scripted broker: what it asks and pushes, and what each error leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.clients import telemetry
from ottla.clients.errors import Closed
from ottla.clients.telemetry import Role, Telemetry
from ottla.common.errors import ErrorCode
from ottla.common.ids import uuid_to_text
from ottla.network.requests_in_flight import Latency
from ottla.protocol import otlp
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

ID = bytes(range(16))
FETCH, METADATA = 1, 3
ALL = GetTelemetrySubscriptionsResponse(
    client_instance_id=ID, subscription_id=7, push_interval_ms=1, requested_metrics=["*"]
)


class Connection:
    """Answers by a script: a response, or the error code of a push. Waits forever at its end."""

    address = "broker:9092"
    closed = False

    def __init__(self, answers: Sequence[GetTelemetrySubscriptionsResponse | int]) -> None:
        self.versions = {71: (0, 0), 72: (0, 0)}
        self.sent: list[Any] = []
        self.is_idle = asyncio.Event()
        self._answers = list(answers)

    async def send(self, request: Any, *, timeout_s: float) -> Any:
        self.sent.append(request)
        if not self._answers:
            self.is_idle.set()
            await asyncio.sleep(timeout_s)
        answer = self._answers.pop(0) if self._answers else 0
        return PushTelemetryResponse(error_code=answer) if isinstance(answer, int) else answer

    def measure(self) -> dict[int, Latency]:
        latency = Latency()
        latency.add(0.5)
        return {METADATA: latency, FETCH: latency}


class Cluster:
    request_timeout_s = 30.0

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def any_connection(self, *, timeout_s: float | None = None) -> Any:
        return self._connection

    def open_connections(self) -> list[tuple[int | None, Any]]:
        return [(1, self._connection)]

    def metrics(self) -> dict[str, float]:
        return {"connection-creation-total": 3}


def decoded(data: bytes) -> list[otlp.Point]:
    return [point for point in otlp.decode(data) if point is not None]


def requests(*answers: GetTelemetrySubscriptionsResponse | int) -> list[Any]:
    """The requests until the script ends and the next request waits, or telemetry stops."""

    async def run() -> list[Any]:
        connection = Connection(answers)
        pusher = Telemetry(Cluster(connection), Role("producer", lambda: {"record-send-total": 5}))
        pusher.connected(connection)  # type: ignore[arg-type]
        assert pusher._task is not None
        idle = asyncio.create_task(connection.is_idle.wait())
        await asyncio.wait([idle, pusher._task], timeout=10, return_when=asyncio.FIRST_COMPLETED)
        sent = list(connection.sent)
        idle.cancel()
        pusher._task.cancel()
        return sent

    return asyncio.run(run())


def kinds(*answers: GetTelemetrySubscriptionsResponse | int) -> list[str]:
    return ["ask" if isinstance(each, GetTelemetrySubscriptionsRequest) else "push" for each in requests(*answers)]


def test_push_has_the_metrics_of_the_subscription() -> None:
    asked, pushed, _ = requests(ALL, 0)
    assert isinstance(pushed, PushTelemetryRequest)
    assert (pushed.client_instance_id, pushed.subscription_id, pushed.terminating) == (ID, 7, False)
    points = {point.name: point for point in decoded(pushed.metrics)}
    start = "org.apache.kafka.producer."
    assert points.keys() == {
        f"{start}{name}"
        for name in (
            "connection.creation.total", "connection.creation.rate", "record.send.total", "node.request.latency.avg",
            "node.request.latency.max",
        )
    }  # fmt: skip
    assert points[f"{start}record.send.total"][1:] == (5, (), True, False)
    assert points[f"{start}node.request.latency.avg"][1:3] == (500, (("node_id", "1"),))
    assert asked.client_instance_id == bytes(16)


def test_consumer_pushes_the_times_of_its_fetches_and_of_events() -> None:
    async def run() -> list[otlp.Point]:
        connection = Connection([ALL])
        pusher = Telemetry(Cluster(connection), Role("consumer", dict))
        assert pusher.times is None
        pusher.connected(connection)  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await pusher.client_instance_id(10)
            times = pusher.times
            assert times is not None
            times["coordinator.rebalance.latency"].add(0.25)
            times["coordinator.rebalance.latency"].add(0.75)
            await connection.is_idle.wait()
            assert pusher.times == {}
            await pusher.close()
        return decoded(connection.sent[1].metrics)

    points = {point.name.removeprefix("org.apache.kafka.consumer."): point.value for point in asyncio.run(run())}
    assert points["fetch.manager.fetch.latency.avg"] == points["fetch.manager.fetch.latency.max"] == 500
    assert points["node.request.latency.avg"] == 500
    assert points["coordinator.rebalance.latency.avg"] == 500
    assert points["coordinator.rebalance.latency.max"] == 750


def test_prefixes_select_metrics() -> None:
    some = GetTelemetrySubscriptionsResponse(
        client_instance_id=ID, push_interval_ms=1, requested_metrics=["org.apache.kafka.producer.record.", "x"]
    )
    pushed = requests(some, 0)[1]
    assert [point.name for point in decoded(pushed.metrics)] == ["org.apache.kafka.producer.record.send.total"]


def test_differences_are_pushed_if_the_broker_wants_them() -> None:
    deltas = GetTelemetrySubscriptionsResponse(
        client_instance_id=ID, push_interval_ms=1, requested_metrics=["*"], delta_temporality=True
    )
    _, *pushed = requests(deltas, 0)
    values = [
        [point.value for point in decoded(each.metrics) if point.name.endswith("record.send.total")] for each in pushed
    ]
    assert values == [[5], [0]]


def test_client_without_metrics_in_its_subscription_only_asks() -> None:
    nothing = GetTelemetrySubscriptionsResponse(client_instance_id=ID, push_interval_ms=1)
    assert kinds(nothing, nothing) == ["ask", "ask", "ask"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION])
def test_error_that_no_retry_repairs_ends_telemetry(code: ErrorCode) -> None:
    assert kinds(ALL, code) == ["ask", "push"]


@pytest.mark.parametrize("code", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.TELEMETRY_TOO_LARGE])
def test_push_is_repeated_after_an_interval(code: ErrorCode) -> None:
    assert kinds(ALL, code) == ["ask", "push", "push"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_changed_subscription_is_asked_for(code: ErrorCode) -> None:
    assert kinds(ALL, code, ALL, 0) == ["ask", "push", "ask", "push", "push"]


def test_close_pushes_a_last_time_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "LAST_PUSH_S", 0.01)

    async def run() -> list[Any]:
        connection = Connection([ALL])
        pusher = Telemetry(Cluster(connection), Role("producer", dict))
        pusher.connected(connection)  # type: ignore[arg-type]
        assert await pusher.client_instance_id(10) == uuid_to_text(ID)
        async with asyncio.timeout(10):
            await connection.is_idle.wait()
            await pusher.close()
            await pusher.close()
        return connection.sent

    assert [each.terminating for each in asyncio.run(run())[1:]] == [False, True]


def pushing(collect: Callable[[], dict[str, float]]) -> tuple[Connection, Telemetry]:
    """A producer's telemetry whose subscription wants metrics, and whose broker answers one request."""
    connection = Connection([ALL])
    return connection, Telemetry(Cluster(connection), Role("producer", collect))


def test_connection_that_opens_during_close_does_not_begin_again() -> None:
    async def run() -> None:
        connection, pusher = pushing(dict)
        await pusher.close()
        pusher.connected(connection)  # type: ignore[arg-type]
        assert pusher._task is None
        with pytest.raises(Closed):
            await pusher.client_instance_id(10)

    asyncio.run(run())


def test_unhandled_error_is_logged_once_and_pushes_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "AFTER_ERROR_S", 0.001)
    failures = iter(range(3))

    def collect() -> dict[str, float]:
        for number in failures:
            raise ValueError(f"number {number}")
        return {"record-send-total": 5.0}

    async def run() -> list[str]:
        connection, pusher = pushing(collect)
        pusher.connected(connection)  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await connection.is_idle.wait()
        await pusher.close()
        return [type(request).__name__ for request in connection.sent]

    assert asyncio.run(run())[:2] == ["GetTelemetrySubscriptionsRequest", "PushTelemetryRequest"]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == ["Unhandled error in a push of metrics, retry in 0.001 s"]
    assert errors[0].exc_info is not None


def test_close_logs_an_unhandled_error_of_the_last_push(caplog: pytest.LogCaptureFixture) -> None:
    values: list[float] = [5.0]

    async def run() -> None:
        connection, pusher = pushing(lambda: {"record-send-total": values[0]})
        pusher.connected(connection)  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await connection.is_idle.wait()
            values.clear()
            await pusher.close()

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["Unhandled error in the last push of metrics"]
