"""Flushes the metadata log when the quorum's core requests it: in a thread, or at once without one.

A flush can be held until an operation is complete. A shortage of descriptors or memory postpones a flush to the next
`release`; a failed disk is reported, and ends the replica.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.metadata.loading import write_synced
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.shortage import ShortageError

if TYPE_CHECKING:
    from ottla.cluster.metadata.snapshotting import RunInThread
    from ottla.common.completion import Completion
    from ottla.log.log import Log

logger = logging.getLogger(__name__)


class FlushOwner(Protocol):
    """The replica of the log."""

    @property
    def flushed_offset(self) -> int:
        """The offset that was reported last."""
        ...

    def flushed(self, end_offset: int) -> None:
        """Everything below `end_offset` is on disk."""
        ...

    def fail(self, error: KafkaError) -> None:
        """The disk failed."""
        ...


class Flusher:
    """The flushes of one log."""

    def __init__(self, log: Log, run_in_thread: RunInThread | None, owner: FlushOwner) -> None:
        self._log = log
        self._run_in_thread = run_in_thread
        self._owner = owner
        self._is_held = False
        self._is_due = False
        self._flushing_now = False
        self._noted_offset = 0
        self.closed = False

    def request(self) -> None:
        """Flush soon. The core requests the next flush only after this one was reported."""
        self._is_due = True
        if not self._is_held:
            self._flush()

    def hold(self) -> None:
        """Postpone flushes until `release` or `flush_now`."""
        self._is_held = True

    def release(self) -> None:
        """Do what was held."""
        self._is_held = False
        if self._is_due:
            self._flush()

    def flush_now(self) -> None:
        """Flush on this thread until everything appended is on disk. Raises ShortageError and KafkaError."""
        self._is_held = False
        if self._flushing_now:
            return  # A listener called this during a commit: the outer call's loop continues.
        self._flushing_now = True
        try:
            while self._is_due or self._owner.flushed_offset < self._log.log_end_offset:
                self._is_due = False
                target = self._log.log_end_offset
                self._log.flush()
                self._owner.flushed(target)
        except ShortageError:
            raise
        except KafkaError as error:
            self._owner.fail(error)
            raise
        finally:
            self._flushing_now = False

    def _flush(self) -> None:
        if self._run_in_thread is None:
            try:
                self.flush_now()
            except ShortageError as error:
                self._postpone(error)
            except KafkaError:
                logger.debug("The flush failed; its waiters were notified")
            return
        if self._flushing_now:
            return
        self._is_due = False
        target = self._log.log_end_offset
        self._run_in_thread(self._flush_log).on_done(lambda done: self._flushed(target, done))

    def _flush_log(self) -> None:
        self._log.flush()

    def _flushed(self, target: int, done: Completion[None]) -> None:
        if self.closed:
            return
        try:
            done.result()
        except ShortageError as error:
            self._postpone(error)
        except KafkaError as error:
            self._owner.fail(error)
        except Exception as error:  # noqa: BLE001 - not swallowed: the quorum would wait forever
            self._owner.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot flush {self._log}: {error!r}"))
        else:
            self._owner.flushed(target)

    def note_synced(self) -> None:
        """Write the synced offset to a file, so that the next start detects a log that lost synced records."""
        offset = self._log.flushed_offset
        if offset > self._noted_offset:
            try:
                write_synced(self._log.files, self._log.directory, offset)
            except OSError as error:  # The older value is a valid lower bound.
                logger.warning("Failed to write the synced offset of the metadata log: %s", error)
            else:
                self._noted_offset = offset

    def _postpone(self, error: ShortageError) -> None:
        """Leave the flush to the next `release`; operations that wait for it keep waiting."""
        logger.warning("Postponing the flush of the metadata log: %s", error)
        self._is_due = True
