"""The connector's offsets: where the stream goes on, and what has been read of a snapshot.

The names that Debezium has too mean the same (`lsn`, `lsn_proc`, `lsn_commit`, `txId`, `ts_usec`), so that a
connector goes on where Debezium stopped. `txn_lsn` and `txn_messages` are the commit position of a transaction that
was emitted in part, and how many of its messages; `borders` are the snapshots that the stream has not passed (see
`visibility`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ottla.connect.connectors.postgres.visibility import Visible
from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position


@dataclass
class StreamPosition:
    """Where the stream goes on."""

    done: int
    """Every transaction that ends at or before this position is emitted."""
    partial_lsn: int = 0
    """The commit position of a transaction that is emitted in part, or 0."""
    partial_messages: int = 0
    last_commit: int | None = None
    borders: str = ""
    incremental: str = ""

    @classmethod
    def of(cls, offset: Position) -> Self:
        """Read an offset, also one of Debezium. Raises BadRequestError."""
        try:
            lsn = offset.get("lsn_commit") or offset.get("lsn_proc") or offset["lsn"]
            return cls(
                int(lsn),
                int(offset.get("txn_lsn") or 0),
                int(offset.get("txn_messages") or 0),
                int(lsn),
                str(offset.get("borders") or ""),
                str(offset.get("incremental") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequestError(
                f"{dict(offset)!r} is not an offset of this connector: it has no number lsn."
            ) from error


def snapshot_is_running(offset: Position) -> bool:
    """Whether an offset is from the middle of a snapshot, also one of Debezium."""
    return (
        bool(offset.get("snapshot")) and not offset.get("snapshot_completed") and not offset.get("last_snapshot_record")
    )


def first_attempt(offset: Position | None) -> Visible:
    """Return the first snapshot of interrupted attempts.

    Without an offset, an older slot shows that there may have been an attempt whose records are in the topics: nothing
    counts as seen, and the stream repeats all changes since the slot was created.
    """
    if offset is None or "first" not in offset:
        return Visible.of("0:0:", 0)
    return Visible.of(str(offset["first"]), int(offset["first_until"]))
