"""Errors, limits and variable-length numbers of Kafka's wire, used by the compiled encoders and decoders.

Everything that comes from outside is bounded here: varints, lengths, array counts. Bad input raises `DecodeError`,
nothing else.
"""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

# Limits of Kafka 4.4's own decoder: refused before anything is allocated.
MAX_ARRAY = 1_000_000
MAX_TAGS = 10_000
MAX_STRING = 0x7FFF
# A broker refuses a request with more array elements (nested ones and unknown tagged fields included): its decoder runs
# to the end, and no other client is served meanwhile. Kafka has no such limit. The slowest elements take 0.3 us each.
MAX_REQUEST_ELEMENTS = 150_000
# Of a Produce request: its batches are copied before its work is interrupted.
MAX_PRODUCE_ELEMENTS = 50_000
# Records at least this long are handed over as they are, shorter ones are cheaper to copy than to send apart.
COPY_BELOW = 2048


class DecodeError(ValueError):
    """The bytes are not what they claim to be: close the connection."""


class EncodeError(ValueError):
    """A field holds a value that the version cannot carry: a mistake of ours."""


class VersionError(ValueError):
    """The message has no such version."""


ONE_BYTE = [bytes((n,)) for n in range(128)]


def uvarint(value: int) -> bytes:
    """`value` (0 to 2^32 - 1) as an unsigned varint."""
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{value} is no unsigned 32-bit number")
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
    """The rest of a varint whose first byte, above 127, has been read."""
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
    """The position after a section of `count` tagged fields, all of them unknown."""
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
    """The error of a request with more array elements than are decoded."""
    return DecodeError(f"The request has more than {most} array elements, the limit")


def bad_length(what: str, length: int, remaining: int) -> DecodeError:
    """The error of a length that is negative, null where null is not allowed, or beyond the buffer."""
    return DecodeError(f"{what} claims length {length}, {remaining} bytes remain")
