"""Files of a log that are derived from its segments are deleted, while the broker runs or between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log import Files, Log, LogConfig
from ottla.log.checkpoints import LEADER_EPOCHS
from ottla.log.open_files import OpenFiles
from ottla.records import BatchProducer, encode_batch
from tests.chaos.support import create_topic
from tests.clients import wire
from tests.ottla_process import ForkedOttla
from tests.storage.helpers import START, append, batch, open_at, values
from tests.storage.test_log import end

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=0)
DERIVED = ["*.index", "*.timeindex", "*.txnindex", "*.snapshot", LEADER_EPOCHS]
COUNT = 60
TRANSACTIONAL = 0x10


def fill(log: Log) -> list[bytes | None]:
    """Records of three leader epochs, in ten segments; the records of producer 7 are aborted in each of them."""
    written: list[bytes | None] = []
    for number in range(COUNT):
        value = b"%04d" % number + bytes(100)
        epoch = number * 3 // COUNT
        if number % 5 == 3:
            data = bytearray(
                encode_batch(
                    [(START + number, b"k", value, ())],
                    producer=BatchProducer(7, 0, number // 5),
                    attributes=TRANSACTIONAL,
                )
            )
            append(log, data, epoch)
            end(log, commit=False, producer=7)
        else:
            append(log, batch(value, timestamp=START + number), epoch)
        written.append(value)
    log.high_watermark = log.log_end_offset
    return written


def answers(log: Log) -> object:
    """The results of all look-ups in a log, besides its records."""
    upper = log.log_end_offset
    return (
        [log.offset_for_timestamp(START + number, upper) for number in range(COUNT)],
        log.max_timestamp_offset(),
        [transaction[:3] for transaction in log.aborted_transactions(0, upper)],
        [log.offset_for_leader_epoch(epoch) for epoch in range(4)],
        [bytes(log.read(offset, 200, upper)) for offset in range(0, upper, 7)],
    )


def remove(path: Path, pattern: str) -> int:
    found = list(path.glob(f"t-0/{pattern}"))
    for each in found:
        each.unlink()
    return len(found)


@pytest.mark.parametrize("pattern", DERIVED)
def test_file_that_vanishes_while_the_broker_runs_is_rebuilt(tmp_path: Path, pattern: str) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    written = fill(log)
    log.flush()
    expected = answers(log)
    log.close()
    # A broker that has not opened most of its segments yet.
    log = open_at(str(tmp_path), config=SMALL, open_files=OpenFiles(2), clean=True, high_watermark=log.log_end_offset)
    assert remove(tmp_path, pattern)
    assert answers(log) == expected
    assert values(log)[: len(written)] != []
    assert log.log_directory.online
    more = b"more" + bytes(100)
    for _ in range(30):
        append(log, batch(more), 2)
    log.flush()
    assert log.log_directory.online
    log.high_watermark = log.log_end_offset
    expected = answers(log)
    log.close()
    again = open_at(str(tmp_path), config=SMALL, clean=True, high_watermark=log.log_end_offset)
    assert answers(again) == expected
    assert values(again)[-1] == more


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("pattern", [each for each in DERIVED if each != "*.txnindex"])
def test_file_that_vanishes_between_two_runs_is_rebuilt(tmp_path: Path, pattern: str, clean: bool) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log)
    expected = answers(log)
    log.close()
    assert remove(tmp_path, pattern)
    again = open_at(str(tmp_path), config=SMALL, clean=clean, high_watermark=log.log_end_offset)
    assert answers(again) == expected
    assert again.log_directory.online


def test_index_deleted_during_appends_is_complete_when_its_segment_is_sealed(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=0)
    log = open_at(str(tmp_path), config=config)
    for number in range(1500):
        append(log, batch(b"%04d" % number, timestamp=START + number))
        if number == 1300:
            assert remove(tmp_path, "*.index") == remove(tmp_path, "*.timeindex") == 1
    sealed = log.segments.active
    log.roll()
    # The first batch has no entry, since no bytes precede it.
    assert sealed.indices.offsets.entries == 1499
    assert sealed.indices.times.lookup(START + 700) == (START + 700, 700)
    assert sealed.indices.offsets.lookup(5) > 0


def test_deleted_index_takes_no_directory_offline(tmp_path: Path) -> None:
    """Read beyond the index of each segment. A missing index once took the log directory offline."""
    with ForkedOttla(tmp_path) as process:
        create_topic(process, "t", segment_bytes=1 << 20)
        with wire.Connection(process.bootstrap) as connection:
            for _ in range(60):
                assert wire.produce(connection, "t", wire.batch([bytes(100_000)], timestamp=START)).error == 0
            for kind in ("index", "timeindex"):
                assert remove(tmp_path / "data", f"*.{kind}")
            for offset in range(60):
                assert wire.fetch(connection, "t", 0, offset, max_bytes=200_000)[0] == 0
        assert "is offline" not in process.log_tail()
        process.assert_no_traceback()


def test_segments_that_were_recovered_are_not_read_again_for_their_epochs(tmp_path: Path) -> None:
    class CountingFiles(Files):
        read_bytes = 0

        def pread(self, fd: int, size: int, position: int) -> bytes:
            self.read_bytes += size
            return super().pread(fd, size, position)

    config = LogConfig(segment_bytes=100_000)
    log = open_at(str(tmp_path), config=config)
    for number in range(300):
        append(log, batch(bytes(1000)), number // 100)
    log.abandon()
    assert not list(tmp_path.glob(f"t-0/{LEADER_EPOCHS}")), "it is written by the first flush"
    files = CountingFiles()
    again = open_at(str(tmp_path), files, config=config)
    assert again.epochs.latest == 2
    assert files.read_bytes < 1.5 * again.size
