"""Usage of each client: bytes, time and pauses by user and client id, in a bounded number."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.broker.metrics.client_rows import add_clients
from ottla.broker.metrics.client_usage import LONGEST_NAME, OTHER, ClientUsages, Rates
from ottla.broker.metrics.families import FAMILIES
from ottla.broker.metrics.meter import Meter
from ottla.broker.metrics.requests import RequestTimes
from ottla.common.slices import finish
from ottla.metrics.exposition import Samples
from ottla.network.connection import MutingResponse
from ottla.protocol import frames
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.broker.harness import BrokerHarness, Connection, batch, produce_request


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def metered(harness: BrokerHarness) -> tuple[Meter, Clock]:
    """Let the harness use a meter."""
    clock = Clock()
    meter = harness.dispatch._meter = Meter(RequestTimes(), ClientUsages(clock))
    return meter, clock


def send(harness: BrokerHarness, request: Any, client_id: str, connection: Connection) -> tuple[int, int]:
    """Send a request; returns the bytes of its frame and of the response."""
    frame = memoryview(bytearray(b"".join(map(bytes, frames.encode_request(request, 12, 1, client_id)))))[4:]
    response = cast("list[bytes]", harness.dispatch(connection, frame))  # type: ignore[arg-type]
    return len(frame), sum(map(len, response))


def fetch_request() -> FetchRequest:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])


def rows(meter: Meter) -> dict[str, float]:
    samples = Samples(FAMILIES)
    finish(add_clients(samples, meter.clients))
    found = {}
    for name in list(samples.names()):
        for line in samples.of(FAMILIES[name]):
            key, _, value = line.rpartition(" ")
            found[key] = float(value)
    return found


def test_bytes_and_time_count_for_the_user_and_the_client_id(harness: BrokerHarness) -> None:
    meter, clock = metered(harness)
    harness.create("t", 1)
    writer, reader = Connection(), Connection()
    reader.principal = "User:alice"
    produced = [send(harness, produce_request(("t", {0: batch(b"x")}), acks=1), "w", writer)[0] for _ in range(3)]
    fetched = send(harness, fetch_request(), 'r"1', reader)[1]
    clock.now_s = 10
    meter.clients.roll()
    found = rows(meter)
    alice, anonymous = '{user="alice",client_id="r\\"1"}', '{user="ANONYMOUS",client_id="w"}'
    assert found[f"ottla_client_produced_bytes_total{anonymous}"] == sum(produced)
    assert found[f"ottla_client_fetched_bytes_total{anonymous}"] == 0
    assert found[f"ottla_client_fetched_bytes_total{alice}"] == fetched > 0
    assert found[f"kafka_server_fetch_byte_rate{alice}"] == fetched / 10
    assert found[f"kafka_server_produce_byte_rate{anonymous}"] == pytest.approx(sum(produced) / 10)
    for labels in (alice, anonymous):
        assert found[f"ottla_client_request_seconds_total{labels}"] > 0
        assert 0 < found[f"kafka_server_request_request_time{labels}"] < 100
        assert found[f"ottla_client_connections{labels}"] == 1
    clock.now_s = 20
    meter.clients.roll()
    assert rows(meter)[f"kafka_server_fetch_byte_rate{alice}"] == 0


def test_response_that_comes_later_counts_its_bytes(harness: BrokerHarness) -> None:
    meter, _ = metered(harness)
    harness.create("t", 1)
    connection = Connection()
    request = fetch_request()
    request.max_wait_ms, request.min_bytes = 100, 1
    frame = memoryview(bytearray(b"".join(map(bytes, frames.encode_request(request, 12, 1, "r")))))[4:]
    later: Any = harness.dispatch(connection, frame)  # type: ignore[arg-type]
    assert not later.done
    harness.append("t", b"x")
    harness.loop.run()
    (usage,) = meter.clients
    assert usage.fetched_bytes == sum(map(len, later.result())) > 60


def test_connection_with_another_client_id_counts_for_it(harness: BrokerHarness) -> None:
    meter, _ = metered(harness)
    connection = Connection()
    for client_id in ("a", "b"):
        send(harness, fetch_request(), client_id, connection)
    assert {usage.name[1]: usage.connections for usage in meter.clients} == {"a": 0, "b": 1}
    connection.drop()
    assert [usage.connections for usage in meter.clients] == [0, 0]


def test_pauses_count_by_kind() -> None:
    clock = Clock()
    meter = Meter(RequestTimes(), ClientUsages(clock))
    connection = cast("Any", Connection())
    meter.due(connection, 0, "c", 10)
    for key, pause_s in ((0, 0.2), (0, 0.4), (1, 1.0), (3, 0.5)):
        meter.throttled(connection, key, MutingResponse([], pause_s))
    meter.throttled(connection, 0, [b"not throttled"])
    clock.now_s = 10
    meter.clients.roll()
    found = {key.partition("{")[0]: value for key, value in rows(meter).items()}
    assert found["kafka_server_produce_throttle_time"] == pytest.approx(300)
    assert found["kafka_server_fetch_throttle_time"] == pytest.approx(1000)
    assert found["kafka_server_request_throttle_time"] == pytest.approx(500)
    assert found["ottla_client_throttled_seconds_total"] == pytest.approx(2.1)
    clock.now_s = 20
    meter.clients.roll()
    (usage,) = meter.clients
    assert usage.rates == Rates()


def test_number_of_clients_is_limited_and_sums_never_decrease() -> None:
    clients = ClientUsages(Clock(), most=3)
    for number in range(3):
        clients.acquire("u", str(number)).produced_bytes = 10
    # All are connected: a new client is counted with others.
    fourth = clients.acquire("u", "3")
    fourth.produced_bytes += 5
    assert fourth is clients.other
    clients.release(fourth)
    first = clients.acquire("u", "1")
    clients.release(first)
    clients.release(first)
    # The client without a connection leaves its place.
    assert clients.acquire("u", "4").name == ("u", "4")
    assert {usage.name[1]: usage.produced_bytes for usage in clients} == {"0": 10, "2": 10, "4": 0, OTHER: 15}


def test_client_that_comes_back_keeps_its_counters_and_its_place() -> None:
    clients = ClientUsages(Clock(), most=1)
    usage = clients.acquire("u", "a")
    clients.release(usage)
    assert clients.acquire("u", "a") is usage
    assert clients.acquire("u", "b") is clients.other


def test_long_names_are_cut() -> None:
    clients = ClientUsages(Clock())
    usage = clients.acquire("u" * 5_000, "c" * 5_000)
    assert usage.name == ("u" * LONGEST_NAME, "c" * LONGEST_NAME)
    assert clients.acquire("u" * 6_000, "c" * 6_000) is usage
    assert usage.is_of("u" * 6_000, "c" * 6_000)
