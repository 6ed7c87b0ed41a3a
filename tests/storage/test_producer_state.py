"""`ProducerState`: which batches are admitted, what is recorded, and what snapshots retain. KIP-98, KIP-360."""

from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import AbortedTransaction, Files
from ottla.log.producer_entry import ProducerEntry, WrittenBatch
from ottla.log.producer_recovery import find_aborted, replay_producers
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.log.producer_state import ProducerState
from ottla.log.transaction_marker import Marker, read_marker
from ottla.records import BatchProducer, encode_end_transaction_marker, read_header
from ottla.records.batch import TRANSACTIONAL
from tests.storage.helpers import START, TP, batch
from tests.storage.parts import context_at, segment_list

DAY_MS = 24 * 3600 * 1000
MAX_SEQUENCE = 0x7FFFFFFF


@pytest.fixture
def state(tmp_path: Path) -> ProducerState:
    return ProducerState(Files(), str(tmp_path), DAY_MS)


def data(
    sequence: int, records: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
) -> bytearray:
    attributes = TRANSACTIONAL if transactional else 0
    return batch(
        *[b"v"] * records,
        producer=BatchProducer(producer, epoch, sequence),
        attributes=attributes,
    )


def marker(*, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    return bytearray(
        encode_end_transaction_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=START,
        )
    )


def send(
    state: ProducerState, buffer: bytearray, offset: int, aborted: list[AbortedTransaction] | None = None, *,
    origin: str = "client",
) -> WrittenBatch | None:  # fmt: skip
    """Admit a batch and record it. Return the batch of which it is a duplicate, if there is one."""
    header = read_header(buffer)
    admitted = state.admit(buffer, header, origin, TP)  # type: ignore[arg-type]
    if isinstance(admitted, WrittenBatch):
        return admitted
    state.record(header, admitted, offset, aborted)
    return None


def refused(state: ProducerState, buffer: bytearray, origin: str = "client") -> ErrorCode:
    with pytest.raises(KafkaError) as info:
        send(state, buffer, 100, origin=origin)
    return ErrorCode(info.value.code)


# Sequences and epochs


def test_unknown_producer_may_begin_with_any_sequence(state: ProducerState) -> None:
    send(state, data(41), 0)
    assert state.entries[7].last_sequence == 41


def test_gap_in_sequences_is_refused(state: ProducerState) -> None:
    send(state, data(0, 3), 0)
    assert refused(state, data(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(state, data(3), 3)
    assert state.entries[7].last_sequence == 3


def test_sequence_wraps_to_zero(state: ProducerState) -> None:
    send(state, data(MAX_SEQUENCE), 0)
    send(state, data(0), 1)
    assert refused(state, data(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_whose_sequences_wrap_is_a_duplicate_when_resent(state: ProducerState) -> None:
    send(state, data(MAX_SEQUENCE - 1, 4), 10)
    again = send(state, data(MAX_SEQUENCE - 1, 4), 100)
    assert again is not None
    assert (again.first_offset, again.last_offset, again.first_sequence) == (10, 13, MAX_SEQUENCE - 1)


def test_last_five_batches_are_duplicates_when_resent(state: ProducerState) -> None:
    for i in range(6):
        send(state, data(i), i)
    assert refused(state, data(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for i in range(1, 6):
        again = send(state, data(i), 100)
        assert again is not None
        assert again.first_offset == i


def test_part_of_a_batch_is_not_a_duplicate(state: ProducerState) -> None:
    send(state, data(0, 3), 0)
    assert refused(state, data(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_new_epoch_begins_with_sequence_zero(state: ProducerState) -> None:
    send(state, data(5), 0)
    assert refused(state, data(6, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(state, data(0, epoch=1), 1)
    assert (state.entries[7].epoch, len(state.entries[7].batches)) == (1, 1)


def test_old_epoch_is_fenced(state: ProducerState) -> None:
    send(state, data(0, epoch=2), 0)
    assert refused(state, data(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("origin", ["coordinator", "replication"])
def test_only_clients_are_checked_for_sequences(state: ProducerState, origin: str) -> None:
    send(state, data(0), 0)
    assert send(state, data(0), 1, origin=origin) is None
    assert send(state, data(9), 2, origin=origin) is None
    assert refused(state, data(1, epoch=-1), origin) == ErrorCode.INVALID_PRODUCER_EPOCH


# Transactions


def test_open_transaction_holds_the_first_unstable_offset(state: ProducerState) -> None:
    assert state.first_unstable_offset is None
    send(state, data(0, transactional=True), 10)
    send(state, data(1, transactional=True), 11)
    send(state, data(0, transactional=True, producer=8), 12)
    assert state.first_unstable_offset == 10
    send(state, marker(commit=True), 13)
    assert state.first_unstable_offset == 10, "until the marker is below the high watermark"
    state.on_high_watermark(13)
    assert state.first_unstable_offset == 10
    state.on_high_watermark(14)
    assert state.first_unstable_offset == 12


def test_batch_outside_of_an_open_transaction_is_refused(state: ProducerState) -> None:
    send(state, data(0, transactional=True), 0)
    assert refused(state, data(1)) == ErrorCode.INVALID_TXN_STATE


def test_aborted_transaction_is_listed_with_its_last_stable_offset(state: ProducerState) -> None:
    aborted: list[AbortedTransaction] = []
    send(state, data(0, transactional=True), 0, aborted)
    send(state, data(0, transactional=True, producer=8), 1, aborted)
    send(state, marker(commit=False), 2, aborted)
    send(state, marker(commit=False, producer=8), 3, aborted)
    assert aborted == [AbortedTransaction(7, 0, 2, 1), AbortedTransaction(8, 1, 3, 4)]


def test_aborted_transaction_is_listed_before_readers_may_pass_it(state: ProducerState) -> None:
    class Index:
        seen: int | None = None

        def append(self, transaction: AbortedTransaction) -> None:
            self.seen = state.first_unstable_offset
            raise OSError(28, "simulated")

    index = Index()
    send(state, data(0, transactional=True), 5)
    buffer = marker(commit=False)
    with pytest.raises(OSError, match="simulated"):
        state.record(read_header(buffer), read_marker(buffer, 0), 6, index)
    assert index.seen == 5
    state.on_high_watermark(100)
    assert state.first_unstable_offset == 5


def test_committed_transaction_is_not_listed(state: ProducerState) -> None:
    aborted: list[AbortedTransaction] = []
    send(state, data(0, transactional=True), 0, aborted)
    send(state, marker(commit=True), 1, aborted)
    assert aborted == []


def test_marker_without_a_transaction_is_recorded_only_for_its_epochs(state: ProducerState) -> None:
    aborted: list[AbortedTransaction] = []
    send(state, marker(commit=False, epoch=3, coordinator_epoch=4), 0, aborted)
    assert (state.entries[7].epoch, state.entries[7].coordinator_epoch, aborted) == (3, 4, [])
    assert state.first_unstable_offset is None


def test_marker_of_an_old_coordinator_or_epoch_is_fenced(state: ProducerState) -> None:
    send(state, marker(commit=True, epoch=3, coordinator_epoch=4), 0)
    assert refused(state, marker(commit=True, epoch=3, coordinator_epoch=3)) == (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    assert refused(state, marker(commit=True, epoch=2, coordinator_epoch=4)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_is_read_and_other_control_records_are_not(state: ProducerState) -> None:
    assert read_marker(marker(commit=False, coordinator_epoch=9), 0) == Marker(True, 9, START)
    assert read_marker(batch(b"v", key=b"\0\0\0\x02"), 0) is None
    with pytest.raises(KafkaError, match="too short"):
        read_marker(batch(b"v", key=b"\0"), 0)


# Expiry and snapshots


def test_silent_producers_expire_unless_their_transaction_is_open(state: ProducerState) -> None:
    send(state, data(0), 0)
    send(state, data(0, producer=8, transactional=True), 1)
    state.expire(START + DAY_MS - 1)
    assert set(state.entries) == {7, 8}
    state.expire(START + DAY_MS)
    assert set(state.entries) == {8}


def test_snapshot_retains_the_last_batches_and_the_open_transaction(state: ProducerState, tmp_path: Path) -> None:
    for i in range(7):
        send(state, data(i), i)
    send(state, data(0, producer=8, transactional=True), 7)
    assert state.take_snapshot(8) == str(tmp_path / f"{8:020d}.snapshot")
    assert state.take_snapshot(8) is None, "the newest snapshot is as recent"
    again = ProducerState(Files(), str(tmp_path), DAY_MS)
    again.snapshots = [8]
    again.load_newest(0, START)
    assert again.entries[7].batches == state.entries[7].batches
    assert (again.first_unstable_offset, again.end_offset, again.snapshot_offset) == (7, 8, 8)


def test_unreadable_snapshots_are_deleted_and_an_older_one_is_used(state: ProducerState, tmp_path: Path) -> None:
    send(state, data(0), 0)
    state.take_snapshot(1)
    send(state, data(1), 1)
    newest = state.take_snapshot(2)
    assert newest is not None
    Path(newest).write_bytes(Path(newest).read_bytes()[:-1])
    state.snapshots.append(3)
    state.load_newest(0, START)
    assert (state.snapshots, state.end_offset, state.entries[7].last_sequence) == ([1], 1, 0)
    assert not Path(newest).exists()


def test_state_is_empty_without_a_snapshot(state: ProducerState) -> None:
    send(state, data(0), 0)
    state.load_newest(5, START)
    assert (state.entries, state.end_offset, state.snapshot_offset) == ({}, 5, 5)


def test_snapshots_of_no_segment_are_deleted_except_the_newest(state: ProducerState, tmp_path: Path) -> None:
    for offset in (2, 4, 6, 8):
        state.take_snapshot(offset)
    state.retain_snapshots({0, 4})
    assert state.snapshots == [4, 8]
    assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == [4, 8]
    state.drop_snapshots_above(4)
    assert state.snapshots == [4]
    state.restart_at(100)
    assert (state.snapshots, state.end_offset, list(tmp_path.glob("*.snapshot"))) == ([], 100, [])


def test_every_changed_byte_of_a_snapshot_is_detected() -> None:
    entry = ProducerEntry(7, 1)
    entry.batches.append(WrittenBatch(3, 30, 2, START))
    entry.last_timestamp = START
    content = encode_snapshot({7: entry})
    (decoded,) = decode_snapshot(content)
    assert (decoded.producer_id, decoded.epoch, decoded.batches) == (7, 1, entry.batches)
    for i in range(len(content)):
        changed = bytearray(content)
        changed[i] ^= 1
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(changed))
    for size in range(len(content)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(content[:size])


# Replay


def test_replay_reads_only_what_the_state_lacks(tmp_path: Path) -> None:
    context = context_at(str(tmp_path))
    segments = segment_list(context)
    state = ProducerState(context.files, context.path, DAY_MS)
    for i in range(6):
        buffer = data(i, transactional=i >= 4)
        buffer[:8] = i.to_bytes(8, "big")
        segments.append(buffer, i, START)
        if i % 2:
            segments.roll(START, None)
    replay_producers(segments, state, 3)
    assert (state.end_offset, state.entries[7].last_sequence) == (3, 2)
    Path(segments[0].file.path()).unlink()
    segments[0].file.close_file()
    replay_producers(segments, state, 6)
    assert (state.end_offset, state.entries[7].last_sequence, state.first_unstable_offset) == (6, 5, 4)


def test_aborted_transactions_are_found_across_segments(tmp_path: Path) -> None:
    context = context_at(str(tmp_path))
    segments = segment_list(context)
    for offset, buffer in enumerate([data(0, transactional=True), marker(commit=False)]):
        buffer[:8] = offset.to_bytes(8, "big")
        segments.append(buffer, offset, START)
        segments.roll(START, None)
    state = ProducerState(context.files, context.path, DAY_MS)
    assert find_aborted(segments[:2], state) == [AbortedTransaction(7, 0, 1, 2)]


def test_corrupt_segment_does_not_stop_a_replay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = context_at(str(tmp_path))
    segments = segment_list(context)
    for offset in range(3):
        buffer = data(offset)
        buffer[:8] = offset.to_bytes(8, "big")
        segments.append(buffer, offset, START)
        segments.roll(START, None)
    path = Path(segments[0].file.path())
    path.write_bytes(b"\xff" * path.stat().st_size)
    state = ProducerState(context.files, context.path, DAY_MS)
    replay_producers(segments, state, 3)
    assert (state.end_offset, state.entries[7].last_sequence) == (3, 2)
    assert "Producer state in the rest of" in caplog.text
