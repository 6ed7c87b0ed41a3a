"""Bytes as text that is printable, has no line breaks and can be read back exactly.

Printable UTF-8 stays as it is. Everything else, and the backslash, becomes `\\n`, `\\t`, `\\r`, `\\\\` or `\\xNN` per
byte. So no record can move a terminal's cursor, colour it or reverse its lines.
"""

import re
from functools import cache

NULL = b"\\N"
"""How an escaped field says that there is nothing, not even emptiness. As in PostgreSQL's COPY."""

_NAMES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
_BYTES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[ntr\\])|\\")


class NotEscaped(ValueError):
    """A backslash with something after it that `escaped` never writes."""


def escaped(data: bytes, also: str = "") -> bytes:
    """The bytes in printable text; the characters of `also` (printable ASCII) are escaped too."""
    return escaped_text(data, also).encode()


def escaped_text(data: bytes, also: str = "") -> str:
    """As `escaped`, as a str."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text and not any(c in text for c in also):
        return text
    return "".join(_as_it_is(c, also) for c in text)


def _as_it_is(character: str, also: str) -> str:
    if character.isprintable() and character != "\\" and character not in also:
        return character
    return _escape_of(character)


@cache
def _escape_of(character: str) -> str:
    name = _NAMES.get(character)
    return name or "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unescaped(text: bytes) -> bytes:
    """What `escaped` was given. Raises NotEscaped."""
    return _ESCAPE.sub(_byte_of, text) if b"\\" in text else text


def _byte_of(match: re.Match[bytes]) -> bytes:
    name = match[1]
    if name is None:
        following = match.string[match.start() : match.start() + 4].decode("utf-8", "replace")
        raise NotEscaped(f"{following!r} is no escape; a backslash itself is written \\\\")
    return bytes((int(name[1:], 16),)) if name[:1] == b"x" else _BYTES[name]


def for_terminal(text: str) -> str:
    """Text of ours for a terminal: anything that is not printable (line breaks excepted) as `\\xNN` or `\\uNNNN`."""
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


@cache
def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def visible(data: bytes) -> bytes:
    """The bytes as a terminal may have them: as `escaped`, but line breaks, tabs and backslashes stay."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return data
    return "".join(c if c in "\n\t\\" else _as_it_is(c, "") for c in text).encode()
