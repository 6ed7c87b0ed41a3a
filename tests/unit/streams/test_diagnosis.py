"""Findings about queries: which cause is named, whether it is a problem, and which one comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.ids import TopicPartition
from ottla.streams.diagnosis import diagnose
from ottla.streams.facts import Facts, Finding, OpenTransaction
from ottla.streams.status import (
    PHASES,
    SILENT_MS,
    Batch,
    FrequentKey,
    Input,
    Partition,
    Problem,
    Run,
    Sample,
    SlowTask,
    Status,
    Store,
)

NOW = 1_800_000_000_000
RUN = Run("shop", "shop.balance", host="h1", pid=77, started_ms=NOW - 600_000, streams={"o": "orders"})
BATCH = Batch(7, NOW - 2_000, 1_000, {"addBatch": 900, "walCommit": 100}, 100, 100.0, 50.0)
ORDERS = TopicPartition("orders", 0)


def orders(*partitions: tuple[int, int], records: tuple[int, ...] = (), last_ms: int = NOW - 3_000) -> Input:
    """The input `orders`, with the offset and end of each partition."""
    counts = records or (0,) * len(partitions)
    return Input.of(
        "orders", [Partition(i, *each, counts[i], last_ms if each[0] else 0) for i, each in enumerate(partitions)]
    )


def status(**given: Any) -> Status:
    """A query that has processed all of its records."""
    return replace(
        Status(RUN, at_ms=NOW - 1_000, batch=BATCH, batches=8, records=800, inputs=(orders((800, 800)),)), **given
    )


def find(given: Status, **facts: Any) -> Finding:
    """The most important finding."""
    return diagnose(given, Facts(NOW, **facts))[0]


def causes(given: Status, **facts: Any) -> list[str]:
    return [each.cause for each in diagnose(given, Facts(NOW, **facts))]


# -- the run has ended -------------------------------------------------------------------------------------------------


def test_stopped_query_is_not_diagnosed_further() -> None:
    found = diagnose(status(phase="stopped"), Facts(NOW, missing=("orders",)))
    assert [each.cause for each in found] == ["stopped"]
    assert found[0].advice == ["`ottla stream run` starts it again; it continues after micro-batch 7."]


@pytest.mark.parametrize(
    ("end", "text"), [(800, "(--once)."), (801, "1 record arrived."), (2_800, "2,000 records arr")]
)
def test_query_that_ran_once_is_a_problem_only_with_new_records(end: int, text: str) -> None:
    found = find(status(phase="done"), ends={ORDERS: end})
    assert (found.cause, found.is_problem) == ("done", end > 800)
    assert text in found.text


def test_silent_run_has_died() -> None:
    found = find(status(at_ms=NOW - SILENT_MS - 1))
    assert found.cause == "died"
    assert "process 77 on h1" in found.text
    assert "Its last micro-batch was 7." in found.text
    assert find(status(at_ms=NOW - SILENT_MS)).cause == "waiting for input"


def test_run_that_died_before_its_first_batch_has_no_place_to_continue() -> None:
    found = find(status(at_ms=NOW - SILENT_MS - 1, batch=None))
    assert "micro-batch" not in found.text
    assert found.advice == ["`ottla stream run` starts it again; it continues."]


@pytest.mark.parametrize(
    ("problem", "cause", "text", "advice"),
    [
        (None, "failed", "It failed 1 s ago.", "starts it again"),
        (
            Problem(NOW, "data", "Topic 'orders', partition 2, offset 17: not JSON"),
            "stopped by a record",
            "not JSON",
            "`ottla consume orders -p 2 -o 17 -n 1`",
        ),
        (Problem(NOW, "data", "not JSON"), "failed", "a restart would not help: not JSON", "Change the program"),
        (Problem(NOW, "retriable", "lost", 20), "failed", "after 20 restarts without", "starts it again"),
        (Problem(NOW, "retriable", "lost", 1), "failed", "after 1 restart without", "starts it again"),
        (
            Problem(NOW, "program", "KeyError: 'x'"),
            "failed",
            "a restart would not help: KeyError",
            "Change the program",
        ),
    ],
)
def test_failed_query_names_its_reason(problem: Problem | None, cause: str, text: str, advice: str) -> None:
    found = find(status(phase="failed", problem=problem))
    assert found.cause == cause
    assert text in found.text
    assert advice in found.advice[0]


# -- the run is alive --------------------------------------------------------------------------------------------------


def test_query_without_waiting_records_is_healthy() -> None:
    found = find(status())
    assert (found.cause, found.is_problem) == ("waiting for input", False)
    assert "The last one was 3 s ago." in found.text


@pytest.mark.parametrize(("mode", "named"), [("append", True), ("update", False)])
def test_open_windows_are_named_where_they_delay_results(mode: str, named: bool) -> None:
    found = find(status(run=replace(RUN, mode=mode), watermark_ms=NOW - 60_000))
    assert ("wait for later records" in found.text) is named


@pytest.mark.parametrize(("end", "text"), [(0, "There are no records."), (30, "30 records wait.")])
def test_query_before_its_first_batch_is_starting(end: int, text: str) -> None:
    found = find(status(batch=None, inputs=(orders((0, end)),)))
    assert (found.cause, found.is_problem) == ("starting", False)
    assert "10 min ago" in found.text
    assert text in found.text


def test_few_waiting_records_are_no_problem() -> None:
    found = find(status(), ends={ORDERS: 900})
    assert (found.cause, found.is_problem) == ("running", False)
    assert "100 records wait" in found.text


def test_ends_that_brokers_report_replace_the_ends_of_the_status() -> None:
    old = status(inputs=(orders((0, 900_000)),))
    assert causes(old) == ["running", "behind"]
    # The topic was recreated and is empty.
    assert causes(old, ends={ORDERS: 0}) == ["waiting for input"]


def test_totals_count_where_partitions_are_omitted() -> None:
    limited = replace(orders((10, 10), (10, 10)), omitted=60, lag=900_000)
    assert "900,000 records wait" in find(status(inputs=(limited,)), ends={ORDERS: 10}).text


def test_missing_input_comes_first() -> None:
    found = diagnose(
        status(invalid={"o": 2}, phase="restarting", problem=Problem(NOW, "retriable", "lost")),
        Facts(NOW, missing=("a", "b")),
    )
    assert [each.cause for each in found] == ["missing topic", "restarting", "invalid records"]
    assert "a, b" in found[0].text


@pytest.mark.parametrize(
    ("next_start_ms", "text"), [(NOW + 30_000, "in 30 s"), (NOW - 5_000, "in 1 s"), (None, "in 1 s")]
)
def test_restart_names_the_wait_and_the_reason(next_start_ms: int | None, text: str) -> None:
    problem = Problem(NOW - 4_000, "retriable", "no broker", 2, next_start_ms)
    found = find(status(phase="restarting", problem=problem))
    assert found.cause == "restarting"
    for each in (text, "4 s ago", "restart 3", "no broker"):
        assert each in found.text


@pytest.mark.parametrize(("failed_ms", "batch", "named"), [(-1, BATCH, False), (0, BATCH, True), (-1, None, True)])
def test_restart_is_over_with_the_next_finished_batch(failed_ms: int, batch: Batch | None, named: bool) -> None:
    problem = Problem(BATCH.finished_ms + failed_ms, "retriable", "no broker")
    assert ("restarted" in causes(status(problem=problem, batch=batch))) is named


# -- transactions ------------------------------------------------------------------------------------------------------


def transaction(age_ms: int, transactional_id: str | None = "t-1", start: int = 40) -> OpenTransaction:
    return OpenTransaction(ORDERS, start, 9, transactional_id, NOW - age_ms, 5)


@pytest.mark.parametrize(("age_ms", "named"), [(4_999, False), (5_000, True)])
def test_transaction_is_a_problem_once_its_last_record_is_old(age_ms: int, named: bool) -> None:
    assert (causes(status(), transactions=[transaction(age_ms)]) == ["open transaction"]) is named


def test_oldest_transaction_is_named_with_the_command_that_aborts_it() -> None:
    given = [transaction(10_000, "young"), transaction(90_000, "old"), transaction(100, "active")]
    found = find(status(), transactions=given)
    assert "'old'" in found.text
    assert "1 min 30 s old" in found.text
    assert "2 transactions are open." in found.text
    assert "`ottla txn abort --transactional-id old`" in found.advice[0]


def test_transaction_without_a_coordinator_is_aborted_by_its_offset() -> None:
    found = find(status(), transactions=[transaction(10_000, None, 41)])
    assert "producer 9" in found.text
    assert "are open" not in found.text
    assert "`ottla txn abort orders/0 --start-offset 41`" in found.advice[0]


def test_transaction_in_a_copy_is_ended_at_the_source_of_its_mirror() -> None:
    found = find(status(), transactions=[replace(transaction(10_000, None), mirror="dr")])
    assert "producer 9 of the source of mirror dr" in found.text
    assert "end it at the source" in found.advice[0]
    assert "ottla txn abort" not in found.advice[0]


# -- speed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_ms", "busy_ms", "named"),
    [(100, 9_999, False), (100, 10_000, True), (10_000, 29_999, False), (10_000, 30_000, True)],
)
def test_batch_is_long_compared_with_the_previous_one(duration_ms: int, busy_ms: int, named: bool) -> None:
    given = status(batch=replace(BATCH, duration_ms=duration_ms), busy_since_ms=NOW - busy_ms)
    found = find(given)
    assert (found.cause == "long micro-batch") is named
    assert found.is_problem is named
    assert ("Micro-batch 8 has run" in found.text) is named


@pytest.mark.parametrize(("busy_ms", "named"), [(9_999, False), (10_000, True)])
def test_long_first_batch_is_no_problem(busy_ms: int, named: bool) -> None:
    found = diagnose(status(batch=None, busy_since_ms=NOW - busy_ms), Facts(NOW))
    assert [each.cause for each in found] == (["starting", "long micro-batch"] if named else ["starting"])
    assert not any(each.is_problem for each in found)


@pytest.mark.parametrize(
    ("lag", "samples", "cause"),
    [
        (999, (), "running"),
        (1_000, (), "behind"),
        (1_000, (Sample(NOW - 60_000, 999, 0, 0),), "slower than its input"),
        (1_000, (Sample(NOW - 60_000, 1_000, 0, 0),), "behind"),
        # A sample of longer ago does not count.
        (1_000, (Sample(NOW - 200_000, 0, 0, 0), Sample(NOW - 60_000, 2_000, 0, 0)), "behind"),
    ],
)
def test_lag_is_compared_with_the_rate_and_the_last_two_minutes(
    lag: int, samples: tuple[Sample, ...], cause: str
) -> None:
    found = diagnose(status(samples=samples), Facts(NOW, {ORDERS: 800 + lag}))
    speed = next(each for each in found if each.cause == cause)
    assert speed.is_problem is (cause == "slower than its input")
    assert ("falls further behind" in speed.text) is speed.is_problem


@pytest.mark.parametrize(
    ("phases_ms", "lines"),
    [
        ({"addBatch": 900, "walCommit": 100}, ["90 % of a micro-batch is reading", "More partitions"]),
        ({"addBatch": 100, "commitOffsets": 300}, ["75 % of a micro-batch is writing the checkpoint", "--checkpoints"]),
        ({"latestOffset": 10}, ["100 % of a micro-batch is asking the brokers"]),
        ({"newPhase": 10}, ["100 % of a micro-batch is newPhase"]),
        ({"addBatch": 0}, ["0 % of a micro-batch is reading", "More partitions"]),
        ({}, ["0 % of a micro-batch is unknown"]),
    ],
)
def test_slowest_phase_decides_the_advice(phases_ms: Mapping[str, int], lines: list[str]) -> None:
    given = status(batch=replace(BATCH, phases_ms=phases_ms))
    found = next(each for each in diagnose(given, Facts(NOW, {ORDERS: 90_000})) if each.cause == "behind")
    assert len(found.advice) == len(lines)
    assert all(part in line for part, line in zip(lines, found.advice, strict=True))


def test_query_that_processed_nothing_has_no_rate_to_compare() -> None:
    assert find(status(batch=replace(BATCH, processed_per_s=0.0)), ends={ORDERS: 10**9}).cause == "running"


# -- skew, event time and state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "records", "text"),
    [
        (((0, 801), (0, 199)), (), "Partition 0 of orders has 80 % of the lag"),
        (((0, 800), (0, 200)), (), None),
        (((0, 100), (0, 899)), (), None),
        (((0, 1_000),), (), None),
        (((9, 9), (9, 9)), (50, 5_000), "Partition 1 of orders has 99 % of the records"),
    ],
)
def test_partition_with_most_of_the_records_is_named(
    partitions: tuple[tuple[int, int], ...], records: tuple[int, ...], text: str | None
) -> None:
    found = diagnose(status(inputs=(orders(*partitions, records=records),)), Facts(NOW))
    skewed = [each for each in found if each.cause == "skewed partition"]
    assert len(skewed) == (text is not None)
    for each in skewed:
        assert text is not None
        assert text in each.text
        assert each.is_problem is ("lag" in text)


SLOW = SlowTask(NOW - 1_000, 5, 2, 4, 12_000, 400, "h2")
KEY = FrequentKey("deduplicate by user, kind", ["user", "kind"], ['"a"', "null"], 450, 500, 1_000)


@pytest.mark.parametrize(
    ("slow", "cause", "text"),
    [
        (replace(SLOW, keys=[KEY]), "skewed key", "It has 50 % of 1,000 rows in a sample, and 90 % of these have "),
        (replace(SLOW, keys=[KEY]), "skewed key", """user = "a", kind = null. The operator 'deduplicate by user, """),
        (replace(SLOW, keys=[replace(KEY, task_rows=5), KEY]), "skewed key", "It has 50 % of"),
        (replace(SLOW, keys=[replace(KEY, count=250)]), "slow task", "sample, and none of its keys has most of them."),
        (replace(SLOW, keys=[replace(KEY, task_rows=374)]), "slow task", "sample, which is not too much: its rows or "),
        (SLOW, "slow task", "Task 2 of 4, on h2, ran for 12.0 s; half of the others took at most 0.4 s. The key of"),
        (SLOW, "slow task", "The key of its rows is not known yet."),
        (replace(SLOW, unknown="no records wait"), "slow task", "The key of its rows is not known: no records wait."),
        (replace(SLOW, reads_inputs=True), "slow task", "It reads records of the inputs: one partition has most"),
        (replace(SLOW, at_ms=NOW - 300_001), None, ""),
        (None, None, ""),
    ],
)  # fmt: skip
def test_slow_task_is_named_with_its_key_if_it_is_known(slow: SlowTask | None, cause: str | None, text: str) -> None:
    given = status(slow=slow, busy_since_ms=NOW)
    found = [each for each in diagnose(given, Facts(NOW)) if each.cause in ("slow task", "skewed key")]
    assert [each.cause for each in found] == ([] if cause is None else [cause])
    for each in found:
        assert text in each.text
        assert each.is_problem


@pytest.mark.parametrize(
    ("lag", "running_ms", "is_problem"), [(0, 9_999, False), (1_000, 9_999, True), (0, 10_000, True)]
)
def test_slow_task_is_a_problem_if_it_delays_the_query(lag: int, running_ms: int, is_problem: bool) -> None:
    given = status(slow=replace(SLOW, running_ms=running_ms), inputs=(orders((800, 800 + lag)),))
    (found,) = (each for each in diagnose(given, Facts(NOW)) if each.cause == "slow task")
    assert "in an earlier micro-batch" in found.text
    assert found.is_problem is is_problem


@pytest.mark.parametrize(("ahead_ms", "named"), [(3_600_000, False), (3_600_001, True)])
def test_watermark_in_the_future_is_a_problem(ahead_ms: int, named: bool) -> None:
    found = diagnose(status(watermark_ms=NOW + ahead_ms), Facts(NOW))
    assert (found[0].cause == "event time in the future") is named
    assert not named or "`ottla stream reset shop`" in found[0].advice[0]


def two_inputs(idle_ms: int, lag: int = 0, event_time: bool = True) -> Status:
    other = Input("payments", (Partition(3, 5, 5 + lag),), 0, lag, 0, NOW - 3_000 - idle_ms if idle_ms else 0)
    return status(run=replace(RUN, has_event_time=event_time), inputs=(orders((800, 800)), other))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (two_inputs(29_999), None),
        (two_inputs(30_000), "no records for 33 s"),
        (two_inputs(0), "no records since the run started"),
        (two_inputs(60_000, lag=1), None),
        (two_inputs(60_000, event_time=False), None),
        (status(run=replace(RUN, has_event_time=True)), None),
    ],
)
def test_idle_input_holds_the_watermark_of_several_streams_back(given: Status, text: str | None) -> None:
    found = [each for each in diagnose(given, Facts(NOW)) if each.cause == "watermark held back"]
    assert len(found) == (text is not None)
    for each in found:
        assert text is not None
        assert text in each.text
        assert "payments, partition 3" in each.text
        assert "not known yet" in each.text


def store(rows: int, *, removed: int = 0, late: int = 0, operator: str = "aggregate by c") -> Store:
    return Store(operator, rows, 3 * 1024 * 1024, 0, removed, late)


def test_late_rows_need_a_watermark() -> None:
    late = (store(5, late=2), store(5, late=1))
    assert "late records" not in causes(status(stores=late))
    found = find(status(stores=late, watermark_ms=NOW - 60_000))
    assert found.cause == "late records"
    assert "3 rows" in found.text


@pytest.mark.parametrize(
    ("first", "after_ms", "now", "named"),
    [
        (0, 60_000, store(10_000), True),
        (0, 59_999, store(10_000), False),
        (0, 60_000, store(9_999), False),
        (100_000, 60_000, store(119_999), False),
        (100_000, 60_000, store(120_000), True),
        (0, 60_000, store(90_000, removed=1), False),
    ],
)
def test_growing_state_is_named(first: int, after_ms: int, now: Store, named: bool) -> None:
    given = status(samples=(Sample(NOW - 1_000 - after_ms, 0, first, 0),), stores=(store(0, operator="limit"), now))
    for event_time in (False, True):
        found = [
            each
            for each in diagnose(replace(given, run=replace(RUN, has_event_time=event_time)), Facts(NOW))
            if each.cause == "state grows"
        ]
        assert len(found) == named
        for each in found:
            assert each.is_problem is event_time
            assert "most are in 'aggregate by c'" in each.text
            assert "6.0 MiB" in each.advice[0]


def test_invalid_records_are_listed_without_zeros() -> None:
    found = diagnose(status(invalid={"o": 1_200, "p": 0}), Facts(NOW))
    assert [each.cause for each in found] == ["waiting for input", "invalid records"]
    assert found[1].text == "Invalid records of this run: 1,200 of o."
    assert causes(status(invalid={"o": 0})) == ["waiting for input"]


PARTITIONS = st.builds(
    Partition, st.integers(0, 3), *[st.integers(0, 5_000)] * 3, st.sampled_from([0, NOW - 40_000, NOW])
)
STATUSES = st.builds(
    Status,
    st.just(RUN) | st.just(replace(RUN, has_event_time=True)),
    st.sampled_from(PHASES),
    st.sampled_from([NOW - SILENT_MS - 1, NOW - 1, NOW + 60_000]),
    st.none() | st.just(BATCH),
    inputs=st.lists(st.lists(PARTITIONS, max_size=3).map(lambda found: Input.of("orders", found)), max_size=2),
    watermark_ms=st.none() | st.sampled_from([NOW - 10**6, NOW + 10**8]),
    stores=st.lists(st.builds(store, st.integers(0, 50_000), late=st.integers(0, 1)), max_size=2),
    problem=st.none() | st.builds(Problem, st.just(NOW), st.sampled_from(["data", "program", "retriable"]), st.text()),
    samples=st.lists(st.builds(Sample, st.just(NOW - 90_000), *[st.integers(0, 9)] * 3), max_size=2),
    busy_since_ms=st.none() | st.sampled_from([NOW - 60_000, NOW + 1]),
)


@settings(max_examples=25)
@given(STATUSES)
def test_every_status_has_a_finding_and_says_first_whether_it_is_healthy(given_status: Status) -> None:
    found = diagnose(given_status, Facts(NOW))
    assert found
    assert len({each.cause for each in found}) == len(found)
    healthy = {"starting", "waiting for input", "running"} & {each.cause for each in found}
    # A healthy query has no problem, and a query with a problem is not called healthy.
    is_alive = given_status.is_alive(NOW)
    assert bool(healthy) is (is_alive and not any(each.is_problem for each in found))
    assert not healthy or found[0].cause in healthy
