"""The ends of transactions that a source task asks for (`transaction.boundary=connector`, KIP-618).

The task calls `commit_transaction` and `abort_transaction`, before or while it returns records. The worker calls `ends`
for the records of each poll, also without records, and ends its transaction at these places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

from ottla.connect.errors import ConnectError
from ottla.connect.records import SourceRecord

MOST_AWAITED: Final = 100_000
"""Requests for records that no poll has returned."""


class End(Enum):
    """The end of a transaction after some records."""

    COMMIT = auto()
    ABORT = auto()
    NONE = auto()
    """It stays open."""


class RequestedEnds:
    """Requests of one task. Its methods are called by the thread of the task."""

    def __init__(self) -> None:
        # By identity: equal records may be returned twice. The records are held, so that no other one has their id.
        self._at: dict[int, tuple[SourceRecord, End]] = {}
        self._after_poll = End.NONE

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after a record, or after the next poll. Raises ConnectError."""
        self._request(record, End.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort after a record, or after the next poll. Raises ConnectError."""
        self._request(record, End.ABORT)

    def _request(self, record: SourceRecord | None, end: End) -> None:
        if record is None:
            known, self._after_poll = self._after_poll, end
        else:
            known = self._at.setdefault(id(record), (record, end))[1]
        if known not in (End.NONE, end):
            what = (
                "the same transaction" if record is None else f"a transaction after the same record of {record.topic}"
            )
            raise ConnectError(f"The connector asked for both commit and abort of {what}: it has a defect.")
        if len(self._at) > MOST_AWAITED:
            raise ConnectError(
                f"The connector asked for ends of transactions after {len(self._at)} records that it has not returned: "
                "it has a defect."
            )

    def ends(self, records: Sequence[SourceRecord]) -> Iterator[tuple[int, End]]:
        """Yield numbers of records with the end after them; the last pair is the end of the poll."""
        if self._at:
            for number, each in enumerate(records, 1):
                found = self._at.pop(id(each), None)
                if found is not None:
                    yield number, found[1]
        end, self._after_poll = self._after_poll, End.NONE
        yield len(records), end
