"""`Cleaner`: selects the dirtiest compacted log, lets a worker process clean it, and swaps the result in.

The broker's thread calls `step` about once a second; `step` never blocks. Without a running job it looks for a log
whose dirty ratio exceeds min.cleanable.dirty.ratio or whose oldest dirty record exceeds max.compaction.lag.ms, at most
once per `backoff_ms`. When the worker has finished, it renames files.

Invariant: a crash at any moment is undone or completed by `recovery.finish_swaps`. The worker syncs `.cleaned` files
before it reports success; each is renamed to `.swap` before the segments that it replaces are renamed, group by group
in offset order. A log whose cleaning failed is not tried again for ten minutes.
"""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, NamedTuple, Protocol

from ottla.common.errors import KafkaError
from ottla.log.compaction import BYTES_PER_KEY, CleanJob, CleanResult
from ottla.log.index import CorruptIndexError
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.segment import CLEANED, SWAP, Segment
from ottla.log.segment_file import SUFFIXES, TornSegmentError, file_name

DEFAULT_LOAD_FACTOR = 0.9

logger = logging.getLogger(__name__)

_LONGEST_JOB_MS = 6 * 3_600_000
# A full disk may be temporary; a corrupt record fails the next attempt, too.
_RETRY_MS = 600_000


class Work(Protocol):
    """A running job."""

    def poll(self) -> CleanResult | str | None:
        """The result, an error message, or None while the job runs."""
        ...

    def stop(self) -> None:
        """Stop the job; the caller deletes what it wrote."""
        ...


class WorkerProcess:
    """A job in a separate process. Its pipes are files outside of the log directories, which may be full."""

    def __init__(self, job: CleanJob) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as source:
            source.write(job.to_json().encode())
            source.seek(0)
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, this module
                [sys.executable, "-m", "ottla.log.cleaner_worker", str(os.getpid())],
                stdin=source,
                stdout=self._output,
                stderr=self._errors,
            )

    def poll(self) -> CleanResult | str | None:
        """See `Work`."""
        code = self._process.poll()
        if code is None:
            return None
        self._output.seek(0)
        self._errors.seek(0)
        output, errors = self._output.read(), self._errors.read()
        self._close()
        if code != 0:
            last_line = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            return f"the worker ended with {code}: {last_line}"
        try:
            return CleanResult.from_json(output.decode())
        except (ValueError, TypeError) as error:
            return f"the worker returned an invalid result: {error}"

    def stop(self) -> None:
        """See `Work`."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._output.close()
        self._errors.close()


class Candidate(NamedTuple):
    """A log that may be cleaned from `first_dirty` up to `end`, the base offset of the first segment that must stay."""

    log: Log
    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """Dirty bytes as a share of all cleanable bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class _Running(NamedTuple):
    work: Work
    log: Log
    sources: dict[int, Segment]
    first_dirty: int
    started_ms: int
    truncations: int


class Cleaner:
    """See the module's docstring. Tests pass another `start_work`."""

    def __init__(
        self,
        manager: LogManager,
        *,
        backoff_ms: int = 15_000,
        dedupe_buffer_bytes: int = 128 << 20,
        load_factor: float = DEFAULT_LOAD_FACTOR,
        start_work: Callable[[CleanJob], Work] = WorkerProcess,
    ) -> None:
        self.manager = manager
        self.configure(backoff_ms=backoff_ms, dedupe_buffer_bytes=dedupe_buffer_bytes, load_factor=load_factor)
        self._start_work = start_work
        self._running: _Running | None = None
        self._next_look_ms = 0
        # Directory of a log -> when its cleaning may be retried.
        self._failed: dict[str, int] = {}

    def configure(self, *, backoff_ms: int, dedupe_buffer_bytes: int, load_factor: float) -> None:
        """Apply changed settings; a running job keeps the old ones.

        Kafka accepts any load factor; one that is not above 0 and at most 1 means the default here.
        """
        self.backoff_ms = backoff_ms
        share = load_factor if 0 < load_factor <= 1 else DEFAULT_LOAD_FACTOR
        self.max_keys = max(int(dedupe_buffer_bytes * share) // BYTES_PER_KEY, 1)

    @property
    def busy(self) -> bool:
        """Whether a job is running."""
        return self._running is not None

    def step(self, now_ms: int) -> bool:
        """Start, check or finish a job; whether a job was started or a result swapped in."""
        if self._running is not None and (self._running.log.closed or self._is_moving(self._running.log)):
            # The partition was deleted: the worker may write into the directory of a new topic of the same name.
            self._stop(self._running)
        if self._running is not None:
            return self._finish(self._running, now_ms)
        if 0 < self._next_look_ms - now_ms <= self.backoff_ms:  # beyond: the clock was set back
            return False
        candidate = self.choose(now_ms)
        if candidate is None:
            self._next_look_ms = now_ms + self.backoff_ms
            return False
        try:
            self._start(candidate, now_ms)
        except (OSError, KafkaError) as error:  # the worker cannot start: not an error of the log's disk
            self._leave_alone(candidate.log, str(error), now_ms)
            return False
        return True

    def close(self) -> None:
        """Stop the running job."""
        if self._running is not None:
            self._stop(self._running)

    def _stop(self, running: _Running) -> None:
        self._running = None
        running.work.stop()
        try:
            self._discard(running.log, sorted(running.sources))
        except OSError as error:
            running.log.log_directory.fail(error)

    def _is_moving(self, log: Log) -> bool:
        """A tombstone that is removed before it is copied would let the copied records before it reappear."""
        return log.topic_partition in self.manager.futures

    # Choosing

    def choose(self, now_ms: int) -> Candidate | None:
        """The log with the highest dirty ratio that needs cleaning; None if no log does."""
        candidates = []
        for log in self.manager.all():
            if (
                not log.config.compacts
                or log.closed
                or self._is_moving(log)
                or not log.log_directory.online
                or 0 < self._failed.get(log.directory, now_ms) - now_ms <= _RETRY_MS  # beyond: the clock was set back
            ):
                continue
            try:
                candidate = self.assess(log, now_ms)
            except OSError as error:
                log.log_directory.fail(error)
                continue
            except (CorruptIndexError, TornSegmentError, KafkaError) as error:
                self._leave_alone(log, str(error), now_ms)
                continue
            wanted = candidate.ratio > log.config.min_cleanable_dirty_ratio or candidate.overdue
            if candidate.dirty_bytes > 0 and wanted:
                candidates.append(candidate)
        return max(candidates, key=lambda candidate: candidate.ratio, default=None)

    def assess(self, log: Log, now_ms: int) -> Candidate:
        """Measure how much of a log is dirty and may be cleaned."""
        segments = log.segments
        # Not from the log start offset: a crash may set it back. A tombstone that was cleaned without the records
        # before it would then disappear and let these records reappear.
        first_dirty = log.segments.cleaned_to
        if not segments[0].base_offset <= first_dirty <= log.log_end_offset:
            first_dirty = segments[0].base_offset
        # A record that is not on disk yet may be lost in a power cut, so it must not remove the records it supersedes.
        bound = min(log.last_stable_offset, segments[-1].base_offset, log.flushed_offset)
        lag = log.config.min_compaction_lag_ms
        dirty = [s for i, s in enumerate(segments[:-1]) if segments[i + 1].base_offset > first_dirty]
        if lag > 0:
            young = (s.base_offset for s in dirty if s.indices.largest_timestamp()[0] > now_ms - lag)
            bound = min(bound, next(young, bound))
        # Only whole segments are cleaned, not the segment that holds `bound`.
        end = max((s.base_offset for s in segments if s.base_offset <= bound), default=segments[0].base_offset)
        # Without max.compaction.lag.ms no segment needs to be opened.
        deadline = now_ms - max(log.config.max_compaction_lag_ms, 0)
        overdue = deadline > 0 and any(
            0 < s.indices.first_batch_timestamp() < deadline for s in dirty if s.base_offset < end
        )
        return Candidate(
            log,
            first_dirty,
            end,
            sum(s.file.size for s in segments[: len(segments) - 1 - len(dirty)]),
            # A pass may end within a segment, and the copy of a moved log has segments of its own.
            sum(s.file.size for s in dirty if s.base_offset < end),
            overdue,
        )

    # Doing

    def _start(self, candidate: Candidate, now_ms: int) -> None:
        log = candidate.log
        sources = [segment for segment in log.segments if segment.base_offset < candidate.end]
        config = log.config
        job = CleanJob(
            directory=log.directory,
            bases=[segment.base_offset for segment in sources],
            next_base=candidate.end,
            first_dirty=candidate.first_dirty,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            max_keys=self.max_keys,
            aborted=log.aborted_transactions(0, candidate.end),
            producers=[(e.producer_id, e.last_offset, e.epoch) for e in log.active_producers()],
        )
        logger.info("Cleaner 0: Beginning cleaning of log %s", log.topic_partition)
        work = self._start_work(job)
        self._running = _Running(
            work,
            log,
            {segment.base_offset: segment for segment in sources},
            candidate.first_dirty,
            now_ms,
            log.segments.unsynced.truncations,
        )

    def _finish(self, running: _Running, now_ms: int) -> bool:
        outcome = running.work.poll()
        if outcome is None:
            if now_ms - running.started_ms <= _LONGEST_JOB_MS:
                return False
            running.work.stop()
            outcome = "the worker exceeded its time limit"
        self._running = None
        log = running.log
        if log.closed or not log.log_directory.online:
            return False
        try:
            if isinstance(outcome, str):
                if not _is_changed(running):
                    self._leave_alone(log, outcome, now_ms)
                self._discard(log, sorted(running.sources))
                return False
            if log.segments.unsynced.truncations != running.truncations:
                # The truncation may have dropped records for which the worker removed older ones.
                self._discard(log, sorted(running.sources))
                return False
            return self._swap(log, outcome, running)
        except OSError as error:
            # The next start completes or undoes an interrupted swap, whatever the error was.
            log.log_directory.take_offline(error)
            return False

    def _leave_alone(self, log: Log, problem: str, now_ms: int) -> None:
        logger.warning(
            "Unexpected exception thrown when cleaning log %s. Marking its partition (%s) as uncleanable for %d s: %s",
            log, log.topic_partition, _RETRY_MS // 1000, problem,
        )  # fmt: skip
        self._failed[log.directory] = now_ms + _RETRY_MS

    def _swap(self, log: Log, result: CleanResult, running: _Running) -> bool:
        sources, first_dirty = running.sources, running.first_dirty
        present = {id(segment) for segment in log.segments}
        pending = [group[0] for group in result.groups]
        for group in result.groups:
            old = [sources[base] for base in group]
            if any(id(segment) not in present for segment in old):
                # Retention deleted a segment. The result for later segments relies on the deleted records.
                logger.info("The cleaning for partition %s is aborted: its segments changed", log.topic_partition)
                self._discard(log, pending)
                return False
            size = log.files.size(f"{log.directory}/{file_name(group[0])}{CLEANED}")
            new = Segment.of_files(log.files, log.directory, group[0], log.open_files, size=size, suffix=CLEANED)
            new.change_suffix(SWAP)
            logger.info("Cleaner 0: Swapping in cleaned segment %s for segment(s) %s in log %s", new, old, log)
            log.replace_segments(old, [new])
            pending.remove(group[0])
        # A power cut must not bring back the old segments after the checkpoint has named them clean.
        log.files.fsync_directory(log.directory)
        log.segments.cleaned_to = result.end_offset
        self.manager.checkpoint_cleaned(log)
        logger.info("%s", _summary(log, first_dirty, result))
        return log.log_directory.online

    def _discard(self, log: Log, bases: list[int]) -> None:
        for base in bases:
            for kind in SUFFIXES:
                log.files.unlink(f"{log.directory}/{file_name(base, kind)}{CLEANED}")


def _is_changed(running: _Running) -> bool:
    """Whether retention deleted a segment that the worker had to read."""
    present = {id(segment) for segment in running.log.segments}
    return any(id(segment) not in present for segment in running.sources.values())


def _summary(log: Log, first_dirty: int, result: CleanResult) -> str:
    """The report of Kafka's cleaner after a pass, as one line."""
    megabytes, seconds = result.bytes_before / (1 << 20), max(result.took_ms, 1) / 1000
    fewer_bytes = 1 - result.bytes_after / max(result.bytes_before, 1)
    fewer_messages = 1 - result.messages_after / max(result.messages_before, 1)
    return (
        f"Log cleaner thread 0 cleaned log {log.topic_partition}"
        f" (dirty section = [{first_dirty}, {result.end_offset}])."
        f" {megabytes:,.1f} MB of log processed in {seconds:,.1f} seconds ({megabytes / seconds:,.1f} MB/sec)."
        f" Start size: {megabytes:,.1f} MB ({result.messages_before:,} messages)."
        f" End size: {result.bytes_after / (1 << 20):,.1f} MB ({result.messages_after:,} messages)."
        f" {fewer_bytes:.1%} size reduction ({fewer_messages:.1%} fewer messages)"
    )
