"""The statuses of plain queries, from Spark's events, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.streams.query_metrics import ReportedQueries
from ottla.streams.status import Status


class Offered(dict[str, Status]):
    """The last status of each query."""

    def offer(self, status: Status) -> None:
        self[status.key] = status


@pytest.fixture
def offered() -> Offered:
    return Offered()


@pytest.fixture
def queries(offered: Offered) -> ReportedQueries:
    return ReportedQueries("app", offered)


def report(run: str, start: Any, end: Any, *, rows: int = 0, **given: object) -> str:
    source = {"startOffset": start, "endOffset": end, "latestOffset": end, "numInputRows": rows}
    return json.dumps({"id": "q1", "runId": run, "name": None, "batchId": 3, "sources": [source], **given})


def test_query_runs_from_its_start_on(queries: ReportedQueries, offered: Offered) -> None:
    queries.begun("q1", "r1", "delays")
    assert offered["app/delays"].phase == "running"
    assert offered["app/delays"].batch is None


def test_first_batch_of_a_new_query_counts_the_rows_of_spark(queries: ReportedQueries, offered: Offered) -> None:
    queries.begun("q1", "r1", "delays")
    queries.take(report("r1", None, {"t": {"0": 5, "1": 9}}, rows=6))
    queries.take(report("r1", {"t": {"0": 5, "1": 9}}, {"t": {"0": 7, "1": 9}}, rows=2))
    status = offered["app/delays"]
    assert (status.records, status.batches, [each.topic for each in status.inputs]) == (8, 2, ["t"])


def test_query_without_a_name_that_runs_already_has_its_id(queries: ReportedQueries, offered: Offered) -> None:
    queries.take(report("r1", {"t": {"0": 5}}, {"t": {"0": 7}}))
    assert offered["app/q1"].records == 2


@pytest.mark.parametrize(("is_failed", "phase"), [(True, "failed"), (False, "stopped")])
def test_ended_query_has_its_last_figures(
    queries: ReportedQueries, offered: Offered, is_failed: bool, phase: str
) -> None:
    queries.begun("q1", "r1", "delays")
    queries.take(report("r1", {"t": {"0": 5}}, {"t": {"0": 7}}))
    queries.ended("r1", is_failed)
    assert (offered["app/delays"].phase, offered["app/delays"].records) == (phase, 2)
    queries.begun("q1", "r2", "delays")
    assert (offered["app/delays"].phase, offered["app/delays"].records) == ("running", 0)


@pytest.mark.parametrize("offset", [7, {"logOffset": 7}, {"shard": {"seven": "x"}}, {"shard": {"0": "x"}}, "text"])
def test_offsets_of_another_source_are_no_lag(queries: ReportedQueries, offered: Offered, offset: object) -> None:
    queries.begun("q1", "r1", "files")
    queries.take(report("r1", None, offset, rows=4))
    status = offered["app/files"]
    assert (status.inputs, status.records, status.batches) == ((), 4, 1)
