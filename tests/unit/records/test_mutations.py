"""Corrupted batches yield records or a KafkaError, and false sizes do not allocate memory."""

import contextlib
import tracemalloc
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError
from ottla.records import (
    Codec,
    ProduceRules,
    check_crc,
    decode_batch,
    decode_keys,
    encode_batch,
    iter_batches,
    read_header,
    validate_produced,
)
from ottla.records.batch import seal
from ottla.records.compaction import retain
from tests.conftest import DRAWN_EXAMPLES

from .samples import CODECS, rows_of

ROWS = [(number, b"k%d" % number, b"v" * number, [("h", b"x")] if number % 2 else []) for number in range(20)]
BATCHES = {codec: bytes(encode_batch(ROWS, codec=codec)) for codec in CODECS}
RULES = [
    ProduceRules("t"),
    ProduceRules("t", compacted=True, before_max_ms=1_000),
    ProduceRules("t", compression_type="zstd", timestamp_type="LogAppendTime"),
]
MANY = settings(max_examples=DRAWN_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _mutate(batch: bytes, data: st.DataObject) -> bytearray:
    """Overwrite, truncate or append bytes, mostly in the header, where a byte has most effect."""
    corrupted = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, 60) | st.integers(0, len(corrupted) - 1))
        byte = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        corrupted[position % len(corrupted)] = data.draw(byte)
    kind = data.draw(st.sampled_from(["keep", "keep", "keep", "cut", "add"]))
    if kind == "cut":
        del corrupted[data.draw(st.integers(0, len(corrupted) - 1)) :]
    elif kind == "add":
        corrupted += data.draw(st.binary(max_size=80))
    return corrupted


def _seal_if_possible(corrupted: bytearray) -> None:
    """Recompute the CRC, so that the CRC check does not hide the corruption."""
    if len(corrupted) >= 61 and 49 <= int.from_bytes(corrupted[8:12], "big", signed=True) <= len(corrupted) - 12:
        seal(corrupted, 0)


@MANY
@given(codec=st.sampled_from(CODECS), data=st.data())
def test_mutated_batches_yield_kafka_errors_or_records(kernel: ModuleType, codec: Codec, data: st.DataObject) -> None:
    corrupted = _mutate(BATCHES[codec], data)
    if data.draw(st.booleans()):
        _seal_if_possible(corrupted)
    for read in (
        read_header,
        decode_batch,
        decode_keys,
        lambda batch: list(iter_batches(batch)),
        lambda batch: retain(batch, 0, {3, 4}),
        lambda batch: retain(batch, 0, {3, 4}, 1 << 60),
        lambda batch: retain(batch, 0, lambda *_: True, -5),
    ):
        with contextlib.suppress(KafkaError):
            read(bytes(corrupted))


@MANY
@given(
    codec=st.sampled_from(CODECS),
    rules=st.sampled_from(RULES),
    now_ms=st.sampled_from([0, 20, 1 << 40]),
    data=st.data(),
)
def test_validated_batches_can_be_decoded(
    kernel: ModuleType, codec: Codec, rules: ProduceRules, now_ms: int, data: st.DataObject
) -> None:
    corrupted = _mutate(BATCHES[codec], data)
    _seal_if_possible(corrupted)
    try:
        header, batch = validate_produced(memoryview(corrupted), rules, now_ms)
    except KafkaError:
        return
    assert check_crc(batch, 0, len(batch))
    assert header == read_header(batch)
    if not header.is_compressed or rules.compacted:
        assert len(decode_batch(batch)) == header.record_count


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_detected(codec: Codec) -> None:
    batch = BATCHES[codec]
    for position in range(len(batch)):
        corrupted = bytearray(batch)
        corrupted[position] ^= 1 << position % 8
        try:
            header, _ = validate_produced(memoryview(corrupted), RULES[0], 0)
        except KafkaError:
            continue
        # Only the leader epoch is neither covered by the CRC nor checked: the leader sets it.
        assert 12 <= position < 16, position
        assert header.record_count == len(ROWS)
        assert rows_of(decode_batch(corrupted)) == ROWS


def test_false_sizes_allocate_no_memory(kernel: ModuleType) -> None:
    batch = bytearray(BATCHES[Codec.NONE])
    batch[23:27] = b"\x7f\xff\xff\xfe"
    batch[57:61] = b"\x7f\xff\xff\xff"
    seal(batch, 0)
    tracemalloc.start()
    try:
        for read in (decode_batch, decode_keys, lambda batch: validate_produced(memoryview(batch), RULES[0], 0)):
            with pytest.raises(KafkaError):
                read(batch)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
