"""Which transactions a snapshot has seen: the exact border between tables that were read and the stream.

A transaction that the snapshot has seen is in its rows; the stream skips its changes of the tables that were read. A
transaction that it has not seen is in the stream, since the slot is older than the snapshot. The text has the form of
pg_current_snapshot: xmin:xmax:xip,xip,...
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_HALF, _CYCLE = 1 << 31, 1 << 32


@dataclass(frozen=True)
class Visible:
    """The transactions that a snapshot has seen."""

    text: str
    xmin: int
    xmax: int
    running: frozenset[int]
    until: int
    """A position in the log after which no commit is visible: the filter ends there."""

    @classmethod
    def of(cls, text: str, until: int) -> Visible:
        """Parse a snapshot. Raises ValueError."""
        low, high, running = text.split(":")
        return cls(text, int(low), int(high), frozenset(int(each) for each in running.split(",") if each), until)

    def has(self, xid: int) -> bool:
        """Whether a transaction, by its 32 bits in the stream, is visible."""
        full = self.xmax // _CYCLE * _CYCLE + xid
        if full >= self.xmax + _HALF:
            full -= _CYCLE
        elif full < self.xmax - _HALF:
            full += _CYCLE
        return full < self.xmin or (full < self.xmax and full not in self.running)


class Borders:
    """The snapshots of tables that the stream has not passed yet."""

    def __init__(self, stored: str = "") -> None:
        """`stored` is the form in offsets, as JSON: [[snapshot, position, [table, ...]], ...]. Raises ValueError."""
        self._borders: list[tuple[Visible, frozenset[str]]] = [
            (Visible.of(text, until), frozenset(tables)) for text, until, tables in json.loads(stored or "[]")
        ]

    @property
    def tables(self) -> frozenset[str]:
        """All tables that were read."""
        return frozenset(name for _, tables in self._borders for name in tables)

    def add(self, visible: Visible, tables: Iterable[str]) -> None:
        """Tables were read from a snapshot."""
        self._borders.append((visible, frozenset(tables)))

    def __bool__(self) -> bool:
        return bool(self._borders)

    def seen(self, xid: int, final_lsn: int) -> frozenset[str]:
        """Return the tables whose snapshots have seen a transaction with this commit position."""
        found: frozenset[str] = frozenset()
        for visible, tables in self._borders:
            if final_lsn < visible.until and visible.has(xid):
                found |= tables
        return found

    def passed(self, lsn: int) -> bool:
        """Forget the snapshots that end before a position; return whether some did."""
        remaining = [each for each in self._borders if lsn < each[0].until]
        changed = len(remaining) != len(self._borders)
        self._borders = remaining
        return changed

    def stored(self) -> str:
        """Return the form in offsets; an empty text without snapshots."""
        rows = [[visible.text, visible.until, sorted(tables)] for visible, tables in self._borders]
        return json.dumps(rows, separators=(",", ":")) if rows else ""
