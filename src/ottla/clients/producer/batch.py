"""The life of a batch: waiting, in flight, done (acknowledged, failed or split), announced.

`MOVES` has the legal transitions up to the outcome; the core makes them under its lock. Afterwards the thread that
executes the core's effects calls `announce` without the lock: it runs the callbacks of the records, marks the batch as
announced and wakes its waiters, in this order. So callbacks have run before `result()` or `flush()` returns, as with
Kafka's Java producer.

Records are encoded when they are appended (`_encoder`), so a batch that waits for its broker consists of bytes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ottla.clients.errors import ClientError
from ottla.clients.producer import _encoder
from ottla.clients.producer._encoder import HEADER_SIZE, UNKNOWN_OFFSET, BatchRecords, Delivery, Encoded, in_callback
from ottla.clients.producer.record_metadata import AppendedRange
from ottla.records import kernels

if TYPE_CHECKING:
    from ottla.clients.producer.partition_queue import PartitionQueue

logger = logging.getLogger("ottla.clients.producer")

# Whether records are appended without the lock of the core: see `_encoder`.
COMPILED = kernels.COMPILED and not _encoder.__file__.endswith(".py")
NOT_YET_MS: float = 1 << 62

# Held while callbacks are added or taken, so that none is missed. One lock for all batches: it is rarely contended.
_callbacks_lock = threading.Lock()


def _nothing(*_: object) -> None:
    """Without a runtime this is neither necessary nor possible."""


def _impossible(*arguments: object) -> None:
    raise ClientError(f"This core has no runtime that could handle {arguments}")


@dataclass(slots=True)
class Runtime:
    """Functions that the sender and the producer set, called without the lock of the core. A core alone cannot wait."""

    hurry: Callable[[], object] = _nothing
    """A caller waits for a batch: let the core `step` soon."""
    wait: Callable[[Any, float | None], object] = _impossible
    """Wait until a batch is announced, at most for the given seconds."""
    add_callback: Callable[[Any, Callable[[Any], object]], object] = _impossible
    """Add a callback to a delivery."""
    run_coroutines: Callable[[list[Coroutine[Any, Any, object]], Callable[[], object]], object] = _impossible
    """Run the coroutines that callbacks returned, and then call the function."""
    report_unread_error: Callable[[Any], object] = _nothing
    """The batch failed, and the program did not ask for the outcome."""


class State(IntEnum):
    WAITING = 0  # in its partition's queue; the last batch there may be open
    IN_FLIGHT = 1
    SPLIT = 2  # replaced by its pieces; done when they are
    DONE = 3


class Event(IntEnum):
    SENT = 0
    RETURNED = 1  # to its queue, to be sent again
    REPLACED = 2  # by its pieces
    FINISHED = 3


MOVES = {
    (State.WAITING, Event.SENT): State.IN_FLIGHT,
    (State.WAITING, Event.REPLACED): State.SPLIT,
    (State.WAITING, Event.FINISHED): State.DONE,  # expired, purged, or the producer was stopped
    (State.IN_FLIGHT, Event.RETURNED): State.WAITING,
    (State.IN_FLIGHT, Event.FINISHED): State.DONE,
    (State.SPLIT, Event.FINISHED): State.DONE,
}


class Batch(BatchRecords):
    """Records for one partition that are sent, acknowledged or refused together."""

    __slots__ = (
        "attempts",
        "deadline_ms",
        "epoch",
        "linger_until_ms",
        "ordinal",
        "producer_id",
        "sequence",
        "state",
        "unsure_until_ms",
        "urgent",
        "waiters",
        "whole",
        "wire",
    )

    queue: PartitionQueue
    pieces: list[Batch] | None

    def __init__(self, queue: PartitionQueue, ordinal: int) -> None:
        super().__init__(queue)
        self.state = State.WAITING
        self.ordinal = ordinal  # ascends within a partition; retries keep this order
        self.linger_until_ms = self.deadline_ms = NOT_YET_MS  # set by the first `step` after the batch was created
        self.wire: tuple[Any, ...] | None = None  # (encoded batch, its header), once encoded
        self.attempts = 0
        self.producer_id = self.epoch = self.sequence = -1
        self.unsure_until_ms: float = 0  # until then a request without a response may still arrive at the broker
        self.urgent = False  # a caller waits: do not linger
        self.waiters: list[Callable[[], object]] = []
        self.whole: Batch | None = None  # the batch that this is a piece of

    def move(self, event: Event) -> None:
        """Make a transition of `MOVES`; any other is a defect of the caller (KeyError)."""
        self.state = MOVES[self.state, event]

    def fill(self, body: Encoded) -> None:
        """Use records that are encoded already, instead of appending one by one."""
        self.out, self.count, self.base_timestamp, self.max_timestamp, _ = body
        self.size = len(self.out) - HEADER_SIZE

    def finish(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """Record the outcome and release the bytes. A split batch finishes with the last of its pieces."""
        self.move(Event.FINISHED)
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.out = bytearray()
        self.wire = None
        self.done = True
        if self.pieces is None and not self.callbacks:
            self.announced = True
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.done for piece in whole.pieces):
            errors = [piece.error for piece in whole.pieces if piece.error is not None]
            whole.finish(UNKNOWN_OFFSET, -1, errors[0] if errors else None)
            whole.announced = all(piece.announced for piece in whole.pieces)

    def replace_by(self, pieces: list[Batch]) -> None:
        """Hand records and callbacks to `pieces`, which have the same records in the same order."""
        self.move(Event.REPLACED)
        for piece in pieces:
            piece.whole = self
        self.pieces = pieces
        self.out = bytearray()
        self.wire = None
        for index in range(0, len(self.callbacks), 2):
            delivery = self.callbacks[index]
            self.leaf(delivery._index)[0].callbacks.extend((delivery, self.callbacks[index + 1]))  # noqa: SLF001
        self.callbacks = []

    def leaves(self) -> list[Batch]:
        """The batches that contain the records after all splits: this one, or its pieces, or theirs."""
        if self.pieces is None:
            return [self]
        return [leaf for piece in self.pieces for leaf in piece.leaves()]

    def announce(self) -> None:
        """Run the callbacks of the records in order, then wake the waiters. The batch must be done.

        The runtime runs coroutines that callbacks returned; the batch is announced when they have ended. Several
        threads may call this at the same time: each callback runs once.
        """
        token = in_callback.set(True)
        try:
            started = self._run_callbacks()
        except BaseException:  # Ctrl-C in a callback: the waiters must be woken all the same
            self._conclude()
            raise
        finally:
            in_callback.reset(token)
        if started:
            self.queue.runtime.run_coroutines(started, self.announce)
        else:
            self._conclude()

    def _run_callbacks(self) -> list[Coroutine[Any, Any, object]]:
        started: list[Coroutine[Any, Any, object]] = []
        while callbacks := self._take_callbacks(is_last=not started):
            self.looked_at = True
            for index in range(0, len(callbacks), 2):
                coroutine = call_back(callbacks[index + 1], callbacks[index], self.queue)
                if coroutine is not None:
                    started.append(coroutine)
        return started

    def _take_callbacks(self, is_last: bool) -> list[Any]:
        """The callbacks to run now. If there are none and `is_last`, `add_callback` refuses later ones."""
        with _callbacks_lock:
            callbacks, self.callbacks = self.callbacks, []
            if not callbacks and is_last:
                self.announced = True
        return callbacks

    def _conclude(self) -> None:
        self.announced = True
        self.wake()
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.announced for piece in whole.pieces):
            whole.announce()

    def add_callback(self, delivery: Delivery, callback: Callable[[Any], object]) -> bool:
        """Have `callback(delivery)` run when the batch is announced; False if it already is."""
        with _callbacks_lock:
            if not self.announced:
                self.callbacks.extend((delivery, callback))
            return not self.announced

    def wake(self) -> None:
        """Wake the waiters. Several threads may do so at the same time for the pieces of one batch."""
        while self.waiters:
            try:
                waiter = self.waiters.pop()
            except IndexError:
                return
            waiter()

    def wait_with(self, wake: Callable[[], object]) -> bool:
        """Call `wake()` when the batch is announced; False if it already is (then `wake` may be called or not)."""
        self.urgent = True
        if self.pieces is not None:
            for piece in self.leaves():
                piece.urgent = True
        self.waiters.append(wake)
        return not self.announced

    def __del__(self) -> None:
        """Report a failure that the program never asked for: no callback, no `result()`."""
        if self.error is not None and not self.looked_at and self.pieces is None:
            self.queue.runtime.report_unread_error(self)


def call_back(
    callback: Callable[[Any], object], delivery: Delivery, queue: object
) -> Coroutine[Any, Any, object] | None:
    try:
        returned = callback(delivery)
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit or a cancelled future's: the other callbacks must run all the same
        logger.exception("A delivery callback failed for %s", queue)
        return None
    return returned if isinstance(returned, Coroutine) else None


class Batches:
    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def done(self) -> bool:
        return all(batch.announced for batch in self._batches)

    def peek(self) -> list[AppendedRange]:
        """The positions of the rows, once done. Raises the first failure (other batches may have been written)."""
        leaves = [leaf for batch in self._batches for leaf in batch.leaves()]
        for batch in leaves:
            batch.looked_at = True
        for batch in leaves:
            if batch.error is not None:
                raise batch.error
        return [
            AppendedRange(batch.queue.topic, batch.queue.partition, batch.base_offset, batch.count) for batch in leaves
        ]
