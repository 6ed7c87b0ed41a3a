"""Dates as Java writes and reads them by a SimpleDateFormat pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                 "November", "December")  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKENS: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")


class DateFormat:
    """A SimpleDateFormat pattern, in UTC. Raises ValueError for a pattern or text that does not fit.

    Era, week and day-of-year letters are not supported for reading.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[tuple[str, int] | str] = []
        at = 0
        for token in _TOKENS.finditer(pattern):
            if token.start() != at:
                break
            at = token.end()
            text = token[0]
            if text[0] == "'":
                self._parts.append("'" if text == "''" else text[1:-1].replace("''", "'"))
            elif token[1]:
                if token[1] not in _LETTERS:
                    raise ValueError(f"Illegal pattern character '{token[1]}'")
                self._parts.append((token[1], len(text)))
            else:
                self._parts.append(text)
        if at != len(pattern):
            raise ValueError("Unterminated quote")

    def format(self, moment: datetime) -> str:
        """Return the text of a point in time."""
        return "".join(part if isinstance(part, str) else _text(moment, *part) for part in self._parts)

    def parse(self, text: str) -> datetime:
        """Return the point in time at the beginning of a text."""
        found: dict[str, int] = {}
        at = 0
        for number, part in enumerate(self._parts):
            if isinstance(part, str):
                if not text.startswith(part, at):
                    raise ValueError(f'Unparseable date: "{text}"')
                at += len(part)
                continue
            following = self._parts[number + 1] if number + 1 < len(self._parts) else ""
            match = _expression(*part, fixed=isinstance(following, tuple)).match(text, at)
            if match is None:
                raise ValueError(f'Unparseable date: "{text}"')
            at = match.end()
            _take(found, part, match[0])
        return _moment(found)


def _text(moment: datetime, letter: str, count: int) -> str:
    if letter == "y" or letter == "Y":
        return f"{moment.year % 100:02}" if count == 2 else f"{moment.year:0{count}}"
    if letter in "ML" and count >= 3:
        name = MONTHS[moment.month - 1]
        return name if count >= 4 else name[:3]
    if letter == "E":
        name = DAYS[moment.weekday()]
        return name if count >= 4 else name[:3]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter in "zZX":
        return {"z": "UTC" if count < 4 else "Coordinated Universal Time", "Z": "+0000", "X": "Z"}[letter]
    return f"{_NUMBERS[letter](moment):0{count}}"


_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "M": lambda moment: moment.month,
    "L": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "H": lambda moment: moment.hour,
    "k": lambda moment: moment.hour or 24,
    "K": lambda moment: moment.hour % 12,
    "h": lambda moment: moment.hour % 12 or 12,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.microsecond // 1000,
    "D": lambda moment: moment.timetuple().tm_yday,
    "u": lambda moment: moment.isoweekday(),
    "F": lambda moment: (moment.day - 1) // 7 + 1,
    "w": lambda moment: (moment.timetuple().tm_yday - 1 + datetime(moment.year, 1, 1).isoweekday() % 7) // 7 + 1,  # noqa: DTZ001
    "W": lambda moment: (moment.day - 1 + moment.replace(day=1).isoweekday() % 7) // 7 + 1,
}


def _expression(letter: str, count: int, *, fixed: bool) -> re.Pattern[str]:
    if letter in "ML" and count >= 3:
        return re.compile("|".join([*MONTHS, *(each[:3] for each in MONTHS)]), re.IGNORECASE)
    if letter == "E":
        return re.compile("|".join([*DAYS, *(each[:3] for each in DAYS)]), re.IGNORECASE)
    if letter == "a":
        return re.compile("AM|PM", re.IGNORECASE)
    if letter in "zZX":
        return re.compile(r"Z|UTC|GMT(?:[+-]\d{1,2}:?\d{2})?|[+-]\d{2}(?::?\d{2})?")
    return re.compile(rf"\s*-?\d{{{count}}}" if fixed else r"\s*-?\d+")


def _take(found: dict[str, int], part: tuple[str, int], text: str) -> None:
    letter, count = part
    if letter in "ML" and count >= 3:
        found["M"] = [each[:3].lower() for each in MONTHS].index(text[:3].lower()) + 1
    elif letter == "E":
        return
    elif letter == "a":
        found["a"] = text.upper() == "PM"
    elif letter in "zZX":
        digits = re.search(r"([+-])(\d{1,2}):?(\d{2})?$", text)
        if digits is not None:
            minutes = int(digits[2]) * 60 + int(digits[3] or 0)
            found["offset"] = -minutes if digits[1] == "-" else minutes
    elif letter in "yY" and count == 2 and len(text) == 2:
        year = 2000 + int(text)
        found["y"] = year - 100 if year > datetime.now(UTC).year + 20 else year
    else:
        found["y" if letter == "Y" else letter] = int(text)


def _moment(found: dict[str, int]) -> datetime:
    """Return the time of fields that may be out of range, as Java's lenient calendars do."""
    hour = found.get("H", found.get("k", 0) % 24)
    if "h" in found or "K" in found:
        hour = found.get("h", found.get("K", 0)) % 12 + (12 if found.get("a") else 0)
    months = found.get("y", 1970) * 12 + found.get("M", 1) - 1
    start = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
    return start + timedelta(
        days=found.get("d", 1) - 1 if "D" not in found else found["D"] - 1,
        hours=hour,
        minutes=found.get("m", 0) - found.get("offset", 0),
        seconds=found.get("s", 0),
        milliseconds=found.get("S", 0),
    )
