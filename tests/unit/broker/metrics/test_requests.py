"""Counts and times of requests: quantiles, windows, and requests that wait."""

from __future__ import annotations

import random
import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch import Dispatcher
from ottla.broker.metrics import _request_counter
from ottla.broker.metrics.client_usage import ClientUsages
from ottla.broker.metrics.families import FAMILIES
from ottla.broker.metrics.meter import Meter
from ottla.broker.metrics.request_rows import add_requests
from ottla.broker.metrics.requests import (
    EXACT,
    FETCH,
    FOLLOWER_FETCH,
    QUANTILES,
    RequestTimes,
    Times,
    quantiles,
)
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.metrics.exposition import Samples
from ottla.network.connection import FETCHED_BY_REPLICA, MutingResponse
from ottla.protocol import frames, registry
from tests.uncompiled import request_counter
from tests.unit.broker.harness import BrokerHarness, Connection

PRODUCE, JOIN_GROUP = 0, 11
VERSIONS = {PRODUCE: 12, FETCH: 12, JOIN_GROUP: 9}


class Answers:
    """A dispatcher whose handlers return what a test wants."""

    def __init__(self, harness: BrokerHarness, slow: Any = None) -> None:
        self.meter = Meter(RequestTimes(), ClientUsages(lambda: 0.0), slow)
        self.dispatcher = Dispatcher(harness.broker, meter=self.meter)
        self.times = self.meter.times

    def ask(self, key: int, answer: Any, connection: Any = None, client_id: str | None = "test") -> Any:
        """Send a request; `answer` is what the handler returns, or a function of the connection."""

        def handle(_broker: object, context: Any, _request: object) -> Any:
            return answer(context.connection) if callable(answer) else answer

        version = VERSIONS[key]
        self.dispatcher._apis[key, version] = (lambda *_: (None, 0)), 1, handle, type(None)
        encoded = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(encoded)
        frame = struct.pack(">hhih", key, version, 7, length) + encoded + b"\0"
        return self.dispatcher(connection or Connection(), memoryview(bytearray(frame)))


@pytest.fixture
def answers(harness: BrokerHarness) -> Answers:
    return Answers(harness)


def response(key: int) -> Any:
    """An empty response."""
    return registry.response_class(key)()


@pytest.mark.parametrize("seed", range(5))
def test_quantile_is_at_most_a_quarter_above_the_true_one(seed: int) -> None:
    source = random.Random(seed)
    drawn = sorted(int(source.lognormvariate(12, 2)) + 8 for _ in range(5_000))
    times = Times()
    for each in drawn:
        times.record(each)
    for quantile, found_ms in quantiles([times]):
        exact_ms = drawn[max(round(quantile * len(drawn)) - 1, 0)] / 1e6
        assert exact_ms <= found_ms * 1.01
        assert found_ms <= exact_ms * 1.26


@pytest.mark.parametrize("time_ns", [0, 1, 2, 3, 4, 7, 8, 1 << 39, (1 << 40) + 5, 1 << 62])
def test_extreme_times_are_counted(time_ns: int) -> None:
    times = Times()
    times.record(time_ns)
    assert times.count == 1
    assert times.total_ns == time_ns
    assert all(value >= 0 for _, value in quantiles([times]))


def test_times_leave_the_quantiles_after_two_windows_and_stay_in_the_count() -> None:
    times = Times()
    times.record(1_000_000)
    times.rotate()
    assert dict(quantiles([times]))[0.5] > 0
    times.rotate()
    assert dict(quantiles([times])) == dict.fromkeys(QUANTILES, 0.0)
    assert (times.count, times.total_ns) == (1, 1_000_000)


def test_requests_that_did_not_wait_pull_the_quantiles_of_the_remote_time_down() -> None:
    times = Times()
    times.record(1_000_000)
    found = dict(quantiles([times], zeros=9))
    assert found[0.5] == 0
    assert found[0.95] >= 1


def test_busy_api_is_sampled_and_every_request_is_counted(answers: Answers) -> None:
    times, connection = answers.times, Connection()
    for _ in range(EXACT + 16):
        answers.ask(PRODUCE, response(PRODUCE), connection)
    at_once = times.of(PRODUCE).at_once
    assert times.count(PRODUCE) == at_once.count == EXACT + 16
    times.counts[PRODUCE] = 64 * EXACT
    for _ in range(256):
        answers.ask(PRODUCE, response(PRODUCE), connection)
    assert at_once.count == EXACT + 16 + 256
    assert sum(times.counts) == 64 * EXACT + 256
    times.rotate()
    answers.ask(PRODUCE, response(PRODUCE), connection)
    assert times.of(PRODUCE).at_once.now.count(1) == 1


@pytest.mark.parametrize("kernel", [_request_counter, request_counter()], ids=["built", "source"])
def test_measured_requests_stand_for_all_and_for_few_each(kernel: Any) -> None:
    client, replicas = kernel.Traffic(), kernel.Traffic()
    connection: Any = SimpleNamespace(state={})
    followed: list[Any] = []

    def bind(bound: Any, client_id: str | None) -> Any:
        bound.state[kernel.USAGE] = client
        return client if client_id == "c" else None

    counts = [0] * (FOLLOWER_FETCH + 1)
    counter = kernel.RequestCounter(counts, 8, replicas, bind, followed.append)
    weights = [counter.due(connection, PRODUCE, "c", 10) for _ in range(1_024)]
    assert weights[:16] == [1] * 8 + [0, 2] * 4
    assert [weights.count(weight) for weight in (1, 2, 4, 128, 256)] == [8, 4, 4, 4, 0]
    assert sum(weights) == counts[PRODUCE] == 1_024
    assert client.produced_bytes == 10_240
    counter.due(connection, FETCH, "c", 10)
    for answer in ([b"12", memoryview(b"345")], MutingResponse([b"6"], 0.1), None):
        counter.fetched(connection, answer)
    assert (client.produced_bytes, client.fetched_bytes, counts[FETCH]) == (10_240, 6, 1)
    connection.state[FETCHED_BY_REPLICA] = True
    counter.fetched(connection, [b"1"])
    assert followed == [connection]
    connection.state[kernel.USAGE] = replicas
    counter.fetched(connection, [b"1"])
    counter.due(connection, FETCH, "c", 10)
    assert (len(followed), client.fetched_bytes, counts[FETCH], counts[FOLLOWER_FETCH]) == (1, 6, 1, 1)


def test_response_that_comes_at_once_is_counted(answers: Answers) -> None:
    assert answers.ask(PRODUCE, response(PRODUCE))
    times = answers.times
    assert times.of(PRODUCE).at_once.count == times.count(PRODUCE) == 1
    assert times.of(PRODUCE).total.count == 0


def test_waiting_response_is_counted_when_it_is_complete(answers: Answers) -> None:
    later: Completion[Any] = Completion()
    responded = answers.ask(FETCH, later)
    fetch = answers.times.of(FETCH)
    assert (fetch.local.count, fetch.remote.count, fetch.total.count) == (1, 0, 0)
    assert answers.times.waiting[FETCH] == 1
    later.complete(response(FETCH))
    assert responded.done
    assert (fetch.remote.count, fetch.total.count) == (1, 1)
    assert answers.times.waiting[FETCH] == 0


def test_total_time_ends_before_the_pause(answers: Answers) -> None:
    connection = Connection()
    later: Completion[Any] = Completion()
    measured = answers.meter
    header = frames.RequestHeader(PRODUCE, 12, 1, "test")
    measured.due(connection, PRODUCE, "test", 1)  # type: ignore[arg-type]
    measured.measure(lambda *_, **_named: later, connection, memoryview(b""), header, 1)  # type: ignore[arg-type]
    later.complete(MutingResponse([b"x"], 0.25))
    times = answers.times.of(PRODUCE)
    assert times.throttle.total_ns == 250_000_000
    # Since KIP-219 the response is sent before the pause.
    assert 0 < times.total.total_ns < 250_000_000


def test_failed_request_raises_and_has_no_time(answers: Answers) -> None:
    def fail(_connection: object) -> None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    with pytest.raises(KafkaError):
        answers.ask(PRODUCE, fail)
    assert not answers.times.by_key
    assert answers.times.count(PRODUCE) == 1
    later: Completion[Any] = Completion()
    answers.ask(FETCH, later)
    later.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answers.times.of(FETCH).total.count == 1
    assert answers.times.waiting[FETCH] == 0


def test_request_of_a_closed_connection_does_not_wait_any_more(answers: Answers) -> None:
    connection = Connection()
    answers.ask(JOIN_GROUP, Completion(), connection)
    assert answers.times.waiting[JOIN_GROUP] == 1
    connection.drop()
    assert answers.times.waiting[JOIN_GROUP] == 0


def rows(times: RequestTimes) -> dict[str, float]:
    """The samples of requests by name and labels, without the prefix."""
    samples = Samples(FAMILIES)
    finish(add_requests(samples, times))
    found = {}
    for name in list(samples.names()):
        for line in samples.of(FAMILIES[name]):
            key, _, value = line.rpartition(" ")
            found[key.removeprefix("kafka_network_requestmetrics_")] = float(value)
    return found


def test_waiting_requests_count_only_in_the_local_time(answers: Answers) -> None:
    waiting: list[Completion[Any]] = [Completion() for _ in range(4)]
    for each in waiting:
        answers.ask(JOIN_GROUP, each)
    waiting[0].complete(response(JOIN_GROUP))
    found = rows(answers.times)
    assert found['totaltimems{request="JoinGroup",quantile="0.50"}'] > 0
    assert found['remotetimems{request="JoinGroup",quantile="0.50"}'] > 0
    assert found['requests_total{request="JoinGroup"}'] == found['localtimems_count{request="JoinGroup"}'] == 4
    assert found['totaltimems_count{request="JoinGroup"}'] == found['remotetimems_count{request="JoinGroup"}'] == 1


def test_requests_that_did_not_wait_have_no_remote_time_and_no_pause(answers: Answers) -> None:
    for _ in range(3):
        answers.ask(JOIN_GROUP, response(JOIN_GROUP))
    later: Completion[Any] = Completion()
    answers.ask(JOIN_GROUP, later)
    later.complete(response(JOIN_GROUP))
    found = rows(answers.times)
    assert found['totaltimems{request="JoinGroup",quantile="0.50"}'] > 0
    assert found['remotetimems{request="JoinGroup",quantile="0.50"}'] == 0
    assert found['remotetimems{request="JoinGroup",quantile="0.98"}'] > 0
    assert found['throttletimems{request="JoinGroup",quantile="0.999"}'] == 0


def test_quantiles_are_written_as_by_the_jmx_exporter() -> None:
    times = RequestTimes()
    times.of(0).at_once.record(1)
    labels = [
        re.findall(r'quantile="(.+)"', key) for key in rows(times) if key.startswith('totaltimems{request="Produce",')
    ]
    assert labels == [["0.50"], ["0.75"], ["0.95"], ["0.98"], ["0.99"], ["0.999"]]


def test_fetches_of_consumers_and_followers_are_also_counted_apart(answers: Answers) -> None:
    def fetch_as_replica(connection: Any) -> Any:
        connection.state[FETCHED_BY_REPLICA] = True
        return response(FETCH)

    consumer, follower = Connection(), Connection()
    followed = EXACT + 2
    for _ in range(followed):
        answers.ask(FETCH, fetch_as_replica, follower)
    waiting: Completion[Any] = Completion()
    other_follower = Connection()
    other_follower.state[FETCHED_BY_REPLICA] = True
    answers.ask(FETCH, waiting, other_follower)
    for _ in range(3):
        answers.ask(FETCH, response(FETCH), consumer)
        answers.ask(PRODUCE, response(PRODUCE), consumer)
    answers.ask(PRODUCE, response(PRODUCE), follower)
    found, times = rows(answers.times), answers.times
    assert found['requests_total{request="Fetch"}'] == followed + 4
    assert found['requests_total{request="FetchConsumer"}'] == 3
    assert found['requests_total{request="FetchFollower"}'] == followed + 1
    assert found['totaltimems_count{request="FetchFollower"}'] == followed
    assert found['requests_total{request="Produce"}'] == 4
    assert times.of(FOLLOWER_FETCH).at_once.count == followed
    assert times.of(FETCH).at_once.count == 3
    assert [usage.name for usage in answers.meter.clients] == [("ANONYMOUS", "test")]
    assert next(iter(answers.meter.clients)).connections == 1


def test_fetches_of_consumers_only_have_a_row_of_zeros_for_followers(answers: Answers) -> None:
    answers.ask(FETCH, response(FETCH))
    found = rows(answers.times)
    assert found['requests_total{request="FetchFollower"}'] == 0
    assert found['totaltimems{request="FetchFollower",quantile="0.99"}'] == 0
    assert found['totaltimems{request="Fetch",quantile="0.99"}'] > 0
