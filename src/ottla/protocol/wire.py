"""Errors, limits and variable-length numbers of the Kafka protocol.

All input is bounded: varints, lengths and array counts. Invalid input raises `DecodeError` and no other exception.
"""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

# Limits of Kafka 4.4's decoder. Input above them is rejected before anything is allocated.
MAX_ARRAY = 1_000_000
MAX_TAGS = 10_000
MAX_STRING = 0x7FFF
# A broker rejects a request with more array elements (nested ones and unknown tagged fields included). A decoder is not
# interrupted, and blocks all other clients. Kafka has no such limit. The slowest elements take 0.3 us each.
MAX_REQUEST_ELEMENTS = 150_000
# The limit of a Produce request, whose batches are copied before its work can be interrupted.
MAX_PRODUCE_ELEMENTS = 50_000
# Longer records are not copied. Shorter ones are cheaper to copy than to send as a separate buffer.
COPY_BELOW = 2048


class DecodeError(ValueError):
    """The bytes are malformed; the connection has to be closed."""


class EncodeError(ValueError):
    """A field has a value that the version cannot carry."""


class VersionError(ValueError):
    """The message has no such version."""


ONE_BYTE = [bytes((n,)) for n in range(128)]


def uvarint(value: int) -> bytes:
    """`value` (0 to 2^32 - 1) as an unsigned varint."""
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{value} is not an unsigned 32-bit number")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it."""
    if position >= len(buffer):
        raise DecodeError("The buffer ends before a varint")
    first = buffer[position]
    return (first, position + 1) if first < 128 else read_more(buffer, position + 1, first)


def read_more(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, which is above 127, has been read, and the position after it."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        if position >= len(buffer):
            raise DecodeError("The buffer ends inside a varint")
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise DecodeError("A varint is longer than 32 bits")


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """The position after a section of `count` unknown tagged fields."""
    if count > MAX_TAGS:
        raise bad_length("Tagged section", count, len(buffer) - position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > len(buffer) - position:
            raise bad_length("Tagged field", size, len(buffer) - position)
        position += size
    return position


def too_many_elements(most: int) -> DecodeError:
    """The error of a request with more array elements than the limit."""
    return DecodeError(f"The request has more than {most} array elements, the limit")


def bad_length(what: str, length: int, remaining: int) -> DecodeError:
    """The error of a length that is negative, null where null is not allowed, or beyond the buffer."""
    return DecodeError(f"{what} claims length {length}, {remaining} bytes remain")
