"""A valid but unusual directory: whatever happens to it, each record that could be read before is read afterwards.

The directories are written as files, as stock Kafka, an older version or another disk may have left them. Each goes
through each history; the batches that a reader gets must be the same bytes as before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Files, Log, LogConfig, LogManager
from ottla.log.checkpoints import LEADER_EPOCHS, format_lines
from ottla.log.follower import append_as_follower, restart_at
from ottla.log.moves import LogMoves
from ottla.log.open_files import OpenFiles
from ottla.log.segment import Segment
from ottla.log.segment_file import file_name
from ottla.log.transaction_marker import TransactionEnd
from ottla.records import BatchProducer, encode_empty_batch, iter_batches, patch, read_header
from tests.storage.helpers import START, TP, ManualClock, batch, open_at
from tests.storage.test_moves import complete, other_directory

DELETE = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
COMPACT = LogConfig(segment_bytes=1000, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
EPOCH = 9


def at(offset: int, *, count: int = 2, epoch: int = 3, timestamp: int = START, **more: object) -> bytes:
    """A batch at an offset."""
    values = [b"value %d" % (offset + i) for i in range(count)]
    made = batch(*values, key=b"key %d" % (offset % 3), timestamp=timestamp, **more)
    patch(made, 0, offset, epoch)
    return bytes(made)


def marker(offset: int, *, commit: bool) -> bytes:
    made = TransactionEnd(7, 0, 0, commit).encode(START)[0]
    patch(made, 0, offset, 3)
    return bytes(made)


def empty(offset: int) -> bytes:
    """The batch that compaction leaves of the last batch of a producer."""
    return bytes(encode_empty_batch(read_header(at(offset, producer=BatchProducer(5, 0, 0)))))


def transactional(offset: int, sequence: int) -> bytes:
    return at(offset, producer=BatchProducer(7, 0, sequence), attributes=0x10)


class Kind(NamedTuple):
    """The batches of each segment, by its base offset; where the log starts; what is in leader-epoch-checkpoint."""

    segments: dict[int, list[bytes]]
    start: int = 0
    epochs: tuple[tuple[int, int], ...] | None = None


FAR = 2_000_000_000
KINDS = {
    "plain": Kind({0: [at(0), at(2), at(4)], 6: [at(6), at(8)], 10: [at(10), at(12), at(14)]}),
    "gaps within segments": Kind({0: [at(0), at(4)], 6: [at(6), at(8)], 10: [at(10), at(14)]}),
    "gaps at the ends of segments": Kind({0: [at(0), at(2)], 6: [at(6)], 10: [at(10), at(14)]}),
    "gaps at the starts of segments": Kind({0: [at(2), at(4)], 6: [at(8)], 10: [at(12), at(14)]}),
    "gaps between single records": Kind(
        {0: [at(0, count=1), at(5, count=1)], 9: [at(11, count=1)], 13: [at(15, count=1)]}
    ),
    "huge gaps": Kind({0: [at(0), at(FAR)], FAR + 2: [at(3 * FAR // 2)], 2 * FAR: [at(3 * FAR)], 3 * FAR + 9: []}),
    "an empty segment in the middle": Kind({0: [at(0), at(2)], 6: [], 10: [at(10), at(14)]}),
    "two empty segments": Kind({0: [at(0)], 4: [], 6: [], 10: [at(10), at(14)]}),
    "an empty last segment": Kind({0: [at(0), at(4)], 6: [at(6), at(14)], 16: []}),
    "emptied batches": Kind({0: [at(0), empty(4)], 6: [empty(8)], 10: [empty(10), at(14)]}),
    "a later first segment": Kind({6: [at(6), at(8)], 10: [at(12), at(14)]}),
    "a start before the first segment": Kind({6: [at(6), at(8)], 10: [at(12), at(14)]}, start=3),
    "deleted records": Kind({0: [at(0), at(4)], 6: [at(6), at(8)], 10: [at(10), at(14)]}, start=7),
    "a start in a gap": Kind({0: [at(0)], 6: [at(8)], 10: [at(14)]}, start=4),
    "transactions": Kind(
        {
            0: [transactional(0, 0), marker(2, commit=True), transactional(5, 2)],
            7: [marker(9, commit=False), at(10)],
            12: [transactional(12, 4), marker(15, commit=True)],
        }
    ),
    "markers without their records": Kind({0: [marker(3, commit=True)], 7: [marker(9, commit=False)], 12: [at(14)]}),
    "old timestamps": Kind(
        {0: [at(0, timestamp=5), at(4, timestamp=1)], 6: [at(6, timestamp=0)], 10: [at(14, timestamp=3)]}
    ),
    "no timestamps": Kind(
        {0: [at(0, timestamp=-1), at(4, timestamp=-1)], 6: [at(6, timestamp=-1)], 10: [at(14, timestamp=-1)]}
    ),
    "falling timestamps": Kind(
        {0: [at(0), at(4, timestamp=START - 9)], 6: [at(6, timestamp=9)], 10: [at(14, timestamp=7)]}
    ),
    "no leader epochs": Kind({0: [at(0, epoch=-1), at(4, epoch=-1)], 6: [at(6, epoch=-1)], 10: [at(14, epoch=-1)]}),
    "later epochs in the checkpoint": Kind({0: [at(0), at(4)], 6: [at(6)], 10: [at(14)]}, epochs=((3, 0), (8, 16))),
    "earlier epochs in the batches": Kind({0: [at(0, epoch=5), at(4)], 6: [at(6)], 10: [at(14)]}, epochs=((5, 0),)),
    "a corrupt epoch checkpoint": Kind({0: [at(0), at(4)], 6: [at(6)], 10: [at(14)]}, epochs=((9, 4), (3, 0))),
}


def write(home: Path, kind: Kind) -> None:
    """Write the directory of partition t-0."""
    directory = home / "t-0"
    directory.mkdir(parents=True)
    files, open_files = Files(), OpenFiles()
    for base, batches in kind.segments.items():
        segment = Segment.create(files, str(directory), base, open_files, START)
        for each in batches:
            header = read_header(each)
            segment.append(each, header.last_offset, header.max_timestamp, 100)
        segment.seal()
        segment.file.close_file()
    if kind.epochs is not None:
        lines = [f"{epoch} {start}" for epoch, start in kind.epochs]
        (directory / LEADER_EPOCHS).write_bytes(format_lines(lines))


def batches(log: Log, max_bytes: int = 150) -> list[bytes]:
    """The batches that a reader gets from the log start on."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes, log.log_end_offset))
        for position, header in iter_batches(data):
            found.append(data[position : position + header.size])
            offset = header.next_offset
        if not data:
            break
    return found


def expected(kind: Kind) -> list[bytes]:
    start = max(kind.start, min(kind.segments))
    return [each for row in kind.segments.values() for each in row if read_header(each).next_offset > start]


def end_of(kind: Kind) -> int:
    last, row = list(kind.segments.items())[-1]
    return read_header(row[-1]).next_offset if row else last


def check(log: Log, kind: Kind) -> None:
    assert batches(log, 1 << 20) == batches(log) == expected(kind)
    assert log.log_end_offset == end_of(kind)
    start = log.log_start_offset
    for each in expected(kind):
        header = read_header(each)
        for offset in range(max(header.base_offset, start), header.next_offset):
            assert bytes(log.read(offset, 1, log.log_end_offset)) == each
    names = [name for name in log.files.list(log.directory) if name.endswith((".deleted", ".removed", ".replaced"))]
    assert not names, "nothing was repaired"


def reopened(home: Path, kind: Kind, config: LogConfig, **opening: object) -> Log:
    return open_at(str(home), config=config, **{"log_start_offset": kind.start} | opening)


# Histories: each gets the directory and both policies of the topic, before and after.


def clean(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    for config in (before, after, before):
        log = reopened(home, kind, config, clean=True, recovery_point=end_of(kind))
        check(log, kind)
        log.close()


def clean_without(pattern: str) -> Callable[[Path, Kind, LogConfig, LogConfig], None]:
    def history(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
        for path in (home / "t-0").glob(pattern):
            path.unlink()
        clean(home, kind, before, after)

    return history


def crashes(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    """A crash with each recovery point, also those in gaps and beyond the end, and none."""
    edges = [*kind.segments, *(read_header(each).next_offset for each in expected(kind))]
    for point in sorted({0, *(edge + i for edge in edges for i in (-1, 0, 1))}):
        for config in (before, after):
            log = reopened(home, kind, config, recovery_point=max(point, 0))
            check(log, kind)
            log.abandon()
    clean(home, kind, before, after)


def policy_changes(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    log = reopened(home, kind, before, clean=True, recovery_point=end_of(kind))
    log.reconfigure(after)
    check(log, kind)
    log._repair(log.log_start_offset, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a wrong suspicion"))
    check(log, kind)
    log.abandon()
    log = reopened(home, kind, after)
    check(log, kind)
    log.close()


def replica(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    """Another broker fetches it, in answers of several sizes, and is killed or stopped."""
    leader = reopened(home, kind, before, clean=True, recovery_point=end_of(kind))
    for size in (1, 150, 1 << 20):
        path = home.parent / f"replica-{size}"
        follower = open_at(str(path), config=before)
        restart_at(follower, leader.log_start_offset)
        while True:
            data = leader.read(follower.log_end_offset, size, leader.log_end_offset)
            if not data:
                break
            append_as_follower(follower, data, EPOCH, START)
        want = batches(leader)
        assert batches(follower) == want
        start, point = follower.log_start_offset, follower.flush() if size == 150 else 0
        follower.abandon()
        for config in (after, before):
            follower = open_at(str(path), config=config, recovery_point=point, log_start_offset=start)
            assert batches(follower) == want
            follower.abandon()
        follower = open_at(str(path), config=after, recovery_point=point, log_start_offset=start)
        follower.close()
        follower = open_at(str(path), config=after, clean=True, recovery_point=point, log_start_offset=start)
        assert batches(follower) == want
        follower.abandon()


def move(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    """It moves to another log directory, and the broker is killed."""
    homes = [str(home), str(home.parent / "other")]
    (home / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {kind.start}\n")
    for config in (before, after):
        logs = LogManager(homes, ManualClock(), config)
        logs.load()
        log = logs.get(TP)
        assert log is not None
        log.high_watermark = log.log_end_offset
        check(log, kind)
        moves = LogMoves(logs)
        future = moves.begin(log, other_directory(logs, log))
        complete(moves, log, future)
        log = logs.get(TP)
        assert log is future
        assert batches(log) == expected(kind)
        logs.checkpoint_log_starts()
        logs.abandon()
        logs = LogManager(homes, ManualClock(), after)
        logs.load()
        log = logs.get(TP)
        assert log is not None
        assert batches(log) == expected(kind)
        logs.checkpoint_log_starts()
        logs.abandon()


def corrupt_byte(home: Path, kind: Kind, before: LogConfig, after: LogConfig) -> None:
    """A byte of any batch changes: the others are read, while the broker runs and after each kind of start."""
    (home.parent / "copy").mkdir()
    for base, row in kind.segments.items():
        for i, each in enumerate(row):
            for place in (-1, 9, 16, 25, 61):
                _corrupt(home, kind, before, after, (base, i, place), each)


def _corrupt(
    home: Path, kind: Kind, before: LogConfig, after: LogConfig, where: tuple[int, int, int], victim: bytes
) -> None:
    base, i, place = where
    copy = home.parent / "copy"
    for clean_start in (True, False):
        shutil.rmtree(copy)
        shutil.copytree(home, copy)
        path = copy / "t-0" / file_name(base)
        data = bytearray(path.read_bytes())
        position = sum(len(each) for each in kind.segments[base][:i])
        data[position + (place if 0 <= place < len(victim) else len(victim) - 1)] ^= 0x41
        path.write_bytes(data)
        point = end_of(kind)
        log = reopened(copy, kind, before, clean=clean_start, recovery_point=point)
        for config in (before, after):
            log.reconfigure(config)
            for each in expected(kind):
                if each is not victim:
                    assert _is_served(log, each), f"{where}: {read_header(each).base_offset} is lost"
        log.abandon()


def _is_served(log: Log, each: bytes) -> bool:
    header = read_header(each)
    offset = max(header.base_offset, log.log_start_offset)
    return bytes(log.read(offset, 1 << 20, log.log_end_offset)).startswith(each)


HISTORIES = {
    "clean start": clean,
    "clean start without indices": clean_without("*.*index"),
    "clean start without one index": clean_without(f"*{0:03d}.index"),
    "clean start without leader epochs": clean_without(LEADER_EPOCHS),
    "crash": crashes,
    "change of cleanup.policy": policy_changes,
    "replica on another broker": replica,
    "move to another directory": move,
    "corrupt byte": corrupt_byte,
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policies", [(DELETE, DELETE), (COMPACT, DELETE)], ids=["delete", "formerly compact"])
def test_records_of_an_unusual_directory_are_read_as_before(
    tmp_path: Path, kind: str, history: str, policies: tuple[LogConfig, LogConfig]
) -> None:
    home = tmp_path / "home"
    write(home, KINDS[kind])
    HISTORIES[history](home, KINDS[kind], *policies)
