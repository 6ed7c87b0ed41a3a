"""Cuts a stream of concatenated JSON objects into objects, as their bytes arrive; does no I/O."""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = re.compile(rb'[{}\[\]"]')
_INSIDE: Final = re.compile(rb'["\\]')
_SPACE: Final = b" \t\r\n"


class StreamError(ValueError):
    """The stream is not a sequence of JSON objects, or an object is too large."""


class JsonObjects:
    """The objects of a stream; an object may have at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that are complete now. Raises StreamError."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        position = self._scanned
        start = 0
        while position < len(buffer):
            if self._depth == 0 and not self._in_string:
                start = position = self._skip_space(position)
                if position == len(buffer):
                    break
                if buffer[position] != ord("{"):
                    raise StreamError(
                        f"a record must be a JSON object, not {bytes(buffer[position : position + 20])!r}"
                    )
            match = (_INSIDE if self._in_string else _OUTSIDE).search(buffer, position)
            if match is None:
                position = len(buffer)
                break
            position = match.end()
            character = match.group()
            if character == b"\\":
                if position == len(buffer):  # the escaped character is not there yet
                    position -= 1
                    break
                position += 1
            elif character == b'"':
                self._in_string = not self._in_string
            elif character in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    self._check_size(position - start)
                    found.append(bytes(buffer[start:position]))
                    start = position
        del buffer[:start]
        self._scanned = position - start
        self._check_size(len(buffer))
        return found

    def _check_size(self, size: int) -> None:
        if size > self._limit_bytes:
            raise StreamError(f"a record has more than {self._limit_bytes} bytes")

    def finish(self) -> None:
        """Check that no object is cut off by the end of the stream. Raises StreamError."""
        if self._buffer.strip(_SPACE):
            raise StreamError("the stream ends within a record")

    def _skip_space(self, position: int) -> int:
        buffer = self._buffer
        while position < len(buffer) and buffer[position] in _SPACE:
            position += 1
        return position
