"""Durations, sizes, times and counts as text; durations and sizes also from text.

Durations and timestamps are in milliseconds, sizes in bytes.
"""

import re
import time
from collections.abc import Iterable
from typing import Final

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT_NAMES: Final = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_SIZE_NAMES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZES: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MAX_INT64: Final = (1 << 63) - 1
_MOST_DIGITS: Final = len(str(MAX_INT64))
_DECIMALS: Final = 20
"""Digits after the decimal point that count."""
# Compiled at their first use.
_AMOUNT = r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)"
_ISO_DURATION = (
    r"(?a)P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)


def parse_amount(text: str) -> tuple[str, str] | None:
    """Split `1.5 GiB` into the number and its unit in lower case; None if the text has another form."""
    amount = re.fullmatch(_AMOUNT, text.strip())
    return None if amount is None else (amount[1], amount[2].lower())


def whole_number(text: str, most: int = MAX_INT64) -> int | None:
    """Return the number that ASCII digits write; None for another text, and for a number above `most`."""
    digits = text.lstrip("0") or text[-1:]
    # `int` raises for texts of thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def size_factor(unit: str) -> int | None:
    """Return the bytes of a unit: `k`, `kb` and `kib` are 1,024. None for an unknown unit."""
    return _SIZES.get(unit.lower().removesuffix("ib").removesuffix("b") or "b")


def parse_duration(text: str) -> int:
    """Return the milliseconds of `90s`, `1h30min`, `10 minutes` or ISO 8601's `PT1H30M`, `P7D`; raises ValueError."""
    iso = re.fullmatch(_ISO_DURATION, text.strip().upper())
    if iso is not None and any(iso.groups()):
        amounts = [
            (number, unit) for number, unit in zip(iso.groups(), ("w", "d", "h", "m", "s"), strict=True) if number
        ]
    else:
        amounts = re.findall(_AMOUNT, text)
        if not amounts or "".join(number + unit for number, unit in amounts) != text.replace(" ", ""):
            raise ValueError(f"{text!r} is not a duration: write it as 90s, 1h30min, 7d or PT1H30M")
    try:
        factors = [(number, UNITS_MS[_short_unit(unit.lower())]) for number, unit in amounts]
    except KeyError as error:
        raise ValueError(
            f"{text!r} is not a duration: the unit {error.args[0]!r} is not one of {', '.join(UNITS_MS)}"
        ) from None
    return total(factors, text)


def _short_unit(unit: str) -> str:
    """Return `min` and `minutes` as a unit of `UNITS_MS`; others as they are."""
    return _UNIT_NAMES.get(unit.removesuffix("s"), unit)


def total(amounts: Iterable[tuple[str, int]], text: str) -> int:
    """Return the sum of decimal numbers times factors, rounded half to even as by `round`.

    Computes with integers, because a float has only 53 bits. Raises ValueError if 64 bits cannot hold the amount of
    `text`.
    """
    scaled = 0
    for number, factor in amounts:
        digits, _, decimals = number.partition(".")
        # `int` raises for texts of thousands of digits; one digit too many is already too large.
        most = digits.lstrip("0")[: _MOST_DIGITS + 1]
        scaled += int(most + decimals[:_DECIMALS].ljust(_DECIMALS, "0")) * factor
    scale = 10**_DECIMALS
    result, rest = divmod(scaled, scale)
    result += 2 * rest > scale or (2 * rest == scale and result % 2)
    if result > MAX_INT64:
        raise ValueError(f"{text[:40]!r} is too large: the number must fit into 64 bits")
    return result


def size(count: int | None) -> str:
    """Format bytes as `512 B` or `1.4 MiB`; "-" for None and for negative numbers."""
    if count is None or count < 0:
        return "-"
    amount, unit = float(count), 0
    while amount >= 1023.95 and unit < len(_SIZE_NAMES) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_SIZE_NAMES[unit]}"


def duration(milliseconds: float | None) -> str:
    """Format milliseconds as `250 ms`, `4.2 s`, `3 min 20 s`, `5 h 2 min` or `7 d`; "-" for None."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:g} ms" if float(milliseconds).is_integer() else f"{milliseconds:.1f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for unit, length, below, small in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86_400, "h", 3600)):
        if seconds < length * (60 if unit == "min" else 24) or unit == "d":
            whole, rest = divmod(int(seconds), length)
            return f"{whole} {unit}" + (f" {rest // small} {below}" if rest // small else "")
    raise AssertionError("days are the last unit")


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def count(number: float | None) -> str:
    """Format a number as `1,234,567`; None as "-"."""
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def rate(per_s: float) -> str:
    """Format a number a second as `1,234`, and a small one as `1.2`."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.1f}"


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
