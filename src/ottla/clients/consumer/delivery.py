"""Moves buffered records into the result of a poll, and tracks which records earlier polls returned.

`fill` walks the partitions in order until the result is full. It drains one partition before it begins the next, so
that the records of a partition stay together. The last partition it took from then moves to the end of the order, so
that a fast partition does not starve the others. A poll costs O(assigned partitions + records returned).

The records of a poll count as settled when the next poll begins (`settle`), not when they are returned: a program that
crashes while it works on them reads them again.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable
from typing import Protocol

from ottla.clients.consumer.collectors import Collector
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effects import Outbox
from ottla.clients.consumer.positions import PartitionState, Phase, Positions, Progress
from ottla.clients.errors import CorruptRecords
from ottla.common.ids import TopicPartition

logger = logging.getLogger("ottla.clients.consumer")


class Located(Protocol):
    """A record, or a row, with its place in a log."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def offset(self) -> int: ...


class Delivery:
    """The records that polls return. With `skip_corrupt`, a corrupt batch is logged and skipped."""

    def __init__(self, positions: Positions, outbox: Outbox, *, skip_corrupt: bool) -> None:
        self._positions = positions
        self._outbox = outbox
        self._skip_corrupt = skip_corrupt
        self._unsettled: set[TopicPartition] = set()
        self.records_consumed = self.bytes_consumed = 0

    @property
    def is_ready(self) -> bool:
        return any((s.buffer.parts or s.lookup.error) and not s.paused for s in self._positions)

    # -- filling ------------------------------------------------------------------------------------------------

    def fill(self, collector: Collector) -> None:
        """Move buffered records to `collector` and advance the positions.

        Raises CorruptRecords or the error of a position, but only if the collector is empty. Otherwise the error of a
        position stays, and CorruptRecords becomes the error of the next poll.
        """
        collector.expect(self._positions.buffered_bytes)
        # Records are in no cycles, but traversing them in each collection costs more than creating them.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._fill(collector)
        finally:
            if was_enabled:
                gc.enable()
        self.records_consumed += len(collector)

    def _fill(self, collector: Collector) -> None:
        last: TopicPartition | None = None
        for state in self._positions:
            if state.paused:
                continue
            if state.lookup.error is not None:
                if len(collector):
                    break
                # Each poll raises it; without this, its traceback would grow by the frames of each.
                raise state.lookup.error.with_traceback(None)
            if state.buffer.parts:
                count = len(collector)
                try:
                    self._fill_from(state, collector)
                except CorruptRecords as error:
                    if not len(collector):
                        raise
                    self._outbox.poll_error = error
                if len(collector) > count:
                    last = state.tp
                if collector.is_full or self._outbox.poll_error is not None:
                    break
        if last is not None:
            self._positions.move_to_end(last)

    def _fill_from(self, state: PartitionState, collector: Collector) -> None:
        parts = state.buffer.parts
        while parts and not collector.is_full:
            fetched = parts[0]
            try:
                collector.take(fetched)
            except CorruptRecords as error:
                self._handle_corrupt(state, fetched, error)
                continue
            state.offset = fetched.next_offset
            if fetched.epoch >= 0:
                state.read.epoch = fetched.epoch
            self._unsettled.add(state.tp)
            if fetched.exhausted:
                self._remove_exhausted(state)

    def _remove_exhausted(self, state: PartitionState) -> None:
        self.bytes_consumed += state.buffer.pop()
        self._outbox.needs_advance = True

    def _handle_corrupt(self, state: PartitionState, fetched: Fetched, error: CorruptRecords) -> None:
        """Fetch a corrupt batch a second time, in case the network corrupted it, and then skip it.

        Raises the error when the batch is skipped, unless `skip_corrupt` is set.
        """
        if state.buffer.refetched_at != error.offset:
            progress = state.progress
            state.seek(state.offset)
            state.progress, state.buffer.refetched_at = progress, error.offset
            self._outbox.needs_advance = True
            return
        state.offset = fetched.next_offset
        if fetched.exhausted:
            self._remove_exhausted(state)
        if not self._skip_corrupt:
            raise error
        logger.error("Skipped: %s", error)

    # -- progress -----------------------------------------------------------------------------------------------

    def settle(self, *, as_processed: bool = True) -> None:
        """Settle all records returned so far; `as_processed`: they also count as processed."""
        for tp in self._unsettled:
            state = self._positions.get(tp)
            if state is not None and state.phase is Phase.FETCH:
                state.progress = Progress(state.offset if as_processed else state.progress.processed, state.offset)
        self._unsettled.clear()

    def forget_unassigned(self) -> None:
        self._unsettled = {tp for tp in self._unsettled if tp in self._positions}

    def give_back(self, records: Iterable[Located]) -> None:
        """Return these records again in a later poll: the last poll returned them, but the user has not seen them."""
        first_offsets: dict[TopicPartition, int] = {}
        for record in records:
            first_offsets.setdefault(record.topic_partition, record.offset)
        for tp, offset in first_offsets.items():
            state = self._positions.get(tp)
            if state is not None:
                progress = state.progress
                state.seek(offset)
                state.progress = Progress(*(None if each is None else min(each, offset) for each in progress))
        self._outbox.needs_advance = True

    def revert_poll(self) -> None:
        """Return to the settled positions: an exception interrupted the poll, wherever it was."""
        for state in self._positions:
            processed, settled = state.progress
            if state.phase is Phase.FETCH and settled is not None:
                state.seek(settled)
                state.progress = Progress(processed, settled)
            else:
                state.drop_buffer()
        self._outbox.needs_advance = True
