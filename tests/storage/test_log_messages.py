"""The lines of a log and the log manager in the broker's log: stock Kafka's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.log import LogConfig, LogManager
from ottla.log.cleaner import Cleaner
from tests.storage.helpers import START, append, batch, open_at
from tests.storage.test_cleaner import Here
from tests.unit.broker.harness import ManualLoop

TP = TopicPartition("t", 0)
TOPIC_ID = b"t" * 16


class Lines:
    """The lines that were logged since the previous call."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self) -> list[str]:
        lines = [f"{record.levelname} {record.getMessage()}" for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    caplog.set_level("INFO", "ottla")
    return Lines(caplog)


def manager(directory: Path, **config: int) -> LogManager:
    return LogManager([str(directory)], ManualLoop(), LogConfig(**config))


def test_life_of_a_partition(tmp_path: Path, lines: Lines) -> None:
    logs = manager(tmp_path, file_delete_delay_ms=0)
    logs.load()
    assert lines.take() == [
        f"INFO Loading logs from log dirs {tmp_path}",
        f"INFO No logs found to be loaded in {tmp_path}",
        "INFO Loaded 0 logs in 0ms",
    ]
    log = logs.create(TP, TOPIC_ID, None, {"segment.bytes": "300", "cleanup.policy": "delete"})
    properties = "{cleanup.policy=delete, segment.bytes=300}"
    assert lines.take() == [f"INFO Created log for partition t-0 in {tmp_path}/t-0 with properties {properties}"]
    append(log, batch(b"a"))
    log.roll()
    local = f"[LocalLog partition=t-0, dir={tmp_path}/t-0]"
    assert lines.take() == [
        f"INFO {local} Rolled new log segment at offset 1 in 0 ms.",
        "INFO [ProducerStateManager partition=t-0] Wrote producer snapshot at offset 1 with 0 producer ids in 0 ms.",
    ]
    logs.close()
    assert lines.take() == ["INFO Shutting down.", "INFO Shutdown complete."]
    logs = manager(tmp_path, file_delete_delay_ms=0)
    logs.load()
    loaded = f"Log(dir={tmp_path}/t-0, partition=t-0) with 2 segments, local-log-start-offset 0 and log-end-offset 1"
    assert lines.take() == [
        f"INFO Loading logs from log dirs {tmp_path}",
        f"INFO Skipping recovery of 1 logs from {tmp_path} since clean shutdown file was found",
        f"INFO Completed load of {loaded} in 0ms (1/1 completed in {tmp_path})",
        "INFO Loaded 1 logs in 0ms",
    ]
    logs.delete([TP])
    logs.remove_deleted(START * 2)
    renamed, deleted = lines.take()
    path = re.escape(f"{tmp_path}/t-0.") + "[0-9a-f]{32}-delete"
    assert re.fullmatch(rf"INFO Log for partition t-0 is renamed to {path} and is scheduled for deletion", renamed)
    assert re.fullmatch(rf"INFO Deleted log for partition t-0 in {path}\.", deleted)
    logs.abandon()


def test_recovery_names_what_it_reads_and_cuts(tmp_path: Path, lines: Lines) -> None:
    logs = manager(tmp_path)
    log = logs.create(TP, TOPIC_ID)
    for _ in range(3):
        append(log, batch(b"a"))
    logs.abandon()
    segment = next(tmp_path.glob("t-0/*.log"))
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes()[:-5])
    lines.take()
    logs = manager(tmp_path)
    logs.load()
    found = lines.take()
    prefix = f"[LogLoader partition=t-0, dir={tmp_path}]"
    assert found[1] == f"INFO Recovering 1 logs from {tmp_path} since no clean shutdown file was found"
    assert found[2] == f"INFO {prefix} Recovering unflushed segment 0."
    cut = rf"Corruption found in segment 0, truncating to offset 2 \(\d+ of {size - 5} bytes\)"
    assert re.match(f"WARNING {re.escape(prefix)} {cut}", found[3]), found
    logs.abandon()


def retained(path: Path, config: LogConfig, lines: Lines) -> list[str]:
    """Write six segments of one batch in the first six seconds; return what retention logs at the end of the tenth."""
    log = open_at(str(path), config=LogConfig(segment_bytes=100))
    for i in range(6):
        append(log, batch(b"%03d" % i, timestamp=START + i * 1000))
    log.high_watermark = 6
    log.reconfigure(config)
    lines.take()
    log.delete_old_segments(START + 10_000)
    return [line for line in lines.take() if "Deleting" in line or "Incremented" in line]


def test_retention_names_segment_reason_and_new_start(tmp_path: Path, lines: Lines) -> None:
    prefix = f"INFO [UnifiedLog partition=t-0, dir={tmp_path}]"
    size = len(batch(b"000"))
    assert retained(tmp_path, LogConfig(retention_ms=8_500), lines) == [
        *(
            f"{prefix} Deleting segment LogSegment(baseOffset={i}, size={size},"
            f" largestRecordTimestamp={START + i * 1000}) due to log retention time 8500ms breach based on the largest"
            " record timestamp in the segment"
            for i in range(2)
        ),
        f"{prefix} Incremented log start offset to 2 due to segment deletion",
    ]


def test_retention_by_size_names_the_size_after_it(tmp_path: Path, lines: Lines) -> None:
    size = len(batch(b"000"))
    first, second, start = retained(tmp_path, LogConfig(retention_ms=-1, retention_bytes=4 * size), lines)
    reason = f"due to log retention size {4 * size} breach. Log size after deletion will be "
    assert first.endswith(f"{reason}{5 * size}.")
    assert second.endswith(f"{reason}{4 * size}.")
    assert start.endswith("Incremented log start offset to 2 due to segment deletion")


def test_deleted_records_and_their_segments_are_named(tmp_path: Path, lines: Lines) -> None:
    log = open_at(str(tmp_path), config=LogConfig(segment_bytes=100))
    for i in range(3):
        append(log, batch(b"%03d" % i))
    log.high_watermark = 3
    lines.take()
    log.delete_records_before(2)
    log.delete_old_segments(START)
    start, *deleted = lines.take()
    assert start.endswith("Incremented log start offset to 2 due to client delete records request")
    assert len(deleted) == 2
    assert all(line.endswith("due to log start offset 2 breach") for line in deleted)


def test_truncation_is_named(tmp_path: Path, lines: Lines) -> None:
    log = open_at(str(tmp_path))
    for i in range(3):
        append(log, batch(b"%03d" % i))
    lines.take()
    log.truncate_to(1)
    log.truncate_fully(7)
    prefix = f"INFO [UnifiedLog partition=t-0, dir={tmp_path}]"
    assert lines.take() == [f"{prefix} Truncating to offset 1", f"{prefix} Truncate and start at offset 7"]


def compacted(path: Path) -> tuple[LogManager, Cleaner]:
    logs = manager(path)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=200, min_cleanable_dirty_ratio=0.01)
    log = logs.create(TP, TOPIC_ID, config)
    for i in range(8):
        append(log, batch(b"%03d" % i, key=b"k"))
    log.high_watermark = 8
    log.flush()
    return logs, Cleaner(logs, backoff_ms=0, start_work=lambda job: Here(job, logs.files))


def test_compaction_names_its_start_and_its_result(tmp_path: Path, lines: Lines) -> None:
    logs, cleaner = compacted(tmp_path)
    lines.take()
    for _ in range(3):
        cleaner.step(START)
    begun, *swapped, summary = lines.take()[:5]
    assert begun == "INFO Cleaner 0: Beginning cleaning of log t-0"
    assert all(
        line.startswith("INFO Cleaner 0: Swapping in cleaned segment LogSegment(baseOffset=") for line in swapped
    )
    words = r"INFO Log cleaner thread 0 cleaned log t-0 \(dirty section = \[0, \d\]\)\. .* Start size: 0\.0 MB"
    assert re.match(words + r" \(\d messages\)\. End size: 0\.0 MB \(1 messages\)\. [\d.]+% size reduction", summary)
    logs.abandon()


def test_compaction_that_fails_marks_the_partition_uncleanable(tmp_path: Path, lines: Lines) -> None:
    logs, cleaner = compacted(tmp_path)
    segment = min(tmp_path.glob("t-0/*.log"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    lines.take()
    for _ in range(3):
        cleaner.step(START)
    (line,) = [line for line in lines.take() if line.startswith("WARNING")]
    assert line.startswith(
        f"WARNING Unexpected exception thrown when cleaning log Log(dir={tmp_path}/t-0, partition=t-0)."
        " Marking its partition (t-0) as uncleanable for 600 s: "
    )
    assert "wrong CRC" in line
    assert ErrorCode.CORRUPT_MESSAGE.name not in line
    logs.abandon()
