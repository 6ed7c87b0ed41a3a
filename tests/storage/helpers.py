"""Helpers of the storage tests: a manual clock, batches, a log on any disk, all its records."""

from ottla.common.ids import TopicPartition
from ottla.log import Files, Log, LogConfig, LogContext, LogDirectory, Opening, open_log
from ottla.log.log import AppendInfo
from ottla.log.open_files import OpenFiles
from ottla.records import decode_batch, encode_batch, iter_batches, read_header

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
START = 1_700_000_000_000


class ManualClock:
    """A clock that moves only when `now` is set."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def wall_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = START, **options: object) -> bytearray:
    """One batch with a record for each value."""
    return bytearray(encode_batch([(timestamp, key, value, []) for value in values], **options))  # type: ignore[arg-type]


def append(log: Log, data: bytearray, epoch: int = 0, now: int = START, origin: str = "client") -> AppendInfo:
    """Append a batch as the broker does."""
    return log.append_as_leader(data, read_header(data), epoch, now, origin)  # type: ignore[arg-type]


def open_at(
    path: str,
    files: Files | None = None,
    config: LogConfig | None = None,
    clock: ManualClock | None = None,
    open_files: OpenFiles | None = None,
    **opening: object,
) -> Log:
    """The log of partition t-0 below `path`."""
    files = files or Files()
    files.make_directory(path)
    return open_log(
        LogContext(LogDirectory(path, files), TP, clock=clock or ManualClock(), open_files=open_files),
        config or LogConfig(),
        opening=Opening(**opening),  # type: ignore[arg-type]
        topic_id=TOPIC_ID,
    )


def records(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record from `start` on, read as a consumer would."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, log.log_end_offset)
        if not data:
            break
        for position, header in iter_batches(data):
            found.extend((r.offset, r.value) for r in decode_batch(data, position) if r.offset >= offset)
            offset = header.next_offset
    return found


def values(log: Log) -> list[bytes | None]:
    """The values of all records."""
    return [value for _, value in records(log)]
