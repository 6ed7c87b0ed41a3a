"""Queries for a timestamp in segments larger than one read: they use the time index and verify its entries."""

import os
import random
from pathlib import Path

import pytest

from ottla.log import Log, LogConfig
from tests.storage.helpers import START, append, batch, open_at

EVERY_BATCH = LogConfig(index_interval_bytes=0, segment_bytes=1 << 20)


def filled(tmp_path: Path, seed: int) -> tuple[Log, dict[int, int]]:
    """Reopen a log after a clean stop. Return it with the timestamp of each offset; timestamps do not increase."""
    chance = random.Random(seed)
    log, written = open_at(str(tmp_path), config=EVERY_BATCH), {}
    for _ in range(6):
        # No two are equal in a segment, so a wrong entry of the time index is noticed.
        first = START + chance.randrange(600)
        for timestamp in chance.sample(range(first, first + 500), chance.choice([2, 12, 400])):
            data = batch(b"x" * chance.randrange(10, 3000), timestamp=timestamp)
            written[append(log, data).first_offset] = timestamp
        log.roll()
    log.close()
    return reopened(tmp_path, log), written


def reopened(tmp_path: Path, log: Log) -> Log:
    return open_at(str(tmp_path), clean=True, config=log.config, recovery_point=log.log_end_offset)


def check(log: Log, written: dict[int, int]) -> None:
    for wanted in range(START - 1, START + 1101, 37):
        first = next(((time, offset) for offset, time in written.items() if time >= wanted), None)
        found = log.offset_for_timestamp(wanted, log.log_end_offset)
        assert (found and found[:2]) == first, wanted - START
    greatest = max(written.values())
    assert log.max_timestamp_offset() == (greatest, next(o for o, time in written.items() if time == greatest), 0)


@pytest.mark.parametrize("seed", range(6))
def test_unordered_timestamps_are_found_in_segments_of_any_size(tmp_path: Path, seed: int) -> None:
    check(*filled(tmp_path, seed))


@pytest.mark.parametrize("kind", [".timeindex", ".index"])
@pytest.mark.parametrize("seed", range(int(os.environ.get("OTTLA_SEEDS", "6"))))
def test_corrupt_index_entry_costs_no_record(tmp_path: Path, seed: int, kind: str) -> None:
    log, written = filled(tmp_path, seed)
    log.close()
    chance = random.Random(seed)
    size = 12 if kind == ".timeindex" else 8
    for segment in log.segments[:-1]:
        path = Path(segment.file.path(kind))
        data = bytearray(path.read_bytes())
        if data:
            reach = chance.choice([size, len(data)])
            data[len(data) - 1 - chance.randrange(reach)] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
    check(reopened(tmp_path, log), written)


def test_readers_keep_their_descriptors_and_none_is_added(tmp_path: Path) -> None:
    log, written = filled(tmp_path, 1)
    read = log.segments[2]
    log.read(read.base_offset, 1, log.log_end_offset)
    assert log.learn_timestamps(len(log.segments))
    assert [segment for segment in log.segments if segment.file.fd >= 0] == [read, log.segments.active]
    check(log, written)
