"""Compress and decompress the records section of a batch.

Decompression never produces more than `max_size` bytes, whatever size the input claims. A larger result and invalid
input raise KafkaError(CORRUPT_MESSAGE). The libraries are imported with the first compressed batch.

Kafka's Java reader accepts the formats: snappy in xerial framing (raw snappy is read too), lz4 frames of independent
blocks (Java rejects linked blocks, the default of most libraries), gzip, zstd. Levels as in KIP-390.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.batch import Buffer, Codec

MAX_DECOMPRESSED_SIZE: Final = 128 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_RATIO = 22  # three bytes decompress to at most 64
_LZ4_FAST_LEVEL = 9  # Kafka's default level, for which it uses the fast compressor
_LZ4_MAX_LEVEL = 12
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK = 128 * 1024
_INT32 = struct.Struct(">i")


def _corrupt(codec: Codec, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Cannot decompress {codec.name.lower()} records: {why}")


class TooLargeError(KafkaError):
    """The decompressed data exceeds the limit; the data itself may be valid."""


def _too_large(codec: Codec, max_size: int) -> KafkaError:
    why = f"Cannot decompress {codec.name.lower()} records: they are larger than {max_size} bytes"
    return TooLargeError(ErrorCode.CORRUPT_MESSAGE, why)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data`. With `level` None, Kafka's default for the codec applies; snappy has no levels."""
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_size: int = MAX_DECOMPRESSED_SIZE) -> Buffer:
    """Decompress `data`. Raises KafkaError(CORRUPT_MESSAGE) if it is invalid, TooLargeError beyond `max_size` bytes."""
    return _DECOMPRESS[codec](data, max_size)


def _compress_none(data: Buffer, _level: int | None) -> Buffer:
    return data


def _decompress_none(data: Buffer, max_size: int) -> Buffer:
    if len(data) > max_size:
        raise _too_large(Codec.NONE, max_size)
    return data


def _compress_gzip(data: Buffer, level: int | None) -> Buffer:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, max_size: int) -> Buffer:
    out = bytearray()
    rest: Buffer = data
    while rest:  # a gzip file may have several members
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(rest, max_size - len(out) + 1)
        except zlib.error as error:
            raise _corrupt(Codec.GZIP, error) from None
        if len(out) > max_size:
            raise _too_large(Codec.GZIP, max_size)
        if not member.eof:
            raise _corrupt(Codec.GZIP, "they end too early")
        rest = member.unused_data
    return out


def _compress_snappy(data: Buffer, _level: int | None) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return out


def _decompress_snappy(data: Buffer, max_size: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_size)
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _corrupt(Codec.SNAPPY, "they end within their header")
    out = bytearray()
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise _corrupt(Codec.SNAPPY, "they end within a length")
        size = _INT32.unpack_from(view, position)[0]
        position += _INT32.size
        if size < 0 or size > len(view) - position:
            raise _corrupt(Codec.SNAPPY, f"a block claims {size} bytes, but only {len(view) - position} remain")
        out += _snappy_block(view[position : position + size], max_size - len(out))
        position += size
    return out


def _snappy_block(block: memoryview, max_size: int) -> bytearray:
    from cramjam import DecompressionError, snappy

    size = _snappy_size(block)
    if size > max_size:
        raise _too_large(Codec.SNAPPY, max_size)
    if size > _SNAPPY_RATIO * len(block):
        raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes cannot decompress to {size} bytes")
    out = bytearray(size)
    if size:
        try:
            written = snappy.decompress_raw_into(block, out)
        except DecompressionError as error:
            raise _corrupt(Codec.SNAPPY, error) from None
        if written != size:
            raise _corrupt(Codec.SNAPPY, f"a block has {written} bytes instead of {size}")
    return out


def _snappy_size(block: memoryview) -> int:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise _corrupt(Codec.SNAPPY, "they do not begin with a length")


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    import lz4.frame

    chosen = 0 if level is None or level == _LZ4_FAST_LEVEL else min(level, _LZ4_MAX_LEVEL)
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=chosen,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, max_size: int) -> Buffer:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    size = 0
    rest: Any = data
    while not decompressor.eof:
        room = min(max_size - size + 1, max(4 * len(data), 64 * 1024))
        try:
            piece: bytes = decompressor.decompress(rest, max_length=room)
        except RuntimeError as error:
            raise _corrupt(Codec.LZ4, error) from None
        rest = b""
        size += len(piece)
        pieces.append(piece)
        if size > max_size:
            raise _too_large(Codec.LZ4, max_size)
        if not decompressor.eof and (decompressor.needs_input or not piece):
            raise _corrupt(Codec.LZ4, "they end too early")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _compress_zstd(data: Buffer, level: int | None) -> Buffer:
    from cramjam import zstd

    return memoryview(zstd.compress(data, level=3 if level is None else level))


def _decompress_zstd(data: Buffer, max_size: int) -> Buffer:
    from cramjam import DecompressionError, zstd

    # A buffer of the exact bound stops a decompression bomb. A new bytearray uses memory only where it is written.
    bound = _zstd_bound(memoryview(data))
    out = bytearray(min(bound, max_size))
    try:
        written: int = zstd.decompress_into(data, out)
    except DecompressionError as error:
        raise (_too_large(Codec.ZSTD, max_size) if bound > max_size else _corrupt(Codec.ZSTD, error)) from None
    return memoryview(out)[:written]


def _zstd_bound(data: memoryview) -> int:
    """Return an upper bound of the decompressed size, from the headers of the frames' blocks (RFC 8878)."""
    bound = position = 0
    while position < len(data):
        frame = position
        position = _zstd_frame_header_end(data, frame)
        last = False
        while not last:
            if position + 3 > len(data):
                raise _corrupt(Codec.ZSTD, "they end too early")
            block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            # Raw and run-length blocks state their size; a compressed block has at most the format's maximum.
            bound += size if kind < 2 else _ZSTD_BLOCK
            position += 3 + (1 if kind == 1 else size)
        position += 4 if data[frame + 4] & 0x04 else 0  # the frame's checksum
    return bound


def _zstd_frame_header_end(data: memoryview, position: int) -> int:
    if len(data) - position < 6 or int.from_bytes(data[position : position + 4], "little") != _ZSTD_MAGIC:
        raise _corrupt(Codec.ZSTD, "they do not begin with a frame")
    descriptor = data[position + 4]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_id = (0, 1, 2, 4)[descriptor & 3]
    return position + 5 + (1 - single_segment) + dictionary_id + content_size


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[Codec, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
