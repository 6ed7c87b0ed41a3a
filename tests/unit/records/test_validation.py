"""Validation of produced batches: a table of error codes, and the batches that a leader changes."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import (
    BatchProducer,
    Codec,
    ProduceRules,
    RecordError,
    check_crc,
    decode_batch,
    encode_batch,
    kernels,
    validate_produced,
)
from ottla.records.batch import CONTROL, TRANSACTIONAL
from ottla.records.checksum import crc32c

from .samples import CODECS, ROWS, batch_with_deltas, rows_of, with_field, with_payload

RULES = ProduceRules("orders")
NOW = 1_000_000
GOOD = bytes(encode_batch(ROWS, producer=BatchProducer(5, 0, 0)))


def _refused(batch: bytes | bytearray, rules: ProduceRules = RULES, now_ms: int = NOW, **options: bool) -> KafkaError:
    """Return the error of an invalid batch, and check that the batch is unchanged."""
    buffer = bytearray(batch)
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(buffer), rules, now_ms, **options)
    assert buffer == batch
    return caught.value


@pytest.mark.parametrize(
    ("story", "batch", "code"),
    [
        ("no bytes", b"", ErrorCode.INVALID_RECORD),
        ("less than a header", GOOD[:16], ErrorCode.INVALID_RECORD),
        ("the end is missing", GOOD[:-1], ErrorCode.INVALID_RECORD),
        ("two batches", GOOD * 2, ErrorCode.INVALID_RECORD),
        ("bytes after it", GOOD + b"\0", ErrorCode.INVALID_RECORD),
        ("magic 0", with_field(GOOD, 16, ">b", 0), ErrorCode.INVALID_RECORD),
        ("magic 1", with_field(GOOD, 16, ">b", 1), ErrorCode.INVALID_RECORD),
        ("magic 3", with_field(GOOD, 16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        ("magic -1", with_field(GOOD, 16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
        ("length of no record", with_field(GOOD, 8, ">i", 13), ErrorCode.CORRUPT_MESSAGE),
        ("length of half a header", with_field(GOOD, 8, ">i", 48), ErrorCode.CORRUPT_MESSAGE),
        ("negative length", with_field(GOOD, 8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
        ("a base offset", with_field(GOOD, 0, ">q", 1), ErrorCode.INVALID_RECORD),
        ("a wrong CRC", GOOD[:17] + b"\0\0\0\0" + GOOD[21:], ErrorCode.CORRUPT_MESSAGE),
        ("a flipped bit", GOOD[:-1] + bytes([GOOD[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        ("no records", with_field(with_field(GOOD, 57, ">i", 0), 23, ">i", -1), ErrorCode.INVALID_RECORD),
        ("count zero", with_field(GOOD, 57, ">i", 0), ErrorCode.INVALID_RECORD),
        ("negative count", with_field(GOOD, 57, ">i", -4), ErrorCode.INVALID_RECORD),
        ("count too great", with_field(GOOD, 57, ">i", 5), ErrorCode.INVALID_RECORD),
        ("last offset delta too great", with_field(GOOD, 23, ">i", 4), ErrorCode.INVALID_RECORD),
        ("negative last offset delta", with_field(GOOD, 23, ">i", -1), ErrorCode.INVALID_RECORD),
        (
            "count and delta agree, the records do not",
            with_field(with_field(GOOD, 57, ">i", 5), 23, ">i", 4),
            ErrorCode.INVALID_RECORD,
        ),
        ("fewer are declared", with_field(with_field(GOOD, 57, ">i", 3), 23, ">i", 2), ErrorCode.INVALID_RECORD),
        ("a control batch", with_field(GOOD, 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        ("a producer without a sequence", with_field(GOOD, 53, ">i", -1), ErrorCode.INVALID_RECORD),
        ("an unknown codec", with_field(GOOD, 21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("records of noise", with_payload(GOOD, b"noise" * 9), ErrorCode.INVALID_RECORD),
        (
            "offsets that do not ascend",
            batch_with_deltas(ROWS, [0, 2, 1, 3]),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_invalid_batches_get_kafkas_error_code(kernel: ModuleType, story: str, batch: bytes, code: ErrorCode) -> None:
    assert _refused(batch).code is code, story


@pytest.mark.parametrize("codec", CODECS)
def test_valid_batch_passes_unchanged(kernel: ModuleType, codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=codec)
    buffer = memoryview(bytes(batch))
    header, same = validate_produced(buffer, RULES, NOW)
    assert same is buffer
    assert header.record_count == 4


def test_sequence_without_producer_id_is_ignored(kernel: ModuleType) -> None:
    validate_produced(memoryview(with_field(with_field(GOOD, 53, ">i", -1), 43, ">q", -1)), RULES, NOW)


@pytest.mark.parametrize("codec", CODECS)
def test_max_message_bytes_applies_to_the_compressed_batch(codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=codec)
    validate_produced(memoryview(batch), ProduceRules("orders", max_message_bytes=len(batch)), NOW)
    error = _refused(batch, ProduceRules("orders", max_message_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_max_message_bytes_applies_after_recompression() -> None:
    batch = encode_batch(ROWS, codec=Codec.ZSTD)
    rules = ProduceRules("orders", max_message_bytes=len(batch), compression_type="uncompressed")
    assert _refused(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_version_7() -> None:
    batch = encode_batch(ROWS, codec=Codec.ZSTD)
    assert _refused(batch, allow_zstd=False).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    validate_produced(memoryview(encode_batch(ROWS, codec=Codec.GZIP)), RULES, NOW, allow_zstd=False)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("story", "timestamps", "rules", "bad"),
    [
        ("too far ahead", [NOW, NOW + 11, NOW], {"after_max_ms": 10}, [1]),
        ("all too far ahead", [NOW + 11, NOW + 12], {"after_max_ms": 10}, [0, 1]),
        ("too old", [NOW, NOW - 11, NOW - 10], {"before_max_ms": 10}, [1]),
        ("the first too old", [NOW - 11, NOW], {"before_max_ms": 10}, [0]),
        ("none out of bounds", [NOW - 10, NOW + 10], {"before_max_ms": 10, "after_max_ms": 10}, []),
        ("no timestamp is never out of bounds", [-1, NOW], {"before_max_ms": 10}, []),
        ("an hour ahead is the default", [NOW + 3_600_001], {}, [0]),
        ("an hour ahead is in order", [NOW + 3_600_000], {}, []),
    ],
)
def test_timestamps_out_of_bounds_are_reported_per_record(
    kernel: ModuleType, codec: Codec, story: str, timestamps: list[int], rules: dict[str, int], bad: list[int]
) -> None:
    batch = encode_batch([(timestamp, b"k", b"v", []) for timestamp in timestamps], codec=codec)
    topic_rules = ProduceRules("orders", **rules)
    if not bad:
        validate_produced(memoryview(batch), topic_rules, NOW)
        return
    error = _refused(batch, topic_rules)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordError)
    assert [index for index, _ in error.record_errors] == bad


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_topic_reports_records_without_keys(kernel: ModuleType, codec: Codec) -> None:
    error = _refused(encode_batch(ROWS, codec=codec), ProduceRules("orders", compacted=True))
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, RecordError)
    assert [index for index, _ in error.record_errors] == [1]
    assert "orders" in error.record_errors[0][1]
    batch = encode_batch([(1, b"", None, [])], codec=codec)
    validate_produced(memoryview(batch), ProduceRules("orders", compacted=True), NOW)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compacted_topic_decompresses_batches(kernel: ModuleType, codec: Codec) -> None:
    noise = with_payload(encode_batch(ROWS, codec=codec), b"noise" * 20)
    assert _refused(noise, ProduceRules("orders", compacted=True)).code is ErrorCode.CORRUPT_MESSAGE
    more = encode_batch(ROWS, codec=codec)
    more = with_field(with_field(more, 57, ">i", 5), 23, ">i", 4)
    assert _refused(more, ProduceRules("orders", compacted=True)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_replaces_every_timestamp(kernel: ModuleType, codec: Codec) -> None:
    batch = memoryview(encode_batch([(NOW * 10, b"k", b"v", []), (-1, b"k", b"v", [])], codec=codec))
    header, same = validate_produced(batch, ProduceRules("orders", timestamp_type="LogAppendTime"), NOW)
    assert same is batch
    assert header.is_log_append_time
    assert header.max_timestamp == NOW
    assert header.crc == int.from_bytes(batch[17:21], "big")
    assert check_crc(batch, 0, len(batch))
    assert {record.timestamp for record in decode_batch(batch)} == {NOW}


@pytest.mark.parametrize("codec", CODECS)
def test_a_producer_may_not_claim_log_append_time(kernel: ModuleType, codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=codec, attributes=0x08)
    error = _refused(batch, ProduceRules("orders", timestamp_type="LogAppendTime"))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordError)
    assert len(error.record_errors) == 4
    header, changed = validate_produced(memoryview(batch), RULES, NOW)
    assert not header.is_log_append_time
    assert check_crc(changed, 0, len(changed))


def test_a_read_only_buffer_is_copied_before_it_is_changed(kernel: ModuleType) -> None:
    buffer = memoryview(GOOD)
    _, changed = validate_produced(buffer, ProduceRules("orders", timestamp_type="LogAppendTime"), NOW)
    assert changed is not buffer
    assert not changed.readonly
    assert check_crc(changed, 0, len(changed))


def test_wrong_max_timestamp_is_corrected(kernel: ModuleType) -> None:
    header, changed = validate_produced(memoryview(with_field(GOOD, 35, ">q", 5)), RULES, NOW)
    assert header.max_timestamp == 1_005
    assert changed == GOOD


def test_wrapped_timestamp_is_validated_as_readers_decode_it(kernel: ModuleType) -> None:
    batch = encode_batch([(-(1 << 62) - NOW, b"", b"", []), (1 << 62, b"", b"", [])])
    unbounded = ProduceRules("orders", after_max_ms=(1 << 63) - 1)
    header, _ = validate_produced(memoryview(batch), unbounded, NOW)
    assert header.max_timestamp == 1 << 62
    error = _refused(batch, RULES)
    assert isinstance(error, RecordError)
    assert [index for index, _ in error.record_errors] == [1]


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_topic_codec_replaces_producer_codec(kernel: ModuleType, source: Codec, target: str) -> None:
    batch = encode_batch(ROWS, codec=source, producer=BatchProducer(5, 1, 9), attributes=0x10)
    buffer = memoryview(batch)
    header, changed = validate_produced(buffer, ProduceRules("orders", compression_type=target), NOW)
    wanted = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    assert header.codec is wanted
    assert (changed is buffer) == (wanted is source)
    assert header.size == len(changed)
    assert check_crc(changed, 0, len(changed))
    assert rows_of(decode_batch(changed)) == ROWS
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 1, 9, True)


def test_recompression_uses_the_topic_level() -> None:
    rows = [(1, b"%d" % (number * 7919), b"%d" % (number * 104729), []) for number in range(2_000)]
    sizes = [
        validate_produced(
            memoryview(encode_batch(rows)),
            ProduceRules("orders", compression_type="zstd", compression_level=level),
            NOW,
        )[0].size
        for level in (-5, 19)
    ]
    assert sizes[1] < sizes[0]


def test_log_append_time_and_recompression_combine(kernel: ModuleType) -> None:
    rules = ProduceRules("orders", compression_type="lz4", timestamp_type="LogAppendTime")
    header, changed = validate_produced(memoryview(GOOD), rules, NOW)
    assert (header.codec, header.is_log_append_time, header.max_timestamp) == (Codec.LZ4, True, NOW)
    assert check_crc(changed, 0, len(changed))
    assert len(decode_batch(changed)) == 4


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(NOW - 5, NOW + 5), st.none() | st.binary(max_size=3)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from((0, 1, 2, 127, 128, 255))), max_size=2),
    st.sampled_from((0, TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL, TRANSACTIONAL << 8)),
    st.booleans(),
    st.sampled_from(
        (RULES, ProduceRules("orders", compacted=True), ProduceRules("orders", before_max_ms=3, after_max_ms=3))
    ),
)
def test_fast_validation_of_small_batches_agrees_with_full_validation(
    rows: list[tuple[int, bytes | None]],
    changes: list[tuple[int, int]],
    attributes: int,
    seals: bool,
    rules: ProduceRules,
) -> None:
    batch = bytearray(
        encode_batch(
            [(timestamp, key, b"value", []) for timestamp, key in rows],
            attributes=attributes,
            producer=BatchProducer(5),
        )
    )
    for place, byte in changes:
        batch[place % len(batch)] = byte
    if seals:  # otherwise the CRC check hides all other errors
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")

    def outcome() -> object:
        copy = bytearray(batch)
        try:
            header, view = validate_produced(memoryview(copy), rules, NOW)
        except KafkaError as error:
            return error.code, error.message, getattr(error, "record_errors", None), copy
        return header, bytes(view), copy

    short = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "plain_batch", lambda *_: None)
        assert outcome() == short
