"""Settings as `NAME=VALUE` words: converted to the values of brokers, and from these to text for people.

Settings in milliseconds accept `7d`, `12h`, `30min`, `45s`. Settings in bytes accept `512MiB`, `1GiB`
and `1g` (1,024 cubed).
"""

from collections.abc import Iterable

from ottla.cli.terminal import Failure
from ottla.common import units


def assignments(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words as a dict, amounts with units as plain numbers; raises Failure with exit code 2."""
    values: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name.strip():
            raise Failure(f"{word!r} is not of the form NAME=VALUE", exit_code=2)
        values[name.strip()] = broker_value(name.strip(), value)
    return values


def broker_value(name: str, value: str) -> str:
    """The value as the broker takes it: `retention.ms` of `7d` is 604800000; raises Failure for an unknown unit."""
    amount = units.parse_amount(value)
    if amount is None:
        return value
    count, unit = amount
    factor = units.UNITS_MS.get(unit) if is_time(name) else units.size_factor(unit) if is_size(name) else None
    if factor is not None:
        return str(round(count * factor))
    if is_time(name) or is_size(name):
        names = "ms, s, min, h, d or w" if is_time(name) else "B, KiB, MiB, GiB or TiB"
        raise Failure(f"{name}={value}: {unit!r} is not a unit of it", f"It may be {names}.", exit_code=2)
    return value


def is_time(name: str) -> bool:
    """Whether a setting is a time in milliseconds."""
    return name.endswith(".ms")


def is_size(name: str) -> bool:
    """Whether a setting is a number of bytes."""
    return name.endswith((".bytes", ".bytes.per.second", ".buffer.size", "_byte_rate"))


def explained(name: str, value: str | None) -> str:
    """The value for people: `604800000 (7 d)`."""
    if value is None:
        return "-"
    try:
        number = int(value)
    except ValueError:
        return value or '""'
    if is_time(name) and 1000 <= number < 1 << 62:
        return f"{value} ({units.duration(number)})"
    if is_size(name) and 1024 <= number < 1 << 62:
        return f"{value} ({units.size(number)})"
    return value
