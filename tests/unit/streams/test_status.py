"""The status of a query: from Spark's reports, as the value of a record, and when it is published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.streams.batch_reports import MOST_SAMPLES, after_batch
from ottla.streams.status import (
    HEARTBEAT_MS,
    MOST_PARTITIONS,
    SILENT_MS,
    Batch,
    Input,
    Partition,
    Problem,
    Run,
    Status,
    Store,
    at_start,
    is_due,
)

RUN = Run("shop", "shop.balance", outputs=["balance"], operators=["aggregate by customer"], streams={"o": "orders"})


def report(number: int = 0, start: int = 0, end: int = 10, latest: int = 10, **others: Any) -> dict[str, Any]:
    """Return Spark's report after a micro-batch that read one partition of `orders`."""
    return {
        "name": "shop.balance",
        "batchId": number,
        "batchDuration": 200,
        "durationMs": {"addBatch": 150, "triggerExecution": 200, "walCommit": 20},
        "sources": [
            {
                "startOffset": {"orders": {"0": start}},
                "endOffset": {"orders": {"0": end}},
                "latestOffset": {"orders": {"0": latest}},
            }
        ],
        "sink": {"numOutputRows": 4},
        **others,
    }


def test_status_after_the_first_batches() -> None:
    first = after_batch(Status(RUN), report(latest=15), 1_000)
    assert first.batch == Batch(0, 1_000, 200, {"addBatch": 150, "walCommit": 20}, 10, 50.0, 0.0)
    assert first.inputs == (Input("orders", (Partition(0, 10, 15, 10, 1_000),), 0, 5, 10, 1_000),)
    assert (first.lag, first.records, first.batches, first.outputs) == (5, 10, 1, {"balance": 4})
    second = after_batch(first, report(1, 10, 15, 25), 3_000)
    assert second.batch is not None
    assert (second.batch.records, second.batch.processed_per_s, second.batch.arrived_per_s) == (5, 25.0, 5.0)
    assert (second.lag, second.records, second.batches, second.outputs) == (10, 15, 2, {"balance": 8})
    third = after_batch(second, report(2, 15, 15, 25), 5_000)
    assert third.inputs[0].last_record_ms == 3_000


def test_first_batch_without_start_and_source_of_another_format() -> None:
    idle = {"#idle": {"at": 1_767_225_600_000}}
    sources = [{"startOffset": None, "endOffset": {"orders": {"0": 3}} | idle, "latestOffset": None}, {"endOffset": 7}]
    status = after_batch(Status(RUN), report(sources=sources), 1)
    assert status.inputs == (Input("orders", (Partition(0, 3, 3),)),)


def test_first_batch_of_a_checkpoint_begins_at_the_start_of_the_run() -> None:
    started = at_start(RUN, {"orders": {0: (2, 9)}})
    assert (started.lag, started.records) == (7, 0)
    sources = [{"startOffset": None, "endOffset": {"orders": {"0": 5}}, "latestOffset": {"orders": {"0": 9}}}]
    status = after_batch(started, report(sources=sources), 1)
    assert status.inputs == (Input("orders", (Partition(0, 5, 9, 3, 1),), 0, 4, 3, 1),)
    assert status.records == 3


def test_state_watermark_and_observed_metrics() -> None:
    stores = [
        {"operatorName": "stateStoreSave", "numRowsTotal": 7, "memoryUsedBytes": 9, "numRowsDroppedByWatermark": 2}
    ]
    metrics = {"invalid.o": {"count": 3}, "output.a": {"count": 5}, "of.the.program": {"x": 1}}
    others = {"stateOperators": stores, "observedMetrics": metrics, "sink": {"numOutputRows": -1}}
    time = {"eventTime": {"watermark": "2026-01-01T00:00:00.000Z"}}
    status = after_batch(Status(RUN), report(**others, **time), 1)
    assert status.stores == (Store("aggregate by customer", 7, 9, 0, 0, 2),)
    assert (status.watermark_ms, status.invalid, status.outputs) == (1_767_225_600_000, {"o": 3}, {"a": 5})
    again = after_batch(status, report(**others, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}), 2)
    assert (again.watermark_ms, again.invalid, again.state_rows) == (1_767_225_600_000, {"o": 6}, 7)
    assert (status.late, again.late) == (2, 4)


def test_many_partitions_are_limited_to_those_with_the_largest_lag() -> None:
    ends = {str(number): number for number in range(1_000)}
    source = {"startOffset": None, "endOffset": {"orders": dict.fromkeys(ends, 0)}, "latestOffset": {"orders": ends}}
    status = after_batch(Status(RUN), report(sources=[source]), 1)
    (orders,) = Status.loads(status.dumps()).inputs
    assert [each.partition for each in orders.partitions] == list(range(1_000 - MOST_PARTITIONS, 1_000))
    assert (orders.omitted, orders.lag) == (1_000 - MOST_PARTITIONS, sum(range(1_000)))
    assert len(status.dumps()) < 8_000


def test_samples_are_of_the_start_and_the_last_minutes() -> None:
    status = Status(RUN)
    for number in range(500):
        status = after_batch(status, report(number, number, number + 1, number + 1), number * 1_000)
    times = [each.at_ms // 1_000 for each in status.samples]
    assert times == [0, *range(490 - 10 * (MOST_SAMPLES - 2), 500, 10)]


def test_value_of_a_record_is_read_again() -> None:
    status = replace(
        after_batch(Status(RUN), report(stateOperators=[{"numRowsTotal": 1}]), 5), problem=Problem(1, "retriable", "x")
    )
    read = Status.loads(status.dumps())
    assert read == replace(status, run=replace(status.run, tables=[]))
    assert read.key == "shop/shop.balance"
    # A later version may add fields.
    assert Status.loads(status.dumps().replace(b'"version":1', b'"version":2,"more":[1]')) == read


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b'{"run":1}', b"\xff"])
def test_other_value_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="the status is unreadable"):
        Status.loads(value)


def test_unknown_phase_is_an_error() -> None:
    with pytest.raises(ValueError, match="phase 'paused'"):
        Status.loads(Status(RUN).dumps().replace(b'"running"', b'"paused"'))


def test_status_is_published_after_changes_and_as_a_heartbeat() -> None:
    published = Status(RUN, at_ms=0)
    assert is_due(None, published)
    assert not is_due(published, replace(published, at_ms=9_999))
    assert is_due(published, replace(published, at_ms=HEARTBEAT_MS))
    assert not is_due(published, replace(published, at_ms=999, batches=1))
    assert is_due(published, replace(published, at_ms=1_000, batches=1))
    assert is_due(published, replace(published, at_ms=1, phase="failed"))
    assert is_due(published, replace(published, at_ms=1, problem=Problem(1, "data", "x")))


def test_run_is_alive_while_it_publishes() -> None:
    assert Status(RUN, at_ms=0).is_alive(SILENT_MS)
    assert not Status(RUN, at_ms=0).is_alive(SILENT_MS + 1)
    assert not Status(RUN, phase="stopped", at_ms=0).is_alive(1)
    waits = Problem(0, "retriable", "no broker", next_start_ms=60_000)
    assert Status(RUN, phase="restarting", problem=waits).is_alive(60_000 + SILENT_MS)
    assert not Status(RUN, phase="restarting", problem=waits).is_alive(60_000 + SILENT_MS + 1)
    assert not Status(RUN, problem=waits).is_alive(60_000)


def test_problem_names_its_record() -> None:
    assert Problem(1, "data", "Topic 'a b', partition 3, offset 7: wrong").record == ("a b", 3, 7)
    assert Problem(1, "program", "Topic 'a', partition 3, offset 7: wrong").record is None
    assert Problem(1, "data", "wrong").record is None
