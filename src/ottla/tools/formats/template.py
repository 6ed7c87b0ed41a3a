"""Format strings, parsed to parts: literal bytes and fields.

    %t topic   %p partition   %o offset   %T %d timestamp   %k key   %v %s value   %h headers
    %K bytes of the key   %V %S bytes of the value   %R the same as 4 bytes, big-endian   %H number of headers
    \\n \\t \\r \\\\ \\xNN are bytes, %% is a percent sign, %{ and %} are braces

kcat and rpk use the same letters. Where the two differ (%T is the size of the topic in rpk), kcat wins. Braces after a
letter contain its encoding:

    %k{hex} %v{base64} %t{escaped}      bytes: unchanged without braces; `escaped` is printable text on one line
    %o{big32} %V{little64} %p{ascii}    numbers: decimal without braces; big and little 8, 16, 32, 64
    %T{iso} %T{strftime[%H:%M]}         timestamps: ms since the epoch without braces; UTC
    %h{%k=%v;}                          a format for each header; without braces name=value,name=value

The size of null is -1.
"""

from __future__ import annotations

import os
import re
import string
from datetime import UTC, datetime
from typing import NamedTuple


class FormatError(ValueError):
    """The format string is wrong; the message names the place and the alternatives."""


class Field(NamedTuple):
    """A field of a record. `inner` are the parts of each header for `%h{...}`."""

    name: str
    encoding: str = ""
    inner: tuple[bytes | Field, ...] | None = None


Part = bytes | Field

_LETTERS = {
    "t": "topic", "p": "partition", "o": "offset", "T": "timestamp", "d": "timestamp", "k": "key", "v": "value",
    "s": "value", "h": "headers", "K": "key_size", "V": "value_size", "S": "value_size", "R": "value_size",
    "H": "header_count",
}  # fmt: skip
_IN_HEADERS = {"k", "v", "s", "K", "V", "S", "R"}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_BYTES = frozenset({"topic", "key", "value"})
BYTE_ENCODINGS = ("hex", "base64", "escaped")
NUMBER_ENCODINGS = tuple(f"{order}{bits}" for order in ("big", "little") for bits in (8, 16, 32, 64))
_HEX = frozenset(string.hexdigits)
_TOKEN = re.compile(r"[%\\]")


def parse(text: str, *, in_headers: bool = False) -> tuple[Part, ...]:
    """Parse a format string; adjacent literals are joined. Raises FormatError."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        match = _TOKEN.search(text, position)
        end = match.start() if match else len(text)
        if end > position:
            _add(parts, os.fsencode(text[position:end]))
        if match is None:
            break
        if match[0] == "\\":
            data, position = _escape(text, end)
            _add(parts, data)
        else:
            part, position = _field(text, end, in_headers=in_headers)
            _add(parts, part)
    return tuple(parts)


def _add(parts: list[Part], part: Part) -> None:
    if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
        parts[-1] += part
    else:
        parts.append(part)


def _escape(text: str, position: int) -> tuple[bytes, int]:
    letter = text[position + 1 : position + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], position + 2
    digits = text[position + 2 : position + 4]
    if letter == "x" and len(digits) == 2 and set(digits) <= _HEX:
        return bytes((int(digits, 16),)), position + 4
    raise FormatError(
        f"{text[position : position + 4]!r} in the format is not an escape; there are \\n \\t \\r \\\\ \\xNN"
    )


def _field(text: str, position: int, *, in_headers: bool) -> tuple[Part, int]:
    letter = text[position + 1 : position + 2]
    if letter and letter in "%{}":
        return letter.encode(), position + 2
    if letter not in _LETTERS or (in_headers and letter not in _IN_HEADERS):
        known = "k v K V R" if in_headers else "t p o T d k v s h K V S R H"
        place = " within %h{...}" if in_headers else ""
        raise FormatError(
            f"%{letter} in the format is unknown{place}; there are {' '.join('%' + k for k in known.split())}"
        )
    name = _LETTERS[letter]
    position += 2
    encoding = None
    if text[position : position + 1] == "{":
        encoding, position = _braces(text, position)
    if letter == "h":
        if encoding is None:
            return Field(name), position
        return Field(name, "", parse(encoding, in_headers=True)), position
    if letter == "R":
        return Field(name, encoding or "big32"), position
    return Field(name, _checked(letter, name, encoding or "")), position


def _braces(text: str, start: int) -> tuple[str, int]:
    """Return the text in the braces that open at `start`, and the position after them."""
    depth = 0
    position = start
    while position < len(text):
        if text[position] == "%" and text[position + 1 : position + 2] in ("%", "{", "}"):
            position += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        position += 1
        if depth == 0:
            return text[start + 1 : position - 1], position
    raise FormatError(f"the brace after {text[:start]!r} in the format is never closed; write a brace as %{{")


def _check_strftime(pattern: str) -> None:
    try:
        datetime(2000, 1, 1, tzinfo=UTC).strftime(pattern)
    except ValueError as error:
        raise FormatError(f"{pattern!r} in the format is not a pattern of strftime: {error}") from error


def _checked(letter: str, name: str, encoding: str) -> str:
    if name in _BYTES:
        encoding = {"esc": "escaped"}.get(encoding, encoding)
        known: tuple[str, ...] = BYTE_ENCODINGS
    else:
        encoding = {"ascii": "", "number": "", "byte": "big8"}.get(encoding, encoding)
        known = NUMBER_ENCODINGS
        if name == "timestamp":
            if encoding.startswith("strftime[") and encoding.endswith("]"):
                _check_strftime(encoding[len("strftime[") : -1])
                return encoding
            known = ("iso", "strftime[...]", *known)
    if encoding and encoding not in known:
        raise FormatError(f"%{letter}{{{encoding}}} in the format is unknown; in the braces may be {', '.join(known)}")
    return encoding
