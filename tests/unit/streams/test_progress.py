"""The reports of a session's queries, without Spark: a report becomes a status and warnings."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.streams.progress import Progress
from ottla.streams.status import Run, Status

QUERY = "shop.balance"


def report(number: int, *, name: str | None = QUERY, invalid: int = 0, late: int = 0) -> dict[str, Any]:
    """Spark's report about a micro-batch, as JSON."""
    return {
        "name": name,
        "batchId": number,
        "observedMetrics": {"invalid.orders": {"count": invalid}, "invalid.prices": {"count": 0}},
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
    }


@pytest.fixture
def progress() -> Progress:
    made = Progress()
    made.begin(Status(Run("shop", QUERY)))
    return made


def test_query_without_a_report_has_no_batch(progress: Progress) -> None:
    assert (progress.batches(QUERY), progress.last_batch(QUERY)) == (0, -1)


def test_reports_are_added_up(progress: Progress) -> None:
    for number, invalid, late in ((4, 2, 1), (5, 0, 0), (6, 3, 5)):
        progress.take(report(number, invalid=invalid, late=late))
    assert (progress.batches(QUERY), progress.last_batch(QUERY)) == (3, 6)
    assert progress.late(QUERY) == 6
    assert progress.invalid(QUERY) == {"orders": 5}


@pytest.mark.parametrize("name", [None, "another"])
def test_reports_of_queries_of_the_program_itself_are_ignored(progress: Progress, name: str | None) -> None:
    progress.take(report(0, name=name, late=3))
    assert progress.batches(QUERY) == 0


def test_queries_are_counted_apart(progress: Progress) -> None:
    progress.begin(Status(Run("shop", "shop.other")))
    progress.take(report(0, name="shop.other", late=3))
    assert (progress.late(QUERY), progress.late("shop.other")) == (0, 3)


def test_each_batch_with_late_or_invalid_records_is_logged_once(
    progress: Progress, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ottla.streams"):
        progress.take(report(0, invalid=2, late=1))
        progress.take(report(1))
        progress.take(report(2, invalid=3))
    assert caplog.messages == [
        f"Late records in query {QUERY}: batch=0, rows=1, total=1, watermark=None",
        f"Invalid records in query {QUERY}: input=orders, batch=0, number=2, total=2",
        f"Invalid records in query {QUERY}: input=orders, batch=2, number=3, total=5",
    ]
