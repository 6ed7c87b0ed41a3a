import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    check_crc,
    encode_batch,
    increment_sequence,
    iter_batches,
    patch,
    read_header,
    stamp_log_append_time,
    write_header,
)
from ottla.records.batch import set_timestamps

from .samples import ROWS, with_field


def test_header_says_what_the_batch_is() -> None:
    batch = encode_batch(
        ROWS, base_offset=40, leader_epoch=3, producer_id=9, producer_epoch=2, base_sequence=7, attributes=0x10
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 43, 44)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 7, 10)
    assert header.has_producer_id
    assert header.is_transactional
    assert not header.is_control
    assert header.codec is Codec.NONE
    assert header.partition_leader_epoch == 3
    assert header.delete_horizon_ms is None


def test_a_batch_without_a_producer_has_no_sequence() -> None:
    header = read_header(encode_batch(ROWS))
    assert header.last_sequence == -1
    assert not header.has_producer_id


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
    stamp_log_append_time(batch, 4, 5_000)
    header = read_header(batch, 4)
    assert header.is_log_append_time
    assert header.max_timestamp == 5_000
    assert check_crc(batch, 4, header.size)
    set_timestamps(batch, 4, 6_000, log_append=False)
    assert not read_header(batch, 4).is_log_append_time
    assert check_crc(batch, 4, header.size)


def test_crc_sees_every_bit_it_covers() -> None:
    batch = encode_batch([(1, b"k", b"v", [])])
    for position in range(21, len(batch)):
        harmed = bytearray(batch)
        harmed[position] ^= 1
        assert not check_crc(harmed, 0, len(harmed)), position


def test_crc_of_what_is_not_there_is_wrong() -> None:
    batch = encode_batch(ROWS)
    assert not check_crc(batch[:-1], 0, len(batch))
    assert not check_crc(batch, 0, HEADER_SIZE - 1)


@pytest.mark.parametrize(
    "harmed",
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
def test_what_is_no_batch_is_corrupt(harmed: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        read_header(harmed)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_iteration_stops_before_an_incomplete_tail() -> None:
    batch = encode_batch(ROWS)
    size = len(batch)
    for tail in (b"", batch[:10], batch[:61], batch[:-1]):
        found = list(iter_batches(bytes(batch) * 2 + bytes(tail)))
        assert [position for position, _ in found] == [0, size]
        assert all(isinstance(header, BatchHeader) for _, header in found)


def test_an_unknown_codec_is_an_error_when_asked_for() -> None:
    header = read_header(with_field(encode_batch(ROWS), 21, ">h", 5))
    with pytest.raises(KafkaError) as caught:
        _ = header.codec
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_header_written_again_is_the_same() -> None:
    batch = encode_batch(ROWS, base_offset=5)
    copy = bytearray(batch)
    write_header(copy, 0, read_header(batch))
    assert copy == batch
