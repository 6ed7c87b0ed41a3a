"""The parts of a log, each built without the others."""

from ottla.log import Files, LogConfig, LogContext, LogDirectory
from ottla.log.open_files import OpenFiles
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList
from tests.storage.helpers import START, TP, ManualClock, batch


def context_at(path: str, files: Files | None = None, open_files: OpenFiles | None = None) -> LogContext:
    """The context of partition t-0 below `path`; its directory exists."""
    context = LogContext(
        LogDirectory(path, files or Files()), TP, clock=ManualClock(), open_files=open_files or OpenFiles()
    )
    context.files.make_directory(context.path)
    return context


def segment_list(context: LogContext, **config: object) -> SegmentList:
    """A list with one empty segment at offset 0."""
    segment = Segment.create(context.files, context.path, 0, context.open_files, START)
    return SegmentList(context, LogConfig(**config), [segment], 0)  # type: ignore[arg-type]


def write(segments: SegmentList, count: int = 1) -> None:
    """Append batches of one record."""
    for _ in range(count):
        data = batch(b"value")
        data[:8] = segments.end_offset.to_bytes(8, "big")
        segments.append(data, segments.end_offset, START)
