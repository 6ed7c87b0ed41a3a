"""Elements of a response's array in bytes, encoded as they are made.

A response that holds thousands of structs takes ten times the memory of its bytes, and one call of the encoder that
nothing interrupts. An array of structs may therefore hold bytes instead: a list with an element's bytes in its place,
or `Elements`, which joins many. Encoders copy them, or hand long ones on: what several responses, or several elements
of one, have in common exists once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from ottla.protocol import compiler
from ottla.protocol.message import Message, Struct

E = TypeVar("E", bound=Struct)

CHUNK_BYTES = 64 * 1024

_encoders: dict[tuple[type[Message], type[Struct], int], Callable[[Any, list[Any]], None]] = {}


def encode_element(response: type[Message], version: int, element: Struct) -> bytes:
    """The bytes of a struct of `response` in one version, for an array of that response."""
    key = response, type(element), version
    encode = _encoders.get(key)
    if encode is None:
        encode = _encoders[key] = compiler.build_encoder(response, version, type(element))
    parts: list[Any] = []
    encode(element, parts)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def as_list(encoded: list[bytes]) -> list[E]:
    """Encoded elements of type E, as the type of the field that they stand for."""
    return cast("list[E]", encoded)


class Elements(Generic[E]):
    """A replacement for an array's list. Its length is the number of elements; it yields bytes of many."""

    __slots__ = ("_chunks", "_count", "_open", "_open_bytes", "_response", "_version", "size")

    def __init__(self, response: type[Message], version: int, elements: Iterable[E] = ()) -> None:
        self._response = response
        self._version = version
        self._chunks: list[bytes] = []
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._count = 0
        self.size = 0
        """In bytes."""
        for element in elements:
            self.append(element)

    def append(self, element: E) -> None:
        """Encode one more element."""
        encoded = encode_element(self._response, self._version, element)
        self._count += 1
        self.size += len(encoded)
        self._open.append(encoded)
        self._open_bytes += len(encoded)
        if self._open_bytes > CHUNK_BYTES:
            self._close_chunk()

    def _close_chunk(self) -> None:
        self._chunks.append(b"".join(self._open))
        self._open.clear()
        self._open_bytes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        if self._open:
            self._close_chunk()
        return iter(self._chunks)

    def as_list(self) -> list[E]:
        """Itself, as the type of the field that it stands for."""
        return cast("list[E]", self)
