"""Counts and times of requests: quantiles, windows, and requests that wait."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metrics.exposition import Samples
from ottla.broker.metrics.families import FAMILIES
from ottla.broker.metrics.request_rows import add_requests
from ottla.broker.metrics.requests import (
    EXACT,
    FETCH,
    FOLLOWER_FETCH,
    QUANTILES,
    SAMPLED,
    RequestTimes,
    Times,
    quantiles,
)
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.network.connection import FETCHED_BY_REPLICA, MutingResponse

PRODUCE_FRAME = memoryview(bytearray(b"\x00\x00\x00\x0d"))
FETCH_FRAME = memoryview(bytearray(b"\x00\x01\x00\x0d"))
JOIN_FRAME = memoryview(bytearray(b"\x00\x0b\x00\x09"))


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


def test_busy_api_is_sampled_and_every_request_is_counted() -> None:
    times = RequestTimes()
    measured = times.measured(lambda _connection, _frame: [])
    for _ in range(EXACT + 8 * SAMPLED):
        measured(_connection(), PRODUCE_FRAME)
    assert times.count(0) == times.of(0).at_once.count == EXACT + 8 * SAMPLED
    times.rotate()
    measured(_connection(), PRODUCE_FRAME)
    assert times.count(0) == times.of(0).at_once.count == EXACT + 8 * SAMPLED + 1
    assert times.of(0).at_once.now.count(1) == 1


def test_response_that_comes_at_once_is_counted() -> None:
    times = RequestTimes()
    response = [b"response"]
    measured = times.measured(lambda _connection, _frame: response)
    assert measured(_connection(), PRODUCE_FRAME) is response
    assert times.of(0).at_once.count == times.count(0) == 1
    assert times.of(0).total.count == 0


def test_waiting_response_is_counted_when_it_is_complete() -> None:
    times = RequestTimes()
    later: Completion[Any] = Completion()
    measured = times.measured(lambda _connection, _frame: later)
    assert measured(_connection(), FETCH_FRAME) is later
    fetch = times.of(1)
    assert (fetch.local.count, fetch.remote.count, fetch.total.count) == (1, 0, 0)
    later.complete(MutingResponse([b"x"], 0.25))
    assert (fetch.remote.count, fetch.total.count, fetch.throttle.total_ns) == (1, 1, 250_000_000)
    # Since KIP-219 the response is sent before the pause.
    assert 0 < fetch.total.total_ns < 250_000_000


def test_failed_request_raises_and_has_no_time() -> None:
    times = RequestTimes()

    def fail(_connection: object, _frame: memoryview) -> None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    with pytest.raises(KafkaError):
        times.measured(fail)(_connection(), PRODUCE_FRAME)
    assert not times.by_key
    later: Completion[Any] = Completion()
    times.measured(lambda _connection, _frame: later)(_connection(), FETCH_FRAME)
    later.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert times.of(1).total.count == 1


@pytest.mark.parametrize("frame", [b"", b"\x00"])
def test_frame_without_an_api_key_is_left_to_the_dispatcher(frame: bytes) -> None:
    measured = RequestTimes().measured(lambda _connection, frame: [bytes(frame)])
    assert measured(_connection(), memoryview(frame)) == [frame]


def rows(times: RequestTimes) -> dict[str, float]:
    """The samples of requests by name and labels, without the prefix."""
    samples = Samples()
    finish(add_requests(samples, times))
    found = {}
    for name in list(samples.names()):
        for line in samples.of(FAMILIES[name]):
            key, _, value = line.rpartition(" ")
            found[key.removeprefix("kafka_network_requestmetrics_")] = float(value)
    return found


def test_waiting_requests_count_only_in_the_local_time() -> None:
    times = RequestTimes()
    waiting: list[Completion[Any]] = [Completion() for _ in range(4)]
    answers = iter(waiting)
    measured = times.measured(lambda _connection, _frame: next(answers))
    for _ in waiting:
        measured(_connection(), JOIN_FRAME)
    waiting[0].complete(MutingResponse([b"x"], 0.25))
    found = rows(times)
    assert found['totaltimems{request="JoinGroup",quantile="0.50"}'] > 0
    assert found['remotetimems{request="JoinGroup",quantile="0.50"}'] > 0
    assert found['throttletimems{request="JoinGroup",quantile="0.50"}'] >= 250
    assert found['requests_total{request="JoinGroup"}'] == 4


def test_requests_that_did_not_wait_have_no_remote_time_and_no_pause() -> None:
    times = RequestTimes()
    answers: list[Any] = [Completion.of([b"x"]), [], [], []]
    measured = times.measured(lambda _connection, _frame: answers.pop())
    for _ in range(4):
        measured(_connection(), JOIN_FRAME)
    found = rows(times)
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


def test_fetches_of_consumers_and_followers_are_also_counted_apart() -> None:
    times = RequestTimes()

    def dispatch(connection: Any, _frame: memoryview) -> list[Any]:
        if connection.fetches_as_replica:
            connection.state[FETCHED_BY_REPLICA] = True
        return []

    measured = times.measured(dispatch)
    consumer, follower = _connection(), _connection()
    follower.fetches_as_replica = True
    for _ in range(EXACT + 2 * SAMPLED):
        measured(follower, FETCH_FRAME)
    for _ in range(3):
        measured(consumer, FETCH_FRAME)
        measured(consumer, PRODUCE_FRAME)
    measured(follower, PRODUCE_FRAME)
    found = rows(times)
    followed = EXACT + 2 * SAMPLED
    assert found['requests_total{request="Fetch"}'] == followed + 3
    assert found['requests_total{request="FetchConsumer"}'] == 3
    assert found['requests_total{request="FetchFollower"}'] == followed
    assert found['totaltimems_count{request="FetchFollower"}'] == followed
    assert found['requests_total{request="Produce"}'] == 4
    assert times.of(FOLLOWER_FETCH).at_once.count == followed
    assert times.of(FETCH).at_once.count == 3


def test_fetches_of_consumers_only_have_a_row_of_zeros_for_followers() -> None:
    times = RequestTimes()
    times.measured(lambda _connection, _frame: [])(_connection(), FETCH_FRAME)
    found = rows(times)
    assert found['requests_total{request="FetchFollower"}'] == 0
    assert found['totaltimems{request="FetchFollower",quantile="0.99"}'] == 0
    assert found['totaltimems{request="Fetch",quantile="0.99"}'] > 0


def _connection() -> Any:
    return SimpleNamespace(state={}, fetches_as_replica=False)
