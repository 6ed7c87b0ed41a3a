"""Brings producer state up to date from the batches of segments."""

import logging
from collections.abc import Iterable

from ottla.common.errors import KafkaError
from ottla.log.index import CorruptIndexError
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment
from ottla.log.segment_file import TornSegmentError
from ottla.log.txn_index import AbortedTransaction

logger = logging.getLogger(__name__)


def replay_producers(segments: Iterable[Segment], producers: ProducerState, end_offset: int) -> None:
    """Replay the batches between the state's `end_offset` and `end_offset`.

    A segment is read only if it holds such a batch. The rest of a corrupt segment is skipped: the log must open
    without it. Cost: one read of the batches in between.
    """
    row = list(segments)
    for i, segment in enumerate(row):
        start = producers.end_offset
        if segment.base_offset >= end_offset:
            break
        if i + 1 < len(row) and row[i + 1].base_offset <= start:
            continue
        try:
            _replay_segment(segment, producers, start, end_offset)
        except (KafkaError, CorruptIndexError, TornSegmentError) as error:
            logger.warning("Producer state in the rest of %s is unknown: %s", segment.file.path(), error)
    producers.end_offset = max(producers.end_offset, end_offset)


def _replay_segment(segment: Segment, producers: ProducerState, start: int, end_offset: int) -> None:
    position = segment.locate(start) if start > segment.base_offset else 0
    for _, data, header in segment.file.batches(position):
        if header.base_offset >= end_offset:
            break
        if header.base_offset >= start:
            producers.replay(data, 0, header)


def find_aborted(segments: list[Segment], producers: ProducerState) -> list[AbortedTransaction]:
    """The aborted transactions that end in the last of `segments`, for its index.

    `producers` is the state at an earlier offset. It is brought up to date first, because transactions may have begun
    in earlier segments.
    """
    segment = segments[-1]
    replay_producers(segments[:-1], producers, segment.base_offset)
    aborted: list[AbortedTransaction] = []
    for _, data, header in segment.file.batches():
        producers.replay(data, 0, header, aborted)
    return aborted


def aborted_in(segments: list[Segment], present: ProducerState, now_ms: int) -> list[AbortedTransaction]:
    """The aborted transactions that end in the last of `segments`, by the snapshots of the `present` state."""
    base_offset = segments[-1].base_offset
    producers = ProducerState(present.files, present.directory, present.expiration_ms)
    producers.snapshots = [each for each in present.snapshots if each <= base_offset]
    producers.load_newest(segments[0].base_offset, now_ms)
    return find_aborted(segments, producers)
