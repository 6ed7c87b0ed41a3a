# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Dates and times as texts, parsed as from_json does and written as to_json does. Compiled, or plain Python.

Accepted texts:

- a year of four to six digits with an optional sign; a month, day, hour, minute and second of one or two digits;
- a fraction of any length, truncated to microseconds;
- a blank or a T between date and time; every part but the year may be missing at the end;
- at the end a zone: Z, UTC, GMT, or an offset of at most 18 hours. Zone names are not supported.

C rounds a quotient toward zero and Python rounds it down, so dividends are made positive first.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import Store
    from ottla.serde._texts import put_digits

_DAY_US = 86_400_000_000
_MOST_DAYS = 106_751_988  # limit of 64 bits of microseconds
_ERA = 146_097  # days of 400 years
_ERAS = 20_000  # added to make every dividend positive: more than 32 bits of days
_EPOCH = 719_468  # days from 0000-03-01 to 1970-01-01
_LENGTHS = bytes((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date in the proleptic Gregorian calendar."""
    shifted = year + 400 * _ERAS - (1 if month < 3 else 0)  # years begin in March, so that a leap day is the last day
    of_year = (153 * (month + (9 if month < 3 else -3)) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - _EPOCH - _ERA * _ERAS


class Moment:
    """A parsed date or time: `days` since 1970 and `micros` of the day, converted to UTC if it `has_zone`."""

    def date(self, data: memoryview, at: int, end: int) -> bool:
        """Parse a date, which a time may follow; return whether the text is valid up to there."""
        while at < end and data[at] <= 32:
            at += 1
        while at < end and data[end - 1] <= 32:
            end -= 1
        self._data = data
        self._end = end
        is_negative = at < end and data[at] == 45
        if is_negative or (at < end and data[at] == 43):
            at += 1
        begin = at
        year = 0
        while at < end and 48 <= data[at] <= 57 and at - begin < 7:
            year = year * 10 + (data[at] - 48)
            at += 1
        if at - begin < 4 or at - begin > 6:
            return False
        if is_negative:
            year = -year
        month = 1
        day = 1
        if at < end and data[at] == 45:
            at = self._part(at + 1)
            month = self._number
            if at >= 0 and at < end and data[at] == 45:
                at = self._part(at + 1)
                day = self._number
                if at >= 0 and at < end and data[at] != 84 and data[at] != 32:
                    return False
            elif at != end:
                return False
        elif at != end:
            return False
        if at < 0 or not 1 <= month <= 12 or not 1 <= day <= _length(year, month):
            return False
        self.days = days_of(year, month, day)
        self._at = at + 1 if at < end else end
        return True

    def time(self, data: memoryview, at: int, end: int) -> bool:
        """Parse a time, or a date as its midnight; return whether the text is valid."""
        if not self.date(data, at, end):
            return False
        self.micros = 0
        self.has_zone = False
        at = self._at
        end = self._end
        if at == end:
            return data[end - 1] != 84 and -_MOST_DAYS <= self.days <= _MOST_DAYS
        unit = 3_600_000_000
        for step in range(3):
            at = self._part(at)
            if at < 0 or self._number >= (60 if step else 24):
                return False
            self.micros += self._number * unit
            if step == 2 or at == end or data[at] != 58:
                break
            unit //= 60
            at += 1
        if step == 2 and at < end and data[at] == 46:
            at = self._fraction(at + 1)
        if at < end and not self._zone(at):
            return False
        return -_MOST_DAYS <= self.days <= _MOST_DAYS

    def _part(self, at: int) -> int:
        """Parse one or two digits into `_number`; return the position after them, or -2 if there are no digits."""
        begin = at
        self._number = 0
        while at < self._end and at - begin < 2 and 48 <= self._data[at] <= 57:
            self._number = self._number * 10 + (self._data[at] - 48)
            at += 1
        return -2 if at == begin else at

    def _fraction(self, at: int) -> int:
        worth = 100_000
        while at < self._end and 48 <= self._data[at] <= 57:
            self.micros += worth * (self._data[at] - 48)
            worth //= 10
            at += 1
        return at

    def _zone(self, at: int) -> bool:
        """Parse a zone that extends to the end, and convert `micros` to UTC; return whether it is valid."""
        data = self._data
        end = self._end
        while at < end and data[at] == 32:
            at += 1
        self.has_zone = True
        if end - at == 1 and data[at] == 90:
            return True
        if end - at == 3 and (
            (data[at] == 85 and data[at + 1] == 84 and data[at + 2] == 67)  # UTC
            or (data[at] == 71 and data[at + 1] == 77 and data[at + 2] == 84)  # GMT
        ):
            return True
        if at >= end or (data[at] != 43 and data[at] != 45):
            return False
        is_behind = data[at] == 45
        offset = 0
        unit = 3_600
        at += 1
        for step in range(3):
            at = self._part(at)
            if at < 0 or self._number >= 60:
                return False
            offset += self._number * unit
            if at == end or step == 2:
                break
            if data[at] == 58:
                at += 1
            elif step == 1:
                return False
            unit //= 60
        if at != end or offset > 64_800:
            return False
        self.micros += 1_000_000 * (offset if is_behind else -offset)
        return True


def _length(year: int, month: int) -> int:
    """Return the number of days of a month."""
    positive = year + 400 * _ERAS
    if month == 2 and positive % 4 == 0 and (positive % 100 != 0 or positive % 400 == 0):
        return 29
    return _LENGTHS[month - 1]


def put_date(out: Store, days: int) -> int:
    """Append a date, given as days since 1970."""
    shifted = days + _EPOCH + _ERA * _ERAS
    of_era = shifted % _ERA
    of_era_year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    day = of_era - (365 * of_era_year + of_era_year // 4 - of_era_year // 100)
    month = (5 * day + 2) // 153  # 0 is March
    day -= (153 * month + 2) // 5 - 1
    year = of_era_year + shifted // _ERA * 400 - 400 * _ERAS + (1 if month > 9 else 0)
    if year < 0:
        out.put_byte(45)
        year = -year
    elif year > 9999:
        out.put_byte(43)
    put_digits(out, year, 4)
    out.put_byte(45)
    put_digits(out, month - 9 if month > 9 else month + 3, 2)
    out.put_byte(45)
    return put_digits(out, day, 2)


def put_time(out: Store, micros: int, has_zone: bool) -> int:
    """Append a time, given as microseconds since 1970, with three decimals, or six if it has microseconds."""
    days = micros // _DAY_US
    rest = micros % _DAY_US
    if rest < 0:  # only in C, which rounds toward zero
        rest += _DAY_US
        days -= 1
    put_date(out, days)
    out.put_byte(84)
    put_digits(out, rest // 3_600_000_000, 2)
    out.put_byte(58)
    put_digits(out, rest // 60_000_000 % 60, 2)
    out.put_byte(58)
    put_digits(out, rest // 1_000_000 % 60, 2)
    out.put_byte(46)
    if rest % 1000:
        put_digits(out, rest % 1_000_000, 6)
    else:
        put_digits(out, rest // 1000 % 1000, 3)
    return out.put_byte(90) if has_zone else 0
