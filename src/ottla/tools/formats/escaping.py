"""Bytes as printable text without line breaks that converts back to the same bytes.

Printable UTF-8 is unchanged. All other bytes and the backslash become `\\n`, `\\t`, `\\r`, `\\\\` or `\\xNN`.
So no record can send control sequences to a terminal.
"""

import re
from functools import cache

NULL = b"\\N"
"""Stands for null in an escaped field, as in PostgreSQL's COPY."""

_NAMES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
_BYTES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[ntr\\])|\\")


class NotEscaped(ValueError):
    """A backslash is followed by text that `escaped` never writes."""


def escaped(data: bytes, also: str = "") -> bytes:
    """Escape bytes to printable text; also escapes the printable ASCII characters `also`."""
    return escaped_text(data, also).encode()


def escaped_text(data: bytes, also: str = "") -> str:
    """As `escaped`, but return a str."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text and not any(c in text for c in also):
        return text
    return "".join(_unless_printable(c, also) for c in text)


def _unless_printable(character: str, also: str) -> str:
    if character.isprintable() and character != "\\" and character not in also:
        return character
    return _escape_of(character)


@cache
def _escape_of(character: str) -> str:
    name = _NAMES.get(character)
    return name or "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unescaped(text: bytes) -> bytes:
    """Return the bytes that `escaped` was given. Raises NotEscaped."""
    return _ESCAPE.sub(_byte_of, text) if b"\\" in text else text


def _byte_of(match: re.Match[bytes]) -> bytes:
    name = match[1]
    if name is None:
        following = match.string[match.start() : match.start() + 4].decode("utf-8", "replace")
        raise NotEscaped(f"{following!r} is not an escape; write a backslash as \\\\")
    return bytes((int(name[1:], 16),)) if name[:1] == b"x" else _BYTES[name]


def for_terminal(text: str) -> str:
    """Escape the characters of our own output that are not printable, except line breaks, as `\\uNNNN`."""
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


@cache
def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def visible(data: bytes) -> bytes:
    """Escape bytes for a terminal: as `escaped`, but line breaks, tabs and backslashes are unchanged."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return data
    return "".join(c if c in "\n\t\\" else _unless_printable(c, "") for c in text).encode()
