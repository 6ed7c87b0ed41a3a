"""The start of reading: `-o beginning|end|N|+N|-N|@WHEN`, and the start offset of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from ottla import clients
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import MAX_INT32, TopicPartition
from ottla.tools.values import milliseconds

_MOST_SECONDS = 10**11  # larger timestamps are milliseconds
_FORMS = "beginning, end, N, +N (after the beginning), -N (before the end), or @WHEN"


class Where(NamedTuple):
    """A place in every partition. `kind` is beginning, end, offset, after, before or time.

    `number` is the offset, the number of records after the beginning or before the end, or the time in milliseconds.
    """

    kind: str
    number: int = 0


def parse_where(text: str, now_ms: int | None = None) -> Where:
    """Parse the value of `-o`; raises Failure with exit code 2."""
    word = {"earliest": "beginning", "start": "beginning", "latest": "end"}.get(text.lower(), text.lower())
    if word in ("beginning", "end"):
        return Where(word)
    if text.startswith("@"):
        return Where("time", parse_moment(text[1:], now_ms))
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    number = units.whole_number(digits)
    if number is None:
        advice = "--json is the option for JSON lines." if word == "json" else f"It may be {_FORMS}."
        raise Failure(f"-o {text!r} is not a start offset", advice, exit_code=2)
    return Where({"": "offset", "+": "after", "-": "before"}[sign], number)


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """Parse a time to milliseconds since the epoch. Raises Failure with exit code 2.

    `text` is a date with or without a time (local, unless it has a time zone), seconds or milliseconds since the epoch,
    `now`, or a duration before now such as `-1h30m`.
    """
    now = units.now_ms() if now_ms is None else now_ms
    # 8 digits are a date, 20260131.
    number = None if len(text) in (8, 4) else units.whole_number(text)
    if number is not None:
        return number * 1000 if number < _MOST_SECONDS else number
    if text.lower() == "now":
        return now
    try:
        if text.startswith("-"):
            return max(0, now - units.parse_duration(text[1:]))
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError) as error:
        raise Failure(
            f"{text!r} is not a time",
            "It may be 2026-01-31, 2026-01-31T12:00 (with Z or +01:00 if not local), ms or s since 1970, or -1h30m.",
            exit_code=2,
        ) from error


def parse_past(text: str) -> int:
    """Parse a time as `parse_moment` does, or a duration before now such as `now-1h30m`. Raises Failure."""
    return parse_moment(text.removeprefix("now") if text.startswith("now-") else text)


def target_moment(to_datetime: str | None, by_duration: str | None) -> int | None:
    """Return the milliseconds since the epoch of a time, or of a duration before now; None without either.

    Raises Failure with exit code 2.
    """
    if to_datetime:
        return parse_past(to_datetime)
    return units.now_ms() - milliseconds(by_duration) if by_duration else None


def parse_partitions(words: Iterable[str]) -> list[int]:
    """Parse words such as `0,2,4-6` to partitions; no words give an empty list. Raises Failure with exit code 2."""
    chosen: dict[int, None] = {}
    for word in ",".join(words).split(",") if words else ():
        first, dash, last = word.strip().partition("-")
        low = units.whole_number(first, MAX_INT32)
        high = units.whole_number(last, MAX_INT32) if dash else low
        if low is None or high is None:
            raise Failure(f"--partition {word[:40]!r} is not a number or a range such as 4-6", exit_code=2)
        if high < low:  # an empty list would mean all partitions
            raise Failure(f"--partition {word!r} is an empty range: its end is below its start", exit_code=2)
        if high - low >= 1 << 20:
            raise Failure(f"--partition {word!r} is too large a range", exit_code=2)
        chosen.update(dict.fromkeys(range(low, high + 1)))
    return list(chosen)


def start_offsets(
    consumer: clients.Consumer, where: Where, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition, between its first record and its end."""
    if where.kind == "time":
        at = offsets_at(consumer, where.number, end)
    else:
        at = {
            tp: {
                "beginning": first[tp],
                "end": end[tp],
                "offset": where.number,
                "after": first[tp] + where.number,
                "before": end[tp] - where.number,
            }[where.kind]
            for tp in end
        }
    return {tp: min(max(offset, first[tp]), end[tp]) for tp, offset in at.items()}


def offsets_at(
    consumer: clients.Consumer, timestamp_ms: int, end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the first offset at or after a time in each partition; its end if all records are older."""
    found = consumer.offsets_for_times(dict.fromkeys(end, timestamp_ms))
    return {tp: end[tp] if (row := found.get(tp)) is None else row[0] for tp in end}
