"""A follower's log gets the leader's batches byte for byte, with everything that is derived from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig
from ottla.log.follower import append_as_follower
from ottla.log.transaction_marker import TransactionEnd
from ottla.records import BatchProducer
from tests.simulation.world.disk import SimulatedDisk
from tests.storage.helpers import START, append, batch, open_at, records, values

EPOCH = 9


def fetched(leader: Log, offset: int, max_bytes: int = 1 << 20) -> bytes:
    return bytes(leader.read(offset, max_bytes, leader.log_end_offset))


def copy(leader: Log, follower: Log, max_bytes: int = 1 << 20) -> None:
    """Fetch until the follower has everything."""
    while follower.log_end_offset < leader.log_end_offset:
        data = fetched(leader, follower.log_end_offset, max_bytes)
        assert append_as_follower(follower, data, EPOCH, START) == len(data)


def files_of(log: Log) -> bytes:
    return b"".join(segment.file.files.read(segment.file.path()) for segment in log.segments)


@pytest.fixture
def leader(tmp_path: Path) -> Log:
    return open_at(f"{tmp_path}/leader", config=LogConfig(segment_bytes=1000))


@pytest.fixture
def follower(tmp_path: Path) -> Log:
    return open_at(f"{tmp_path}/follower", config=LogConfig(segment_bytes=1000))


def transactional(sequence: int, value: bytes, producer_id: int = 7) -> bytearray:
    return batch(value, producer=BatchProducer(producer_id, 0, sequence), attributes=0x10)


def marker(*, commit: bool, producer_id: int = 7) -> bytearray:
    return TransactionEnd(producer_id, 0, 3, commit).encode(START)[0]


def test_batches_epochs_and_segments_are_the_leaders(leader: Log, follower: Log) -> None:
    for number in range(60):
        append(leader, batch(b"value %d" % number, b"more", timestamp=START + number), epoch=number // 20)
    copy(leader, follower, max_bytes=300)
    assert records(follower) == records(leader)
    assert files_of(follower) == files_of(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.latest_epoch == 2
    assert len(follower.segments) == len(leader.segments) > 3
    assert follower.offset_for_timestamp(START + 30, 120) == leader.offset_for_timestamp(START + 30, 120)


@pytest.mark.parametrize("restart", [False, True])
def test_transactions_and_producers_are_the_leaders(leader: Log, follower: Log, restart: bool, tmp_path: Path) -> None:
    append(leader, transactional(0, b"aborted"))
    append(leader, transactional(0, b"open", producer_id=8))
    append(leader, marker(commit=False), origin="coordinator")
    append(leader, transactional(1, b"committed"))
    append(leader, marker(commit=True), origin="coordinator")
    copy(leader, follower)
    if restart:
        follower.close()
        follower = open_at(f"{tmp_path}/follower", clean=True, high_watermark=5)
    leader.high_watermark = follower.high_watermark = 5
    assert follower.last_stable_offset == leader.last_stable_offset == 1
    assert follower.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5) != []
    assert follower.producers.entries[7].batches == leader.producers.entries[7].batches
    assert follower.producers.entries[8].transaction_start == 1
    resent = append(follower, transactional(1, b"committed"), epoch=EPOCH)
    assert (resent.duplicate, resent.first_offset) == (True, 3)


def test_batches_of_a_later_epoch_are_skipped(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a"), epoch=1)
    append(leader, batch(b"b"), epoch=2)
    append_as_follower(follower, fetched(leader, 0), 1, START)
    assert values(follower) == [b"a"]
    assert follower.latest_epoch == 1


def test_batch_that_was_fetched_twice_is_appended_once(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a"))
    data = fetched(leader, 0)
    append_as_follower(follower, data, EPOCH, START)
    append(leader, batch(b"b"))
    append_as_follower(follower, fetched(leader, 0), EPOCH, START)
    assert append_as_follower(follower, data, EPOCH, START) == 0
    assert values(follower) == [b"a", b"b"]


def test_incomplete_batch_at_the_end_is_skipped(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a"))
    append(leader, batch(b"b"))
    append_as_follower(follower, fetched(leader, 0)[:-1], EPOCH, START)
    assert values(follower) == [b"a"]


def test_corrupt_batch_is_not_appended(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a"))
    append(leader, batch(b"b"))
    data = bytearray(fetched(leader, 0))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as raised:
        append_as_follower(follower, data, EPOCH, START)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert values(follower) == [b"a"]


def test_gap_of_a_compacted_leader_is_replicated(leader: Log, follower: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(leader, batch(value))
    append_as_follower(follower, fetched(leader, 0, 80), EPOCH, START)
    append_as_follower(follower, fetched(leader, 2), EPOCH, START)
    assert records(follower) == [(0, b"a"), (2, b"c")]


def test_log_start_inside_of_a_batch_is_replicated(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a", b"b", b"c"))
    append(leader, batch(b"d"))
    leader.high_watermark = 4
    leader.delete_records_before(2)
    follower.truncate_fully(2)
    copy(leader, follower)
    assert records(follower) == [(2, b"c"), (3, b"d")]
    assert (follower.log_start_offset, follower.segments[0].base_offset) == (2, 0)


def test_batch_that_overlaps_the_log_is_rejected(leader: Log, follower: Log) -> None:
    append(leader, batch(b"a", b"b"))
    append_as_follower(follower, bytes(fetched(leader, 0)), EPOCH, START)
    other = batch(b"x", b"y", b"z")
    other[:8] = (1).to_bytes(8, "big")
    with pytest.raises(KafkaError) as raised:
        append_as_follower(follower, other, EPOCH, START)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.log_end_offset == 2


@pytest.mark.parametrize("seed", range(100))
def test_power_cut_after_a_truncation_leaves_a_prefix_of_the_written_records(leader: Log, seed: int) -> None:
    """Truncated records may come back, but never behind records that were appended after the truncation."""
    disk = SimulatedDisk(seed)
    log = open_at("/logs", files=disk)
    for number in range(8):
        append(log, batch(b"old %d" % number), epoch=1)
    log.flush()
    log.truncate_to(4)
    for number in range(4):
        append(leader, batch(b"old %d" % number), epoch=1)
    for number in range(4, 6):
        append(leader, batch(b"new %d" % number), epoch=2)
    append_as_follower(log, fetched(leader, 4), EPOCH, START)
    recovery_point = log.flushed_offset
    assert recovery_point == 4
    log = open_at("/logs", files=disk.crash(), recovery_point=recovery_point)
    old, new = [b"old %d" % number for number in range(8)], values(leader)
    assert values(log) in [old[:end] for end in range(4, 9)] + [new[:end] for end in range(4, 7)]
