"""Settings from words and files: `NAME=VALUE` to the values of brokers, and these to text for people.

Settings in milliseconds accept `7d`, `12h`, `30min`, `45s`. Settings in bytes accept `512MiB`, `1GiB`
and `1g` (1,024 cubed).
"""

from collections.abc import Iterable

from ottla.common import units
from ottla.common.failure import Failure, failing_on, reading
from ottla.config.properties import load_properties


def name_and_value(word: str, option: str = "") -> tuple[str, str]:
    """Split a `NAME=VALUE` word of an option such as `-X`; raises Failure with exit code 2."""
    name, separator, value = word.partition("=")
    if not separator or not name.strip():
        raise Failure(f"{option} {word!r} is not of the form NAME=VALUE".lstrip(), exit_code=2)
    return name.strip(), value


def read_properties(path: str) -> dict[str, str]:
    """Read a properties file; raises Failure with exit code 2."""
    with reading(f"the file {path}"), failing_on(ValueError):
        return load_properties(path)


def assignments(words: Iterable[str]) -> dict[str, str]:
    """Return the settings of `NAME=VALUE` words in the broker's units; raises Failure with exit code 2."""
    return {name: broker_value(name, value) for name, value in map(name_and_value, words)}


def milliseconds(text: str) -> int:
    """Return the milliseconds of a duration such as `1h30min` or `PT1H30M`; raises Failure with exit code 2."""
    with failing_on(ValueError):
        return units.parse_duration(text)


def size_of(text: str, option: str) -> int:
    """Return the bytes of a size such as `20MiB`; raises Failure with exit code 2 unless it is at least 1."""
    amount = units.parse_amount(text)
    factor = units.size_factor(amount[1]) if amount is not None else None
    try:
        size = int(text) if amount is None or factor is None else units.total([(amount[0], factor)], text)
    except ValueError as error:
        raise Failure(f"{option}: {text!r} is not a size such as 20MiB", exit_code=2) from error
    if size < 1:
        raise Failure(f"{option} is {text}; it must be at least 1 byte", exit_code=2)
    return size


def broker_value(name: str, value: str) -> str:
    """Convert a value with a unit to the broker's unit: `7d` of `retention.ms` to 604800000.

    Raises Failure for an unknown unit.
    """
    amount = units.parse_amount(value)
    if amount is None:
        return value
    number, unit = amount
    factor = units.UNITS_MS.get(unit) if is_time(name) else units.size_factor(unit) if is_size(name) else None
    if factor is not None:
        with failing_on(ValueError, about=name):
            return str(units.total([(number, factor)], value))
    if is_time(name) or is_size(name):
        names = "ms, s, min, h, d or w" if is_time(name) else "B, KiB, MiB, GiB or TiB"
        raise Failure(f"{name}={value}: {unit!r} is not a unit of this setting", f"It may be {names}.", exit_code=2)
    return value


def is_time(name: str) -> bool:
    """Whether a setting is a time in milliseconds."""
    return name.endswith(".ms")


def is_size(name: str) -> bool:
    """Whether a setting is a number of bytes."""
    return name.endswith((".bytes", ".bytes.per.second", ".buffer.size", "_byte_rate"))


def explained(name: str, value: str | None) -> str:
    """Format a value for people: `604800000 (7 d)`."""
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
