import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import (
    HEADER_SIZE,
    BatchHeader,
    BatchProducer,
    Codec,
    check_crc,
    encode_batch,
    increment_sequence,
    iter_batches,
    patch,
    read_header,
    set_timestamps,
    write_header,
)

from .samples import ROWS, with_field


def test_header_properties_follow_from_its_fields() -> None:
    batch = encode_batch(ROWS, base_offset=40, leader_epoch=3, producer=BatchProducer(9, 2, 7), attributes=0x10)
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 43, 44)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 7, 10)
    assert header.is_transactional
    assert not header.is_control
    assert header.codec is Codec.NONE
    assert header.partition_leader_epoch == 3
    assert header.delete_horizon_ms is None


def test_batch_without_producer_id_has_no_sequence() -> None:
    header = read_header(encode_batch(ROWS))
    assert header.last_sequence == -1


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(0x7FFFFFFF, 1) == 0
    assert increment_sequence(0x7FFFFFFE, 3) == 1


def test_patch_keeps_the_crc() -> None:
    batch = encode_batch(ROWS)
    patch(memoryview(batch), 0, 1 << 40, 77)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 77)
    assert check_crc(batch, 0, len(batch))


def test_log_append_time_is_stamped_with_a_new_crc() -> None:
    batch = bytearray(b"----") + encode_batch(ROWS)
    set_timestamps(batch, 4, 5_000, log_append=True)
    header = read_header(batch, 4)
    assert header.is_log_append_time
    assert header.max_timestamp == 5_000
    assert check_crc(batch, 4, header.size)
    set_timestamps(batch, 4, 6_000, log_append=False)
    assert not read_header(batch, 4).is_log_append_time
    assert check_crc(batch, 4, header.size)


def test_crc_check_detects_every_flipped_bit() -> None:
    batch = encode_batch([(1, b"k", b"v", [])])
    for position in range(21, len(batch)):
        corrupted = bytearray(batch)
        corrupted[position] ^= 1
        assert not check_crc(corrupted, 0, len(corrupted)), position


def test_crc_check_of_truncated_batch_fails() -> None:
    batch = encode_batch(ROWS)
    assert not check_crc(batch[:-1], 0, len(batch))
    assert not check_crc(batch, 0, HEADER_SIZE - 1)


@pytest.mark.parametrize(
    "corrupted",
    [
        b"",
        bytes(60),
        with_field(encode_batch(ROWS), 16, ">b", 1),
        with_field(encode_batch(ROWS), 16, ">b", 3),
        with_field(encode_batch(ROWS), 16, ">b", -1),
        with_field(encode_batch(ROWS), 8, ">i", 48),
        with_field(encode_batch(ROWS), 8, ">i", -5),
    ],
)
def test_invalid_header_is_a_corrupt_message(corrupted: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        read_header(corrupted)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_iteration_stops_before_incomplete_batch() -> None:
    batch = encode_batch(ROWS)
    size = len(batch)
    for tail in (b"", batch[:10], batch[:61], batch[:-1]):
        found = list(iter_batches(bytes(batch) * 2 + bytes(tail)))
        assert [position for position, _ in found] == [0, size]
        assert all(isinstance(header, BatchHeader) for _, header in found)


def test_unknown_codec_raises_on_access() -> None:
    header = read_header(with_field(encode_batch(ROWS), 21, ">h", 5))
    with pytest.raises(KafkaError) as caught:
        _ = header.codec
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_rewritten_header_is_unchanged() -> None:
    batch = encode_batch(ROWS, base_offset=5)
    copy = bytearray(batch)
    write_header(copy, 0, read_header(batch))
    assert copy == batch
