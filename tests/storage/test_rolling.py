"""`RollPolicy`: segment.bytes, segment.ms, its jitter, and full indices."""

from pathlib import Path

import pytest

from ottla.log import LogConfig
from ottla.log.rolling import RollPolicy
from ottla.log.segment import INT32_MAX
from tests.storage.helpers import START
from tests.storage.parts import context_at, segment_list, write

HOUR_MS = 3_600_000


def due(
    path: Path, records: int, size: int = 1, last: int = 1, timestamp: int = START, now: int = START, **config: int
) -> bool:
    segments = segment_list(context_at(str(path)))
    write(segments, records)
    return RollPolicy(LogConfig(**config), "t-0").is_due(segments.active, size, last, timestamp, now)  # type: ignore[arg-type]


def test_segment_rolls_when_the_batch_does_not_fit(tmp_path: Path) -> None:
    assert not due(tmp_path, 0, size=1000, segment_bytes=1000)
    assert due(tmp_path, 1, size=1000, segment_bytes=1000)


def test_segment_rolls_when_the_offset_exceeds_its_index(tmp_path: Path) -> None:
    assert not due(tmp_path, 1, last=INT32_MAX)
    assert due(tmp_path, 0, last=INT32_MAX + 1)


@pytest.mark.parametrize(("elapsed_ms", "rolls"), [(HOUR_MS, False), (HOUR_MS + 1, True)])
def test_segment_rolls_by_the_timestamps_of_its_batches(tmp_path: Path, elapsed_ms: int, rolls: bool) -> None:
    assert due(tmp_path, 1, timestamp=START + elapsed_ms, now=START, segment_ms=HOUR_MS) is rolls
    assert not due(tmp_path, 1, timestamp=START, now=START + elapsed_ms, segment_ms=HOUR_MS)


def test_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)))
    write(segments)
    segments.active.indices.first_timestamp = -1
    policy = RollPolicy(LogConfig(segment_ms=HOUR_MS), "t-0")
    assert not policy.is_due(segments.active, 1, 1, -1, START + HOUR_MS)
    assert policy.is_due(segments.active, 1, 1, -1, START + HOUR_MS + 1)


def test_empty_segment_does_not_roll_by_time(tmp_path: Path) -> None:
    assert not due(tmp_path, 0, timestamp=START + 10 * HOUR_MS, now=START + 10 * HOUR_MS, segment_ms=HOUR_MS)


def test_jitter_shortens_the_time_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)))
    write(segments)

    def rolls_at(name: str) -> int:
        policy = RollPolicy(LogConfig(segment_ms=1000, segment_jitter_ms=1000), name)
        return next(ms for ms in range(1002) if policy.is_due(segments.active, 1, 1, START + ms, START))

    times = [rolls_at(f"t-{i}") for i in range(5)]
    assert times == [rolls_at(f"t-{i}") for i in range(5)]
    assert len(set(times)) > 1


def test_compacted_topic_rolls_for_its_compaction_deadline(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)))
    write(segments)
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=500)
    assert RollPolicy(compacted, "t-0").is_due(segments.active, 1, 1, START + 501, START)


def test_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)), index_interval_bytes=0)
    write(segments, 4)
    assert not RollPolicy(LogConfig(segment_index_bytes=1024), "t-0").is_due(segments.active, 1, 4, START, START)
    assert RollPolicy(LogConfig(segment_index_bytes=24), "t-0").is_due(segments.active, 1, 4, START, START)
