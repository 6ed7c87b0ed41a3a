"""Compaction retains the last record of each key, and an interruption at any step loses no record."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.common.ids import TopicPartition
from ottla.log import Files, Log, LogConfig, LogManager
from ottla.log.checkpoints import CLEANER_OFFSETS, COPIES, read_offsets, write_offsets
from ottla.log.cleaner import Cleaner
from ottla.log.compaction import CleanJob, CleanResult, clean
from ottla.log.transaction_marker import FORGET_PRODUCER, TransactionEnd
from ottla.records import BatchProducer, decode_batch, encode_end_transaction_marker, iter_batches
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.storage.helpers import START, TOPIC_ID, TP, ManualClock, append, batch, open_at

DAY = 24 * 3_600_000
COMPACT = LogConfig(
    segment_bytes=500, index_interval_bytes=64, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01
)


class Here:
    """A job that is done in this process, at once."""

    def __init__(self, job: CleanJob, files: Files) -> None:
        self.result = clean(job, files)

    def poll(self) -> CleanResult:
        return self.result

    def stop(self) -> None:
        raise AssertionError("never under way")


class Failed:
    """A job that fails at once."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def poll(self) -> str:
        return self.problem

    def stop(self) -> None:
        raise AssertionError("never under way")


class House:
    """One compacted partition with its manager and cleaner."""

    def __init__(self, path: str, files: Files | None = None, config: LogConfig = COMPACT) -> None:
        self.files = files or Files()
        self.clock = ManualClock()
        if isinstance(self.files, SimulatedDisk):
            cleaned = read_offsets(self.files, path, CLEANER_OFFSETS) if self.files.is_directory(path) else {}
            self.log = open_at(path, self.files, config, self.clock, cleaned_to=cleaned.get(TP, 0))
            self.manager = _Only(self.log)
        else:
            self.manager = LogManager([path], self.clock, config, files=self.files)
            self.manager.load()
            self.log = self.manager.create(TP, TOPIC_ID)
        self.cleaner = Cleaner(self.manager, backoff_ms=0, start_work=lambda job: Here(job, self.files))  # type: ignore[arg-type]

    def put(self, key: bytes | None, value: bytes | None, **options: object) -> None:
        data = batch(b"", key=key, **options) if value is None else batch(value, key=key, **options)
        if value is None:
            data = tombstone(key, **options)
        append(self.log, data, now=self.clock.now)
        self.log.high_watermark = self.log.log_end_offset

    def clean(self) -> bool:
        """Roll, so that every record can be compacted, and clean until there is nothing to do."""
        self.log.roll(self.clock.now)
        self.log.flush()
        changed = self.cleaner.step(self.clock.now)
        return self.cleaner.step(self.clock.now) and changed

    def state(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return contents(self.log)


class _Only:
    """The part of a log manager that the cleaner needs, with one log: simulated disks have no lock file."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.futures: dict[TopicPartition, Log] = {}

    def all(self) -> list[Log]:
        return [self.log]

    def checkpoint_cleaned(self, log: Log) -> None:
        write_offsets(log.files, log.log_directory.path, CLEANER_OFFSETS, {TP: log.segments.cleaned_to}, copies=COPIES)


def tombstone(key: bytes | None, **options: object) -> bytearray:
    from ottla.records import encode_batch

    return bytearray(encode_batch([(START, key, None, [])], **options))  # type: ignore[arg-type]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that an application would see."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset)
        if not data:
            break
        for position, header in iter_batches(data):
            if not header.is_control:
                found += [(r.offset, r.key, r.value) for r in decode_batch(data, position)]
            offset = header.next_offset
    return found


def headers(log: Log) -> list[tuple[int, int, int]]:
    """Base offset, last offset and record count of every batch."""
    return [(h.base_offset, h.last_offset, h.record_count) for s in log.segments for _, _, h in s.file.batches()]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(str(tmp_path))


def last_of(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in records}


@pytest.mark.parametrize("load_factor", [float("nan"), float("inf"), -7.0, 0.0, 1.5])
def test_invalid_load_factor_means_the_default(house: House, load_factor: float) -> None:
    house.cleaner.configure(backoff_ms=0, dedupe_buffer_bytes=1_500_000, load_factor=0.9)
    usual = house.cleaner.max_keys
    house.cleaner.configure(backoff_ms=0, dedupe_buffer_bytes=1_500_000, load_factor=load_factor)
    assert house.cleaner.max_keys == usual > 1


def test_the_last_record_of_each_key_stays_at_its_offset(house: House) -> None:
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    assert house.clean()
    assert house.state() == [(i, b"k%d" % (i % 4), b"%d" % i) for i in range(36, 40)]
    assert house.log.log_end_offset == 40
    assert house.log.log_start_offset == 0
    assert len(house.log.segments) > 2
    house.put(b"k0", b"40")
    assert house.clean()
    assert [segment.base_offset for segment in house.log.segments] == [0, 41]
    assert append(house.log, batch(b"next")).first_offset == 41


def test_a_batch_keeps_its_offsets_when_some_of_its_records_go(house: House) -> None:
    append(house.log, batch(b"a", b"b", b"c", key=b"same"))
    house.put(b"other", b"x")
    assert house.clean()
    assert headers(house.log) == [(0, 2, 1), (3, 3, 1)]
    assert house.state() == [(2, b"same", b"c"), (3, b"other", b"x")]


def test_the_active_segment_and_what_is_not_committed_are_left_alone(house: House) -> None:
    for i in range(3):
        house.put(b"k", b"%d" % i)
    assert not house.cleaner.step(START)
    house.log.roll(START)
    house.log.flush()
    house.log.high_watermark = 1
    assert not house.cleaner.step(START)


def test_young_segments_wait_for_the_compaction_lag(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000)
    house = House(str(tmp_path), config=config)
    house.put(b"k", b"1")
    house.put(b"k", b"2")
    house.clock.now = START + 500
    assert not house.clean()
    house.clock.now = START + 2000
    assert house.clean()
    assert house.state() == [(1, b"k", b"2")]


def test_a_clean_log_waits_until_it_is_dirty_or_overdue(tmp_path: Path) -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=DAY, segment_ms=DAY
    )
    house = House(str(tmp_path), config=config)
    for i in range(20):
        house.put(b"%d" % i, b"x")
    assert house.clean()
    house.put(b"1", b"y")
    assert not house.clean()
    house.clock.now = START + DAY + 1
    assert house.clean()


def test_tombstones_stay_for_their_time_after_the_first_pass(house: House) -> None:
    house.put(b"k", b"1")
    house.put(b"k", None)
    house.put(b"end", b"x")
    assert house.clean()
    assert house.state() == [(1, b"k", None), (2, b"end", b"x")]
    house.clock.now += COMPACT.delete_retention_ms - 1
    house.put(b"end", b"y")
    assert house.clean()
    assert (1, b"k", None) in house.state()
    house.clock.now += 2
    house.put(b"end", b"z")
    assert house.clean()
    assert house.state() == [(4, b"end", b"z")]


def test_the_last_batch_of_a_producer_stays_though_it_is_empty(house: House) -> None:
    house.put(b"k", b"1", producer=BatchProducer(5, 0, 0))
    house.put(b"k", b"2")
    house.put(b"z", b"3")
    assert house.clean()
    assert headers(house.log) == [(0, 0, 0), (1, 1, 1), (2, 2, 1)]
    house.log.abandon()
    for path in Path(house.log.directory).glob("*.snapshot"):
        path.unlink()
    log = open_at(str(Path(house.log.directory).parent), config=COMPACT)
    assert append(log, batch(b"1", producer=BatchProducer(5, 0, 0))).duplicate


def test_aborted_records_go_at_once_and_their_marker_later(house: House) -> None:
    def end(commit: bool) -> None:
        marker = encode_end_transaction_marker(
            commit=commit, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START
        )
        append(house.log, bytearray(marker), origin="coordinator")
        house.log.high_watermark = house.log.log_end_offset

    def write(key: bytes, value: bytes, sequence: int) -> None:
        house.put(key, value, producer=BatchProducer(9, 0, sequence), attributes=0x10)

    house.put(b"a", b"good")
    write(b"a", b"aborted", 0)
    end(commit=False)
    write(b"b", b"good", 1)
    end(commit=True)
    house.put(b"c", b"x")
    assert house.clean()
    assert house.state() == [(0, b"a", b"good"), (3, b"b", b"good"), (5, b"c", b"x")]
    assert [h[0] for h in headers(house.log)] == [0, 2, 3, 4, 5]
    for _ in range(2):
        house.clock.now += COMPACT.delete_retention_ms + 1
        house.put(b"c", b"y")
        house.clean()
    assert 2 not in [h[0] for h in headers(house.log)]
    assert 4 in [h[0] for h in headers(house.log)]
    assert house.state()[:2] == [(0, b"a", b"good"), (3, b"b", b"good")]


def test_marker_that_removes_a_producer_stays(house: House) -> None:
    """Without it, a recovery would create the producer again from its batches."""
    house.put(b"a", b"theirs", producer=BatchProducer(9, 0, 0))
    end, _ = TransactionEnd(9, 0, FORGET_PRODUCER, commit=False).encode(START)
    append(house.log, end, origin="coordinator")
    for _ in range(4):
        house.put(b"b", b"x")
        house.clean()
        house.clock.now += COMPACT.delete_retention_ms + 1
    assert house.state()[0] == (0, b"a", b"theirs")
    house.log.close()
    for snapshot in Path(house.log.directory).glob("*.snapshot"):
        snapshot.unlink()
    log = open_at(str(Path(house.log.directory).parent), config=COMPACT)
    assert not log.producers.entries


def test_full_key_map_ends_the_cleaned_range(tmp_path: Path) -> None:
    house = House(str(tmp_path))
    house.cleaner.max_keys = 5
    for i in range(60):
        house.put(b"k%02d" % (i % 12), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    for _ in range(60):
        house.cleaner.step(START)
    assert last_of(house.state()) == {b"k%02d" % (i % 12): b"%d" % i for i in range(48, 60)}
    assert len(house.state()) < 60


def test_shrunken_segments_are_merged_by_the_next_pass(house: House) -> None:
    # As in Kafka, sources are grouped by the sizes that they have before the pass.
    for i in range(40):
        house.put(b"k%d" % (i % 2), b"x" * 100)
    house.clean()
    shrunk = [segment for segment in house.log.segments if segment.file.size < COMPACT.segment_bytes // 2]
    assert len(shrunk) > 5
    kept = house.state()
    house.put(b"other", b"y")
    house.clean()
    assert len(house.log.segments) == 2  # a compacted one and the active one
    assert house.state() == [*kept, (40, b"other", b"y")]
    assert all(segment.file.size <= COMPACT.segment_bytes for segment in house.log.segments)


def test_compressed_batches_are_cleaned_too(house: House) -> None:
    from ottla.records import Codec

    for codec in Codec:
        append(house.log, batch(b"1", b"2", b"3", key=b"k", codec=codec))
    house.log.high_watermark = house.log.log_end_offset
    assert house.clean()
    assert house.state() == [(14, b"k", b"3")]


def test_a_worker_process_does_the_job(tmp_path: Path) -> None:
    house = House(str(tmp_path))
    house.cleaner = Cleaner(house.manager, backoff_ms=0)
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    assert house.cleaner.step(START)
    deadline = time.monotonic() + 20
    while house.cleaner.busy and time.monotonic() < deadline:
        house.cleaner.step(START)
        time.sleep(0.02)
    assert [offset for offset, _, _ in house.state()] == [36, 37, 38, 39]
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n3\n" + 3 * "t 0 40\n"
    house.manager.close()
    manager = LogManager([str(tmp_path)], house.clock, COMPACT)
    manager.load()
    log = manager.get(TP)
    assert log is not None
    assert [offset for offset, _, _ in contents(log)] == [36, 37, 38, 39]


def test_corrupt_batch_gets_no_new_checksum_and_cleaning_is_retried(tmp_path: Path) -> None:
    house = House(str(tmp_path))
    house.cleaner = Cleaner(house.manager, backoff_ms=0)
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    path = Path(house.log.segments[1].file.path())
    good = path.read_bytes()
    place = good.index(b"10", 61)  # in a record's value: only the checksum shows the change
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])

    def clean_now() -> None:
        assert house.cleaner.step(house.clock.now)
        deadline = time.monotonic() + 20
        while house.cleaner.busy and time.monotonic() < deadline:
            house.cleaner.step(house.clock.now)
            time.sleep(0.02)

    clean_now()
    assert house.log.size > 2000, "nothing was compacted"
    assert not house.cleaner.step(house.clock.now), "it is left alone"
    path.write_bytes(good)
    house.clock.now += 600_000
    clean_now()
    assert [offset for offset, _, _ in house.state()] == [36, 37, 38, 39]


def test_segment_without_a_first_batch_does_not_stop_cleaning_of_other_logs(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=DAY)
    house = House(str(tmp_path), config=config)
    house.put(b"k", b"1")
    house.log.roll(START)
    house.log.flush()
    house.manager.close()
    path = Path(house.log.segments[0].file.path())
    path.write_bytes(bytes(100) + path.read_bytes()[100:])
    house = House(str(tmp_path), config=config)
    assert not house.cleaner.step(START + 2 * DAY)


@pytest.mark.parametrize("failed", [False, True])
def test_a_clock_that_was_set_back_does_not_put_off_cleaning(house: House, *, failed: bool) -> None:
    house.cleaner.backoff_ms = 1000
    house.clock.now += 30 * DAY
    if not failed:
        assert not house.cleaner.step(house.clock.now), "nothing to clean yet"
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    if failed:
        house.log.roll(START)
        house.log.flush()
        house.cleaner._start_work = lambda _: Failed("simulated")
        assert house.cleaner.step(house.clock.now)
        assert not house.cleaner.step(house.clock.now), "it failed"
        house.cleaner._start_work = lambda job: Here(job, house.files)
    else:
        house.log.roll(START)
        house.log.flush()
    assert not house.cleaner.step(house.clock.now), "not so soon"
    house.clock.now -= 30 * DAY
    assert house.cleaner.step(house.clock.now)
    assert house.cleaner.step(house.clock.now)
    assert [offset for offset, _, _ in house.state()] == [36, 37, 38, 39]


def test_result_for_a_truncated_log_is_discarded(house: House) -> None:
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    assert house.cleaner.step(START)
    house.log.truncate_to(12)
    assert not house.cleaner.step(START)
    assert [offset for offset, _, _ in house.state()] == list(range(12))
    assert not list(Path(house.log.directory).glob("*.cleaned"))


def test_log_is_cleaned_soon_if_retention_deleted_segments_under_the_worker(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=1_000)
    house = House(str(tmp_path), config=config)
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    outcome = "the worker ended with 1: FileNotFoundError"
    house.cleaner._start_work = lambda _: Failed(outcome)
    assert house.cleaner.step(START)
    assert house.log.delete_old_segments(START)
    assert not house.cleaner.step(START)
    house.cleaner._start_work = lambda job: Here(job, house.files)
    assert house.cleaner.step(START), "it does not wait for ten minutes"
    assert house.cleaner.step(START)
    assert [offset for offset, _, _ in house.state()] == [36, 37, 38, 39]


def test_rest_of_a_segment_is_cleaned(house: House) -> None:
    """The copy of a moved log has segments of its own, so that the last pass ended within one."""
    for i in range(4):
        house.put(b"k", b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    house.log.segments.cleaned_to = 2
    assert house.clean()
    assert [offset for offset, _, _ in house.state()] == [3]


def test_producer_snapshots_are_deleted_with_their_segments(house: House) -> None:
    for round_ in range(3):
        for i in range(40):
            house.put(b"k%d" % (i % 4), b"%d" % i, producer=BatchProducer(1, 0, 40 * round_ + i))
        assert house.clean()
        kept = {f"{segment.base_offset:020d}.snapshot" for segment in house.log.segments}
        assert {path.name for path in Path(house.log.directory).glob("*.snapshot")} <= kept
    house.manager.abandon()
    reopened = House(house.log.log_directory.path).log
    assert [producer.last_sequence for producer in reopened.active_producers()] == [119]


@pytest.mark.parametrize("seed", range(10))
def test_power_cut_after_a_cleaning_leaves_nothing_dirty_below_its_checkpoint(seed: int) -> None:
    """Otherwise a later pass may drop a tombstone and leave the records before it."""
    disk = SimulatedDisk(seed)
    house = House("/d", disk)
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    assert house.clean()
    house = House("/d", disk.crash())
    assert house.log.segments.cleaned_to == 40
    assert [offset for offset, _, _ in house.state()] == [36, 37, 38, 39]


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_at_any_moment_of_a_cleaning_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    house = House("/d", disk)
    truth: dict[bytes | None, bytes | None] = {}
    for _ in range(3):
        for i in range(30):
            key = b"k%d" % chance.randrange(6)
            truth[key] = b"%d" % i
            house.put(key, truth[key])
        house.log.roll(START)
        house.log.flush()
        disk.crash_after = chance.randrange(150)  # cleaning, and then swapping, makes 110 to 150 changes
        try:
            house.cleaner.step(START)
            house.cleaner.step(START)
            house.log.flush()
        except Crash:
            pass
        disk.crash_after = None
        end = house.log.log_end_offset
        disk = disk.crash()
        house = House("/d", disk)
        assert last_of(house.state()) == truth
        assert house.log.log_end_offset == end
        offsets = [offset for offset, _, _ in house.state()]
        assert offsets == sorted(set(offsets))
