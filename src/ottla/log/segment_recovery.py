"""Reads a segment that may be damaged: checks its batches and rebuilds what is derived from them.

`Survey` (compiled) checks frames, CRCs and offsets and collects index entries and producers of plain batches. It stops
at batches that need more: the first of a leader epoch, and batches of transactions. Where it meets corruption below
the offset up to which the segment was synced, the stretch is repaired and the pass goes on behind it; above, the log
ends there. Gaps between offsets are accepted (see `repair`). Cost: each byte is read and its checksum computed
once; again if the offset of a batch was corrected, which producers and indices had seen.
"""

from __future__ import annotations

from ottla.common.errors import KafkaError
from ottla.common.values import value
from ottla.log.epochs import LeaderEpochs
from ottla.log.producer_state import ProducerState
from ottla.log.repair import realign, repair_stretch, sound_batch
from ottla.log.segment import Segment
from ottla.log.segment_file import SCAN_CHUNK
from ottla.log.txn_index import AbortedTransaction
from ottla.records import HEADER_SIZE, read_header
from ottla.records.survey import CRC, FRAME, LOOK, MORE, OFFSET, Survey

_WRONG = {FRAME: "size or magic", CRC: "CRC", OFFSET: "offset"}


@value
class Bounds:
    """The knowledge about a segment before it is read.

    All batches end below `end_offset`. Below `synced_to`, the segment was on disk before the crash. `ends_at` is its
    end offset, if all of it was on disk and the end is known.
    """

    end_offset: int
    synced_to: int
    ends_at: int | None


class SegmentRecovery:
    """Checks a segment's batches and rebuilds its indices, and adds its batches to producer state and leader epochs.

    After `run`, the first `good_bytes` of the file are sound; `problem` describes what follows them.
    """

    def __init__(self, segment: Segment, producers: ProducerState, epochs: LeaderEpochs, index_interval: int) -> None:
        self.segment = segment
        self.producers = producers
        self.epochs = epochs
        self.index_interval = index_interval
        self.good_bytes = 0
        self.problem = "the last batch is incomplete"
        self.was_realigned = False
        self._aborted: list[AbortedTransaction] = []

    def run(self, bounds: Bounds, *, may_realign: bool) -> int:
        """Check the segment; return the offset after the last good batch.

        If the offset of a batch was corrected, which needs `may_realign`, `was_realigned` is set and another run must
        follow.
        """
        segment = self.segment
        segment.indices.start()
        segment.indices.first_timestamp = None
        expected = segment.base_offset
        while True:
            expected = self._run(expected, bounds.end_offset)
            if self.good_bytes >= segment.file.size:
                break
            sound = sound_batch(segment, self.good_bytes)
            if sound is not None:
                if may_realign and realign(segment, self.good_bytes, bounds.end_offset, ends_at=bounds.ends_at):
                    self.was_realigned = True
                    break
                if min(expected, sound.base_offset) >= bounds.synced_to:
                    break
                self.good_bytes += sound.size  # it stays as it is
                continue
            if expected >= bounds.synced_to:
                break
            # A crash damages only what was not synced. Other corruption costs the batches it touches, not later ones.
            stop = repair_stretch(segment, self.good_bytes, expected, bounds.synced_to, ends_at=bounds.ends_at)
            if stop is None:
                break
            expected = self._skip_to(stop)
        segment.indices.transactions.rewrite(self._aborted)
        return expected

    def _skip_to(self, stop: int) -> int:
        """Take the repaired stretch as one batch; return the offset after it."""
        position, size = self.good_bytes, stop - self.good_bytes
        header = read_header(self.segment.file.read(position, position + HEADER_SIZE))
        self.segment.indices.note(position, size, header.last_offset, header.max_timestamp, self.index_interval)
        self.good_bytes = stop
        return header.next_offset

    def _run(self, expected: int, end_offset: int) -> int:
        """Check batches from `good_bytes` to the first corrupt one; return the offset expected next."""
        segment, epoch = self.segment, self.epochs.latest
        survey = segment.indices.survey(
            self.good_bytes, expected, end_offset, known_to=self.producers.end_offset, epoch=epoch,
            interval=self.index_interval,
        )  # fmt: skip
        fd, why, chunk = segment.file.open(), MORE, SCAN_CHUNK
        while why == MORE and segment.file.size - survey.good >= HEADER_SIZE:
            place = survey.good
            data = segment.file.files.pread(fd, min(chunk, segment.file.size - place), place)
            try:
                why = self._go_on(survey, data, place)
            except KafkaError as error:
                self.problem = f"the batch at {survey.good}: {error}"
                break
            if survey.good == place and len(data) < chunk:
                break
            chunk = max(SCAN_CHUNK, survey.needed)
        segment.indices.take(survey)
        self.good_bytes = survey.good
        if why in _WRONG:
            self.problem = f"the batch at {survey.good} (offset {survey.expected}) has a wrong {_WRONG[why]}"
        return survey.expected

    def _go_on(self, survey: Survey, data: bytes, place: int) -> int:
        while True:
            why = survey.go_on(data, place)
            for at in survey.take_producers():
                header = read_header(data, at)
                self.producers.record(header, None, header.base_offset, None)
            if why != LOOK:
                return why
            self._look_at(survey, memoryview(data)[survey.good - place :][: survey.needed])

    def _look_at(self, survey: Survey, batch: memoryview) -> None:
        """Process a batch that the survey does not: a new leader epoch, a batch or the marker of a transaction."""
        header = read_header(batch)
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        survey.epoch = max(survey.epoch, self.epochs.latest, header.partition_leader_epoch)
        survey.looked_at = survey.good
        if header.base_offset >= survey.known_to:
            self.producers.replay(batch, 0, header, self._aborted)
