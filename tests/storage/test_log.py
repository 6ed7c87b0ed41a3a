"""One log: append, read, roll, truncate and look up, as its docstrings promise."""

import queue
import random
import struct
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Files, Log, LogConfig
from ottla.log.producer_snapshot import decode_snapshot
from ottla.records import BatchProducer, encode_end_transaction_marker, iter_batches
from tests import deadlines
from tests.storage.helpers import START, ManualClock, append, batch, open_at, records, values

HOUR = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_at(str(tmp_path))


def small(tmp_path: Path, **config: object) -> Log:
    return open_at(str(tmp_path), config=LogConfig(**{"segment_bytes": 400, **config}))  # type: ignore[arg-type]


def code_of(info: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return info.value.code


def test_offsets_rise_by_the_records_of_each_batch(log: Log) -> None:
    assert append(log, batch(b"a", b"b", b"c"))[:2] == (0, 2)
    assert append(log, batch(b"d"))[:2] == (3, 3)
    assert log.log_end_offset == 4
    assert records(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_a_read_within_a_batch_begins_with_that_batch(log: Log) -> None:
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c"))
    assert [h.base_offset for _, h in iter_batches(log.read(1, 10_000, 3))] == [0, 2]


def test_reads_end_with_whole_batches_below_the_bound_and_the_size(log: Log) -> None:
    size = len(batch(b"a"))
    for _ in range(10):
        append(log, batch(b"a"))
    assert len(log.read(2, 10_000, 5)) == 3 * size
    assert len(log.read(2, 3 * size + size // 2, 10)) == 3 * size
    assert len(log.read(2, 1, 10)) == size
    assert log.read(2, 1, 10, min_one_batch=False) == b""
    assert log.read(10, 1000, 10) == b""
    assert log.read(7, 1000, 5) == b""


def test_reads_outside_of_the_log_are_refused(log: Log) -> None:
    append(log, batch(b"a"))
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as info:
            log.read(offset, 1000, 1)
        assert code_of(info) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("max_bytes", [1, 500, 3000, 1 << 20])
def test_every_record_is_read_once_whatever_the_fetch_size(tmp_path: Path, max_bytes: int) -> None:
    log = small(tmp_path, segment_bytes=20_000, index_interval_bytes=512)
    for i in range(600):
        append(log, batch(b"%d" % i, b"x" * (i % 200)))
    assert len(log.segments) > 3
    expected = [(2 * i, b"%d" % i) for i in range(600)]
    assert [pair for pair in records(log, max_bytes=max_bytes) if pair[0] % 2 == 0] == expected
    log.close()
    log = open_at(str(tmp_path), clean=True)
    assert [pair for pair in records(log, max_bytes=max_bytes) if pair[0] % 2 == 0] == expected
    assert [log.read(i, 1, 1200)[:8] for i in range(0, 1200, 7)] == [
        struct.pack(">q", i // 2 * 2) for i in range(0, 1200, 7)
    ]


def test_a_full_segment_is_rolled_and_its_index_is_on_disk(tmp_path: Path) -> None:
    log = small(tmp_path, index_interval_bytes=64)
    for _ in range(12):
        append(log, batch(b"a" * 20))
    names = sorted(path.name for path in Path(log.directory).iterdir())
    first, second = log.segments[:2]
    assert first.file.size <= 400 < first.file.size + len(batch(b"a" * 20))
    assert f"{second.base_offset:020d}.snapshot" in names
    entries = list(struct.iter_unpack(">ii", Path(first.file.path(".index")).read_bytes()))
    assert entries == [(o, o * len(batch(b"a" * 20))) for o in range(1, first.file.size // len(batch(b"a" * 20)))]
    assert list(struct.iter_unpack(">qi", Path(first.file.path(".timeindex")).read_bytes())) == [(START, 0)]


def test_a_segment_is_rolled_by_the_time_between_its_records(tmp_path: Path) -> None:
    log = small(tmp_path, segment_bytes=1 << 20, segment_ms=HOUR)
    append(log, batch(b"a", timestamp=START - 5 * HOUR))
    append(log, batch(b"b", timestamp=START - 4 * HOUR))
    assert len(log.segments) == 1
    append(log, batch(b"c", timestamp=START - 4 * HOUR + 1))
    assert len(log.segments) == 2


def test_a_segment_is_rolled_when_an_index_is_full(tmp_path: Path) -> None:
    log = small(tmp_path, segment_bytes=1 << 20, segment_index_bytes=16, index_interval_bytes=0)
    for i in range(4):
        append(log, batch(b"a", timestamp=START + i))
    assert len(log.segments) >= 2


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KafkaError) as info:
        append(small(tmp_path), batch(b"a" * 500))
    assert code_of(info) is ErrorCode.RECORD_LIST_TOO_LARGE


# Producers


def sequenced(sequence: int, *data: bytes, epoch: int = 0, producer: int = 7, **options: object) -> bytearray:
    return batch(*(data or (b"x",)), producer=BatchProducer(producer, epoch, sequence), **options)


def test_resent_batch_is_written_once_and_answered_with_its_offsets(log: Log) -> None:
    for i in range(6):
        append(log, sequenced(2 * i, b"a", b"b"))
    again = append(log, sequenced(2, b"a", b"b"))
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (2, 3)
    assert log.log_end_offset == 12


def test_sixth_last_batch_is_not_recognized_as_a_duplicate(log: Log) -> None:
    for i in range(6):
        append(log, sequenced(i))
    with pytest.raises(KafkaError) as info:
        append(log, sequenced(0))
    assert code_of(info) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_sequences_is_refused_and_nothing_is_written(log: Log) -> None:
    append(log, sequenced(0))
    with pytest.raises(KafkaError) as info:
        append(log, sequenced(2))
    assert code_of(info) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_sequences_wrap_to_zero(log: Log) -> None:
    append(log, sequenced(0x7FFFFFFE, b"a", b"b"))
    assert append(log, sequenced(0)).first_offset == 2
    append(log, sequenced(5, producer=8))
    append(log, sequenced(0x7FFFFFFF, producer=9))
    append(log, sequenced(0, b"a", b"b", producer=9))
    assert append(log, sequenced(0, b"a", b"b", producer=9)).duplicate


def test_an_unknown_producer_begins_with_any_sequence(log: Log) -> None:
    assert append(log, sequenced(41)).first_offset == 0


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(log: Log) -> None:
    append(log, sequenced(0, epoch=3))
    with pytest.raises(KafkaError) as info:
        append(log, sequenced(1, epoch=2))
    assert code_of(info) is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as info:
        append(log, sequenced(1, epoch=4))
    assert code_of(info) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequenced(0, epoch=4)).first_offset == 1


def test_a_silent_producer_is_forgotten_after_its_expiry(log: Log) -> None:
    append(log, sequenced(0))
    log.producers.expire(START + log.config.producer_id_expiration_ms)
    assert log.active_producers() == []


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_again_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = small(tmp_path)
    for i in range(9):
        append(log, sequenced(i, b"x" * 30))
    log.close() if clean else log.abandon()
    log = open_at(str(tmp_path), clean=clean)
    assert append(log, sequenced(8, b"x" * 30)).duplicate
    assert append(log, sequenced(9)).first_offset == 9
    snapshot = Path(log.directory) / f"{9:020d}.snapshot"
    if clean:
        assert [(e.producer_id, e.last_sequence) for e in decode_snapshot(snapshot.read_bytes())] == [(7, 8)]


# Transactions


def end(log: Log, *, commit: bool, producer: int = 7, epoch: int = 0) -> None:
    marker = encode_end_transaction_marker(
        commit=commit, producer_id=producer, producer_epoch=epoch, coordinator_epoch=1, timestamp_ms=START
    )
    append(log, bytearray(marker), origin="coordinator")


def transactional(sequence: int, producer: int = 7) -> bytearray:
    return sequenced(sequence, producer=producer, attributes=0x10)


def test_an_open_transaction_holds_the_last_stable_offset(log: Log) -> None:
    append(log, batch(b"a"))
    append(log, transactional(0))
    append(log, batch(b"b"))
    log.high_watermark = 3
    assert log.last_stable_offset == 1
    end(log, commit=True)
    assert log.last_stable_offset == 1
    log.high_watermark = 4
    assert log.last_stable_offset == 4
    assert log.aborted_transactions(0, 4) == []


@pytest.mark.parametrize("restart", [None, True, False])
def test_aborted_transactions_are_returned_for_their_range(tmp_path: Path, restart: bool | None) -> None:
    log = small(tmp_path)
    append(log, transactional(0, 7))
    append(log, transactional(0, 8))
    end(log, commit=False, producer=7)
    end(log, commit=False, producer=8)
    for _ in range(10):
        append(log, batch(b"x" * 40))
    append(log, transactional(1, 7))
    end(log, commit=False, producer=7)
    if restart is not None:
        log.close() if restart else log.abandon()
        log = open_at(str(tmp_path), clean=restart)
    assert [a[:4] for a in log.aborted_transactions(0, 4)] == [(7, 0, 2, 1), (8, 1, 3, 4)]
    assert [a[:3] for a in log.aborted_transactions(3, 100)] == [(8, 1, 3), (7, 14, 15)]
    assert log.aborted_transactions(5, 10) == []


@pytest.mark.parametrize("restart", [None, True, False])
@pytest.mark.parametrize("deleted", [2, 4])
def test_open_transaction_is_remembered_after_its_first_records_were_deleted(
    tmp_path: Path, restart: bool | None, deleted: int
) -> None:
    log = open_at(str(tmp_path))
    append(log, batch(b"a"))
    append(log, batch(b"b", b"c", b"d", producer=BatchProducer(7, 0, 0), attributes=0x10))
    append(log, batch(b"e"))
    log.high_watermark = 5
    log.delete_records_before(deleted)
    assert log.last_stable_offset == deleted
    if restart is not None:
        log.close() if restart else log.abandon()
        log = open_at(str(tmp_path), clean=restart, log_start_offset=deleted)
    log.high_watermark = 5
    assert log.last_stable_offset == deleted
    end(log, commit=False)
    assert [a[:3] for a in log.aborted_transactions(deleted, 6)] == [(7, 1, 5)]


def test_writing_outside_of_an_open_transaction_is_refused(log: Log) -> None:
    append(log, transactional(0))
    with pytest.raises(KafkaError) as info:
        append(log, sequenced(1))
    assert code_of(info) is ErrorCode.INVALID_TXN_STATE


# Look-ups


def test_offsets_by_timestamp(tmp_path: Path) -> None:
    log = small(tmp_path)
    for i in range(30):
        append(log, batch(b"x" * 30, b"y", timestamp=START + 10 * i), epoch=i // 10)
    assert log.offset_for_timestamp(START, 60) == (START, 0, 0)
    assert log.offset_for_timestamp(START + 101, 60) == (START + 110, 22, 1)
    assert log.offset_for_timestamp(START + 110, 60) == (START + 110, 22, 1)
    assert log.offset_for_timestamp(START + 110, 22) is None
    assert log.offset_for_timestamp(START + 291, 60) is None
    assert log.max_timestamp_offset() == (START + 290, 58, 2)
    log.high_watermark = 60
    log.delete_records_before(23)
    assert log.offset_for_timestamp(START + 110, 60) == (START + 110, 23, 1)


@pytest.mark.parametrize("seed", range(6))
def test_unordered_timestamps_are_found_after_any_change_of_the_segments(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log, written = small(tmp_path), {}
    for step in range(120):
        timestamp = START + chance.randrange(50)
        written[append(log, batch(b"x" * 30, timestamp=timestamp)).first_offset] = timestamp
        log.high_watermark = log.log_end_offset
        if step % 40 == 20:
            log.delete_records_before(chance.randrange(log.log_start_offset, log.log_end_offset))
            log.delete_old_segments(START)
        if step % 40 == 30:
            log.truncate_to(chance.randrange(log.log_end_offset - 8, log.log_end_offset))
        if step == 70:
            log.close()
            log = open_at(str(tmp_path), clean=True, config=log.config, log_start_offset=log.log_start_offset)
            assert log.learn_timestamps(1) is (len(log.segments) <= 2)
        rows = [(time, offset) for offset, time in sorted(written.items()) if offset < log.log_end_offset]
        rows = [row for row in rows if row[1] >= log.log_start_offset]
        for wanted in (START, START + 25, START + 48, START + 50):
            first = next((row for row in rows if row[0] >= wanted), None)
            found = log.offset_for_timestamp(wanted, log.log_end_offset)
            assert (found and found[:2]) == first
        kept = [time for offset, time in written.items() if log.segments[0].base_offset <= offset < log.log_end_offset]
        assert (log.max_timestamp_offset() or [None])[0] == max(kept, default=None)


def test_end_offsets_of_leader_epochs(log: Log) -> None:
    for epoch in (2, 2, 5, 7):
        append(log, batch(b"a"), epoch=epoch)
    assert log.offset_for_leader_epoch(7) == (7, 4)
    assert log.offset_for_leader_epoch(5) == (5, 3)
    assert log.offset_for_leader_epoch(4) == (2, 2)
    assert log.offset_for_leader_epoch(1) == (1, 0)
    assert log.offset_for_leader_epoch(8) == (-1, -1)
    log.close()
    assert (Path(log.directory) / "leader-epoch-checkpoint").read_text() == "0\n3\n2 0\n5 2\n7 3\n"


# Truncation


def test_deleted_records_are_unreadable_at_once_and_their_segments_deleted_by_cleanup(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_at(str(tmp_path), config=LogConfig(segment_bytes=400), clock=clock)
    for _ in range(20):
        append(log, batch(b"a" * 40))
    log.high_watermark = 15
    with pytest.raises(KafkaError) as info:
        log.delete_records_before(16)
    assert code_of(info) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(11) == 11
    with pytest.raises(KafkaError):
        log.read(10, 100, 20)
    assert log.delete_old_segments(START) == 3
    assert log.segments[0].base_offset <= 11
    assert [path for path in Path(log.directory).iterdir() if path.name.endswith(".log.deleted")]
    assert log.segments.take_due_deletions(START) == []
    clock.now += 60_000
    for path in log.segments.take_due_deletions(clock.now):
        Files().unlink(path)
    assert not [path for path in Path(log.directory).iterdir() if path.name.endswith(".deleted")]
    assert log.delete_records_before(-1) == 15


def test_retention_by_age_takes_segments_below_the_high_watermark(tmp_path: Path) -> None:
    log = small(tmp_path, retention_ms=HOUR)
    for i in range(12):
        append(log, batch(b"a" * 40, timestamp=START + i))
    log.high_watermark = 9
    count = len([s for s in log.segments[1:] if s.base_offset <= 9])
    assert log.delete_old_segments(START + 2 * HOUR) == count
    log.high_watermark = 12
    log.delete_old_segments(START + 2 * HOUR)
    assert (log.log_start_offset, log.size, len(log.segments)) == (12, 0, 1)
    assert append(log, batch(b"b")).first_offset == 12


def test_retention_by_size_retains_at_least_that_much(tmp_path: Path) -> None:
    log = small(tmp_path, retention_bytes=1000, retention_ms=-1)
    for _ in range(40):
        append(log, batch(b"a" * 40))
    log.high_watermark = 40
    log.delete_old_segments(START)
    assert 1000 <= log.size < 1400
    assert records(log)[0][0] == log.log_start_offset


@pytest.mark.parametrize("offset", [0, 1, 7, 13, 19])
def test_truncation_retains_earlier_records(tmp_path: Path, offset: int) -> None:
    log = small(tmp_path, index_interval_bytes=64)
    for i in range(20):
        append(log, sequenced(i, b"%02d" % i + b"a" * 40), epoch=i // 4)
    assert log.truncate_to(offset)
    assert records(log) == [(i, b"%02d" % i + b"a" * 40) for i in range(offset)]
    assert log.epochs.latest == ((offset - 1) // 4 if offset else -1)
    if offset:
        assert append(log, sequenced(offset - 1, b"x")).duplicate
    append(log, sequenced(offset, b"new"))
    assert values(log)[-1] == b"new"
    log.close()
    assert values(open_at(str(tmp_path), clean=True))[-1] == b"new"


# Flushes


def test_the_flush_policy_counts_records_and_time(tmp_path: Path) -> None:
    log = small(tmp_path, flush_messages=3, flush_ms=1000)
    assert not log.needs_flush(START + 5000)
    append(log, batch(b"a"))
    assert not log.needs_flush(START)
    assert log.needs_flush(START + 1000)
    append(log, batch(b"a", b"b"))
    assert log.needs_flush(START)
    assert log.flush() == 3
    assert not log.needs_flush(START + 500)


def test_a_flush_in_another_thread_does_not_disturb_appends(tmp_path: Path) -> None:
    log = small(tmp_path)
    flushes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    (flushed,) = deadlines.in_threads([lambda: [log.flush() for _ in iter(flushes.get, False)]], "flush")
    for i in range(400):
        append(log, batch(b"%d" % i))
        if i % 7 == 0:
            flushes.put(True)
    flushes.put(False)
    (ends,) = deadlines.results([flushed], "all flushes")
    assert len(ends) == 58
    assert all(0 < end <= 400 for end in ends)
    assert log.flush() == 400
    assert not log.durability.has_unsynced_segments
    assert values(log) == [b"%d" % i for i in range(400)]


def test_flush_of_a_log_deleted_meanwhile_leaves_the_directory_online(tmp_path: Path) -> None:
    log = small(tmp_path)
    append(log, batch(b"a"))
    log.abandon()
    Path(log.directory).rename(tmp_path / "elsewhere")
    assert log.flush() == 0
    assert log.log_directory.online


def test_the_descriptors_of_old_segments_are_bounded(tmp_path: Path) -> None:
    log = small(tmp_path)
    log.open_files.limit = 3
    for _ in range(60):
        append(log, batch(b"a" * 40))
    log.flush()
    assert len(records(log, max_bytes=1)) == 60
    assert sum(segment.file.fd >= 0 for segment in log.segments) <= 4
