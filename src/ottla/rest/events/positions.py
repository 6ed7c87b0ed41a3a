"""Where a stream starts, and the ids of events, which say where it continues.

The id of an event has the next offset of each partition of the stream, `0:13,1:7`. A client that connects again sends
the id of its last event in the header `Last-Event-ID`, and continues there without a gap.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.clients.admin.model import OffsetSpec
from ottla.web.errors import HttpError

LATEST_PREFIX: Final = "latest-"
_MOST_DIGITS: Final = 19
_LONGEST_ID: Final = 32_768


class Start(NamedTuple):
    """A start: an offset, a spec or time (ms) to look up, or a number of records before the end."""

    offset: int | None = None
    lookup: int | None = None
    before_end: int = 0


def parse_start(text: str) -> Start:
    """Parse `beginning`, `end`, `latest-N`, an offset, or a time in ISO 8601. Raises HttpError."""
    if text == "beginning":
        return Start(lookup=OffsetSpec.EARLIEST)
    if text in {"end", "latest"}:
        return Start(lookup=OffsetSpec.LATEST)
    if text.startswith(LATEST_PREFIX) and (count := _number(text.removeprefix(LATEST_PREFIX))) is not None:
        return Start(lookup=OffsetSpec.LATEST, before_end=count)
    if (offset := _number(text)) is not None:
        return Start(offset=offset)
    try:
        # A plus sign of a time zone is a space in a query.
        moment = dt.datetime.fromisoformat(text.replace(" ", "+"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return Start(lookup=max(0, int(moment.timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise HttpError(
            400, 400, "from must be beginning, end, latest-N, an offset, or a time such as 2026-01-31T12:00:00Z."
        ) from None


def parse_partitions(text: str | None, existing: Iterable[int]) -> list[int]:
    """Return the chosen partitions, all without a choice. Raises HttpError."""
    if text is None:
        return list(existing)
    known = set(existing)
    found: dict[int, None] = {}
    for part in text.split(","):
        partition = _number(part)
        if partition is None or partition not in known:
            raise HttpError(404, 40402, "Partition not found.")
        found[partition] = None
    return list(found)


def parse_event_id(text: str | None) -> dict[int, int]:
    """Return the next offset of each partition in an id; empty without one. Raises HttpError."""
    offsets: dict[int, int] = {}
    for part in (text or "")[:_LONGEST_ID].split(","):
        if not part:
            continue
        partition, _, offset = part.partition(":")
        numbers = _number(partition), _number(offset)
        if numbers[0] is None or numbers[1] is None:
            raise HttpError(400, 400, f"Last-Event-ID has {part[:40]!r}, which is not PARTITION:OFFSET.")
        offsets[numbers[0]] = numbers[1]
    return offsets


def event_id(offsets: Mapping[int, int]) -> str:
    """Return the id that says to continue at these offsets."""
    return ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    number = int(text) if is_number else -1
    return number if 0 <= number < 2**63 else None
