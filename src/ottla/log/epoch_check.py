"""Compares a log's leader epochs with its batches when the log is opened.

`leader-epoch-checkpoint` has no checksum, and a changed digit is still a number. Every batch holds its leader epoch, so
the file must agree with the batches on both sides of each place where an epoch starts, and at the end of the log. Where
it does not, the epochs of all batches are read.

Cost of the check: a log with one epoch, which is nearly every log, looks at its last batch; any other looks at two
batches for each epoch.
"""

import logging
from bisect import bisect_right

from ottla.common.errors import KafkaError
from ottla.log.epochs import EpochEntry, LeaderEpochs
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError
from ottla.log.open_files import OpenFiles
from ottla.log.segment import Segment
from ottla.log.segment_file import TornSegmentError, file_name
from ottla.records import HEADER_SIZE, BatchHeader, read_header

logger = logging.getLogger(__name__)

DIGITS = 20


def settle_epochs(epochs: LeaderEpochs, segments: list[Segment], log_start: int, log_end: int) -> None:
    """Make `epochs` agree with the batches of `segments`, whose offsets are in [log_start, log_end)."""
    if not epochs.is_corrupt:
        try:
            problem = _disagreement(epochs, segments, log_start, log_end)
        except (CorruptIndexError, TornSegmentError, KafkaError) as error:
            problem = str(error)
        if problem is None:
            epochs.truncate_from_end(log_end)
            return
        logger.warning("Rebuilding the leader epochs of %s from its batches: %s", epochs.directory, problem)
    epochs.clear()
    for segment in segments:
        try:
            for _, _, header in segment.file.batches():
                if header.partition_leader_epoch > epochs.latest:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        except KafkaError as error:  # the next segment has the epochs that come later
            logger.warning("Leader epochs in the rest of %s are unknown: %s", segment.file.path(), error)


def disagreement_in(files: Files, directory: str, entries: list[EpochEntry]) -> str | None:
    """A batch in a partition's directory that contradicts the entries, as a sentence. Reads only; raises OSError."""
    names = sorted(name for name in files.list(directory) if name.endswith(".log"))
    bases = [int(stem) for name in names if len(stem := name.removesuffix(".log")) == DIGITS and stem.isdigit()]
    open_files = OpenFiles()
    segments = [
        Segment.of_files(files, directory, base, open_files, size=files.size(f"{directory}/{file_name(base)}"))
        for base in bases
    ]
    if not segments or not entries:
        return None
    try:
        last = segments[-1]
        last.file.fd = files.open(last.file.path(), read_only=True)
        log_end = last.indices.next_offset()
        return _disagreement(LeaderEpochs(files, directory, entries), segments, entries[0].start_offset, log_end)
    except (CorruptIndexError, TornSegmentError, KafkaError) as error:  # damage of the segment, not of the epochs
        logger.debug("Leader epochs in %s cannot be compared with batches: %s", directory, error)
        return None
    finally:
        segments[-1].file.close_file()


def _disagreement(epochs: LeaderEpochs, segments: list[Segment], log_start: int, log_end: int) -> str | None:
    """A batch whose epoch differs from the file's, as a sentence; None if the file is right.

    Raises CorruptIndexError, TornSegmentError, KafkaError where a batch cannot be found.
    """
    entries = epochs.entries
    bases = [segment.base_offset for segment in segments]
    first = max(log_start, bases[0])

    def look(offset: int) -> str | None:
        if not first <= offset < log_end:
            return None
        header = _batch_at(segments, bases, offset)
        found = -1 if header is None else header.partition_leader_epoch
        if header is None or found == epochs.at(max(offset, header.base_offset)):
            return None
        return f"the batch at offset {header.base_offset} has leader epoch {found}, the checkpoint has another"

    for entry in entries:
        if len(entries) > 1 or entry.start_offset > first:
            problem = look(entry.start_offset - 1) or look(entry.start_offset)
            if problem is not None:
                return problem
    problem = look(log_end - 1)
    started = entries[-1].start_offset if entries else log_end
    if problem is not None and started < log_end and look(started) is None:
        # The file would have the epoch of the last batch: it is written before the log counts as flushed. The batch's
        # epoch, which its checksum does not cover, has changed.
        logger.warning("A leader epoch in %s is corrupt: %s", epochs.directory, problem)
        return None
    return problem


def _batch_at(segments: list[Segment], bases: list[int], offset: int) -> BatchHeader | None:
    """The first batch that ends at `offset` or later; compaction may have removed the batch that held it."""
    for segment in segments[max(bisect_right(bases, offset) - 1, 0) :]:
        was_open = segment.file.fd >= 0
        if not was_open:
            segment.file.fd = segment.file.files.open(segment.file.path(), read_only=True)
        try:
            position = segment.locate(offset)
            if position < segment.file.size:
                return read_header(segment.file.files.pread(segment.file.fd, HEADER_SIZE, position))
        finally:
            if not was_open:  # the logs of a directory are opened in a row: descriptors are for readers
                segment.file.close_file()
    return None
