"""A record for tests: a tuple with all of its fields, with the bytes of the log."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One record. `timestamp` is in ms since the epoch; key and value are bytes or None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def text(self) -> str:
        """The value as UTF-8; empty for a null value."""
        return (self.value or b"").decode()

    @property
    def json(self) -> Any:
        """The value as JSON; None for a null value."""
        return None if self.value is None else json.loads(self.value)
