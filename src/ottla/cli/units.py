"""Numbers for people: counts, moments and partitions as text; `ottla.common.units` has durations and sizes."""

import time

from ottla.common.units import duration, parse_duration, size

__all__ = ["count", "duration", "moment", "moment_utc", "now_ms", "parse_duration", "plural", "ranges", "size"]


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def count(number: float | None) -> str:
    """Format a number as `1,234,567`; None as "-"."""
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def moment(timestamp_ms: int | None) -> str:
    """Format milliseconds since the epoch as local `2026-01-31 12:00:00.123`; None and negative numbers as "-"."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms // 1000))
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return f"{local}.{timestamp_ms % 1000:03d}"


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Format as `1 topic` or `2 topics`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def moment_utc(timestamp_ms: int) -> str:
    """Format milliseconds since the epoch as `2026-01-31 12:00:00.123 UTC`."""
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp_ms // 1000))
    return f"{text}.{timestamp_ms % 1000:03d} UTC"


def ranges(by_topic: dict[str, list[int]]) -> str:
    """Format partitions as `orders 0-2,5; payments 1`."""
    texts = []
    for topic, partitions in by_topic.items():
        runs: list[list[int]] = []
        for partition in sorted(partitions):
            if runs and partition == runs[-1][-1] + 1:
                runs[-1][1:] = [partition]
            else:
                runs.append([partition])
        texts.append(f"{topic} {','.join('-'.join(map(str, run)) for run in runs)}")
    return "; ".join(texts) or "nothing"
