"""Numbers for people: sizes, counts, moments and durations as text, and back."""

import re
import time

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_ISO_DURATION = re.compile(r"P(?:([\d.]+)W)?(?:([\d.]+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?", re.ASCII)


def size(count: int | None) -> str:
    """Bytes as `512 B`, `1.4 MiB`; "-" for None and for less than nothing."""
    if count is None or count < 0:
        return "-"
    amount, unit = float(count), 0
    while amount >= 1023.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def count(number: float | None) -> str:
    """A number as `1,234,567`; "-" for None."""
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def moment(timestamp_ms: int | None) -> str:
    """Milliseconds since the epoch as local `2026-01-31 12:00:00.123`; "-" where there is none."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms // 1000))
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return f"{local}.{timestamp_ms % 1000:03d}"


def duration(milliseconds: float | None) -> str:
    """Milliseconds as `250 ms`, `4.2 s`, `3 min 20 s`, `5 h 2 min`, `7 d`."""
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


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def parse_duration(text: str) -> int:
    """Milliseconds of `90s`, `1h30min`, `7d` or ISO 8601's `PT1H30M`, `P7D`; raises ValueError."""
    iso = _ISO_DURATION.fullmatch(text.strip().upper())
    if iso is not None and any(iso.groups()):
        parts = zip(iso.groups(), ("w", "d", "h", "m", "s"), strict=True)
        return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts if number))
    amounts = _AMOUNT.findall(text)
    if not amounts or "".join(number + unit for number, unit in amounts) != text.replace(" ", ""):
        raise ValueError(f"{text!r} is no duration; 90s, 1h30min, 7d and PT1H30M are")
    try:
        return round(sum(float(number) * UNITS_MS[unit.lower()] for number, unit in amounts))
    except KeyError as error:
        raise ValueError(f"{text!r} is no duration: {error.args[0]!r} is none of {', '.join(UNITS_MS)}") from None


def moment_utc(timestamp_ms: int) -> str:
    """Milliseconds since the epoch as `2026-01-31 12:00:00.123 UTC`."""
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp_ms // 1000))
    return f"{text}.{timestamp_ms % 1000:03d} UTC"
