"""Reads the broker's settings for the configurations of the coordinators."""

from collections.abc import Callable


def whole_numbers(setting: Callable[[str], object]) -> Callable[[str], int]:
    """Return a function from the name of a setting to its value; it raises TypeError for other values than integers."""

    def number(name: str) -> int:
        value = setting(name)
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}, not a whole number")
        return value

    return number
