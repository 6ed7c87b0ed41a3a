import gzip
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import Codec
from ottla.records.batch import Buffer
from ottla.records.codecs import compress, decompress

from .samples import CODECS

COMPRESSED = CODECS[1:]
TEXT = b"the same words again and again, " * 5_000
NOISE = bytes(struct.unpack("<I", struct.pack("<I", i * 2654435761 & 0xFFFFFFFF))[0] >> 24 for i in range(70_000))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(300_000)])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_compressed_data_roundtrips(codec: Codec, data: bytes, wrap: Callable[[bytes], bytes]) -> None:
    assert bytes(decompress(codec, wrap(bytes(compress(codec, wrap(data)))))) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -5),
        (Codec.ZSTD, 19),
        (Codec.SNAPPY, 1),
    ],
)
def test_compression_levels_are_accepted(codec: Codec, level: int) -> None:
    assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT


def test_higher_compression_level_gives_smaller_output() -> None:
    data = bytes(a ^ b for a, b in zip(NOISE, TEXT, strict=False))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -5, 19)):
        assert len(compress(codec, TEXT + data + TEXT, low)) >= len(compress(codec, TEXT + data + TEXT, high)), codec


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [1_000, len(TEXT) - 1])
def test_output_larger_than_max_size_is_rejected(codec: Codec, size: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, compress(codec, TEXT), size)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_exactly_max_size_is_accepted(codec: Codec) -> None:
    assert len(decompress(codec, compress(codec, TEXT), len(TEXT))) == len(TEXT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_bomb_allocates_little_memory(codec: Codec) -> None:
    zeros = bytes(1 << 20)
    if codec is Codec.GZIP:
        bomb = gzip.compress(zeros) * 256
    elif codec is Codec.ZSTD:
        bomb = bytes(cramjam.zstd.compress(zeros)) * 256
    elif codec is Codec.SNAPPY:
        bomb = b"\xff\xff\xff\x7f" + bytes(1_000)
    else:
        bomb = lz4.frame.compress(bytes(64 << 20), block_linked=False)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError):
            decompress(codec, bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_compressed_data_is_corrupt(codec: Codec) -> None:
    whole = bytes(compress(codec, TEXT[:3_000] + NOISE[:3_000]))
    for size in [0, 1, 3, 5, 8, 15, 16, 17, 18, 20, 100, len(whole) // 2, len(whole) - 1]:
        if codec is Codec.SNAPPY and size == 16:
            continue  # a xerial stream without blocks is empty
        if codec is Codec.GZIP and size == 0:
            continue
        with pytest.raises(KafkaError) as caught:
            decompress(codec, whole[:size])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE, size


def _size_or_code(codec: Codec, data: Buffer, max_size: int) -> int:
    """Return the decompressed size; 2 for CORRUPT_MESSAGE (no test has that size); -1 for another code."""
    try:
        return len(decompress(codec, data, max_size))
    except KafkaError as error:
        return 2 if error.code is ErrorCode.CORRUPT_MESSAGE else -1


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_corrupted_compressed_data_is_rejected_or_bounded(codec: Codec, data: st.DataObject) -> None:
    whole = bytearray(compress(codec, TEXT[:500] + NOISE[:200]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert _size_or_code(codec, whole, 100_000) in range(100_001)


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=100))
def test_random_bytes_are_rejected_or_bounded(codec: Codec, data: bytes) -> None:
    assert _size_or_code(codec, data, 10_000) in range(10_001)


def test_raw_snappy_is_read_too() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


def test_snappy_is_written_in_the_xerial_framing() -> None:
    data = bytes(compress(Codec.SNAPPY, TEXT))
    assert data[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    position, sizes = 16, []
    while position < len(data):
        size = struct.unpack_from(">i", data, position)[0]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert sum(sizes) == len(TEXT)
    assert max(sizes) == 32 * 1024


def test_lz4_blocks_are_independent() -> None:
    for level in (None, 12):
        info = lz4.frame.get_frame_info(bytes(compress(Codec.LZ4, TEXT, level)))
        assert info["block_linked"] is False
        assert info["block_size"] == 64 * 1024


def test_several_gzip_members_and_zstd_frames_are_one_stream() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"))) == b"one two"
    frames = b"".join(bytes(cramjam.zstd.compress(part)) for part in (b"one ", b"two"))
    assert bytes(decompress(Codec.ZSTD, frames)) == b"one two"


def test_zstd_frames_without_a_content_size_are_read() -> None:
    stream = cramjam.zstd.Compressor()
    for start in range(0, len(TEXT), 1_000):
        stream.compress(TEXT[start : start + 1_000])
    assert bytes(decompress(Codec.ZSTD, bytes(stream.finish()))) == TEXT
