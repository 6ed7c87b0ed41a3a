"""The whole numbers in a small object of JSON, for the files of it that a start reads: `json` would take it 2 ms."""

import re

_NUMBER = re.compile(r'"(\w+)"\s*:\s*(-?[0-9]{1,19})\s*(?=[,}])')


def numbers_in(text: str) -> dict[str, int]:
    """Each field that is a whole number, by its name, also those within fields; ValueError if it is no object."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"this is no object of JSON: {text[:200]!r}")
    return {name: int(digits) for name, digits in _NUMBER.findall(text)}
