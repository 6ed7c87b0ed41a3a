"""The connector's offsets: a position between transactions, and how much of the next one is emitted.

`file` and `pos` are Debezium's: where the current transaction begins. `txn_events` counts its events of rows that are
emitted, `txn_rows` the rows of the next event. Debezium's own `event` and `row` count differently: after a takeover in
the middle of a transaction, its rows come again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position

FIRST_POSITION: Final = 4
"""The position of the first event of a log."""


@dataclass(frozen=True)
class LogPosition:
    """Where the stream goes on."""

    file: str
    pos: int
    events: int = 0
    rows: int = 0

    @classmethod
    def of(cls, offset: Position) -> LogPosition:
        """Read an offset. Raises BadRequestError."""
        try:
            file, pos = offset["file"], int(offset["pos"])
            events, rows = int(offset.get("txn_events") or 0), int(offset.get("txn_rows") or 0)
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequestError(
                f"{dict(offset)!r} is not an offset of this connector: it needs file and a number pos."
            ) from error
        if not isinstance(file, str) or min(pos, events, rows) < 0:
            raise BadRequestError(f"{dict(offset)!r} is not an offset of this connector: file must be a name.")
        return cls(file, pos, events, rows)

    def offset(self, **facts: Any) -> dict[str, Any]:
        """Return the offset."""
        found: dict[str, Any] = {"file": self.file, "pos": self.pos, **facts}
        if self.events or self.rows:
            found["txn_events"], found["txn_rows"] = self.events, self.rows
        return found

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def is_between_transactions(offset: Position | None) -> bool:
    """Whether an offset of the stream is not within a transaction."""
    return offset is not None and "txn_events" not in offset


def snapshot_is_running(offset: Position) -> bool:
    """Whether an offset is from the middle of a snapshot."""
    return bool(offset.get("snapshot")) and not offset.get("snapshot_completed")
