"""One pass over a segment that may be harmed: its batches are checked, its indices and all it tells are made anew.

The checks are `Survey`'s; here is what they lead to: leader epochs, producers, transactions, and the mending of what
was on disk for certain before the crash.
"""

from ottla.common.errors import KafkaError
from ottla.log.epochs import LeaderEpochs
from ottla.log.producers import CompletedTransaction, Producers
from ottla.log.repair import repair
from ottla.log.segment import SCAN_CHUNK, Segment
from ottla.log.txn_index import AbortedTransaction
from ottla.records import HEADER_SIZE, read_header
from ottla.records.survey import CRC, FRAME, LOOK, MORE, OFFSET, Survey

_WRONG = {FRAME: "size or magic", CRC: "CRC", OFFSET: "offset"}


class SegmentRecovery:
    """One pass over a segment's batches that checks them and makes its indices anew."""

    def __init__(
        self,
        segment: Segment,
        producers: Producers,
        epochs: LeaderEpochs,
        index_interval: int,
        synced: int,
        *,
        sealed: bool,
    ) -> None:
        self.segment = segment
        self.synced = synced
        self.sealed = sealed
        self.producers = producers
        self.epochs = epochs
        self.index_interval = index_interval
        self.good_bytes = 0
        self.problem = "the last batch is incomplete"
        self._aborted: list[AbortedTransaction] = []

    def run(self, *, gaps: bool) -> int:
        """The offset after the last good batch; `good_bytes` is where it ends. Offsets may leave gaps if so said."""
        segment = self.segment
        segment.start_indices()
        segment.first_timestamp = None
        expected = segment.base_offset
        while True:
            expected = self._run(expected, gaps=gaps)
            # A crash harms only what was not synced: other harm costs what it touches, and nothing behind it.
            if expected >= self.synced or self.good_bytes >= segment.size:
                break
            stop = repair(segment, self.good_bytes, expected, self.synced, ends=self.sealed)
            if stop is None:
                break
            expected = self._pass_over(stop)
        segment.txn_index.rewrite(self._aborted)
        return expected

    def _pass_over(self, stop: int) -> int:
        position, size = self.good_bytes, stop - self.good_bytes
        header = read_header(self.segment.read(position, position + HEADER_SIZE))
        self.segment.note(position, size, header.last_offset, header.max_timestamp, self.index_interval)
        self.good_bytes = stop
        return header.next_offset

    def _run(self, expected: int, *, gaps: bool) -> int:
        segment, epoch = self.segment, self.epochs.latest
        survey = segment.survey(
            self.good_bytes, expected, gaps=gaps, known_to=self.producers.end_offset, epoch=epoch,
            interval=self.index_interval,
        )  # fmt: skip
        fd, why, chunk = segment.open_file(), MORE, SCAN_CHUNK
        while why == MORE and segment.size - survey.good >= HEADER_SIZE:
            place = survey.good
            data = self.segment.files.pread(fd, min(chunk, segment.size - place), place)
            try:
                why = self._go_on(survey, data, place)
            except KafkaError as error:
                self.problem = f"the batch at {survey.good}: {error}"
                break
            if survey.good == place and len(data) < chunk:
                break
            chunk = max(SCAN_CHUNK, survey.needed)
        segment.take(survey)
        self.good_bytes = survey.good
        if why in _WRONG:
            self.problem = f"the batch at {survey.good} (offset {survey.expected}) has a wrong {_WRONG[why]}"
        return survey.expected

    def _go_on(self, survey: Survey, data: bytes, place: int) -> int:
        while True:
            why = survey.go_on(data, place)
            for at in survey.take_producers():
                header = read_header(data, at)
                self.producers.wrote(header, header.base_offset)
            if why != LOOK:
                return why
            self._look_at(survey, memoryview(data)[survey.good - place :][: survey.needed])

    def _look_at(self, survey: Survey, batch: memoryview) -> None:
        """What the survey leaves to others: a new leader epoch, a batch of a transaction or its end."""
        header = read_header(batch)
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        survey.epoch = max(survey.epoch, self.epochs.latest, header.partition_leader_epoch)
        survey.looked_at = survey.good
        if header.base_offset >= survey.known_to:
            completed = self.producers.replay(batch, 0, header)
            if completed is not None:
                self._note(completed)

    def _note(self, completed: CompletedTransaction) -> None:
        if completed.aborted:
            stable = self.producers.last_stable_offset_after(completed)
            self._aborted.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        self.producers.complete(completed)
