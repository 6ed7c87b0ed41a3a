"""The common part of events of one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.connect.connectors.postgres.rows import Row
from ottla.connect.records import Position


@dataclass
class Context:
    """The common part of events of one moment: transaction, position and origin."""

    lsn: int = 0
    last_commit: int | None = None
    xid: int | None = None
    commit_us: int = 0
    origin: str | None = None
    origin_lsn: int | None = None
    snapshot: str = "false"
    offset: Position = field(default_factory=dict)
    block: Row | None = None
    """The event's place in its transaction."""
    next_block: Callable[[], Row] | None = None
    """Count one more event of the transaction: an update of the key has two."""
