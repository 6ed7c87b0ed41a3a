"""Requests of a connector for the ends of its transactions."""

from __future__ import annotations

import pytest

from ottla.connect.errors import ConnectError
from ottla.connect.records import SourceRecord
from ottla.connect.worker import transaction_boundaries
from ottla.connect.worker.transaction_boundaries import End, RequestedEnds


def record() -> SourceRecord:
    return SourceRecord("t", None, None, None, None, "v")


def test_transaction_ends_after_the_record_itself_not_after_an_equal_one() -> None:
    requested, records = RequestedEnds(), [record(), record(), record()]
    requested.commit_transaction(records[1])
    requested.abort_transaction(records[2])
    assert list(requested.ends(records)) == [(2, End.COMMIT), (3, End.ABORT), (3, End.NONE)]
    assert list(requested.ends(records)) == [(3, End.NONE)]


def test_request_may_name_a_record_of_a_later_poll() -> None:
    requested, later = RequestedEnds(), record()
    requested.commit_transaction(later)
    assert list(requested.ends([record()])) == [(1, End.NONE)]
    assert list(requested.ends([later])) == [(1, End.COMMIT), (1, End.NONE)]


def test_request_without_a_record_is_for_the_end_of_one_poll() -> None:
    requested = RequestedEnds()
    requested.commit_transaction()
    assert list(requested.ends([])) == [(0, End.COMMIT)]
    requested.abort_transaction()
    assert list(requested.ends([record()])) == [(1, End.ABORT)]
    assert list(requested.ends([record()])) == [(1, End.NONE)]


def test_requests_that_contradict_each_other_are_an_error() -> None:
    requested, one = RequestedEnds(), record()
    requested.commit_transaction()
    with pytest.raises(ConnectError, match="both commit and abort of the same transaction"):
        requested.abort_transaction()
    requested.abort_transaction(one)
    requested.abort_transaction(one)
    with pytest.raises(ConnectError, match="both commit and abort of a transaction after the same record of t"):
        requested.commit_transaction(one)


def test_requests_for_records_that_are_never_returned_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_boundaries, "MOST_AWAITED", 2)
    requested = RequestedEnds()
    for _ in range(2):
        requested.commit_transaction(record())
    with pytest.raises(ConnectError, match="3 records that it has not returned"):
        requested.commit_transaction(record())
