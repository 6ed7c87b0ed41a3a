"""Reads a range of offsets of one partition as columns, and then the next range: for who plans by himself what to read.

Nothing is fetched twice nor beyond the fetch in which the range ends, so a reader that is kept costs a range no
connection, and the broker nothing while it waits for the next. Blocks the calling thread; the network is the driver's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Self

from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.engine import Engine
from ottla.clients.consumer.options import read_consumer_options
from ottla.clients.consumer.sinks import ColumnSink
from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, Closed, OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition

logger = logging.getLogger("ottla.clients.consumer")

GONE_S = 10.0
"""How long a topic may be unknown, or a log end before the range does, before that is believed."""
LOOK_AGAIN_S = 1.0
CLOSE_S = 2.0


class RecordsLost(ClientError):
    """Records of the range are not in the log (any more): `offset` is the first, `until` the first that is there.

    `until` is the end of the range if nothing of it is there.
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, until: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.until = until


class RangeSink(ColumnSink):
    """Columns of at most `most_bytes` of records that end where the range does, but for a gap at its end."""

    __slots__ = ("_end", "position")

    def __init__(self, position: int, end: int, most_bytes: int) -> None:
        super().__init__(end - position, most_bytes)
        self._end = end
        self.position = position

    @property
    def full(self) -> bool:
        """Whether no more fit, or are wanted."""
        return self.position >= self._end or super().full

    def take(self, fetched: Fetched) -> None:
        """Take what one step gives. Raises CorruptRecords."""
        super().take(fetched)
        self.position = max(self.position, fetched.next_offset)


class RangeReader:
    """Reads ranges one after another, with a consumer's settings; group and reset are not looked at.

    Belongs to one thread at a time, and not to a forked child.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        options = read_consumer_options({**settings, "group.id": None, "auto.offset.reset": "none"})
        self._patience_s = options["default_api_timeout_ms"] / 1000
        self._ready = threading.Event()
        self._engine = Engine(options, self._ready.set)
        self._driver = Driver("ottla-ranges")
        self._driver.call_soon(self._engine.start, self._driver.loop)

    def read(self, topic: str, partition: int, start: int, end: int, most_bytes: int) -> Iterator[RangeSink]:
        """The records from `start` to before `end`, as sinks that each have some; the last may have a few too many.

        Blocks while there are none, but no longer than default.api.timeout.ms. Raises RecordsLost, after which the
        range may be read from its `until` on; CorruptRecords; RequestTimedOut; what is not retriable.
        """
        tp = TopicPartition(topic, partition)
        self._aim(tp, start, end)
        position = start
        while position < end:
            sink = RangeSink(position, end, most_bytes)
            self._fill(tp, sink, end)
            position = sink.position
            if len(sink):
                yield sink

    def _aim(self, tp: TopicPartition, start: int, end: int) -> None:
        def aim(core: ConsumerCore) -> None:
            core.assign([tp])
            state = core.positions.of(tp)
            state.until = end
            state.high_watermark = -1
            core.seek(tp, start)

        self._engine.change(aim)

    def _fill(self, tp: TopicPartition, sink: RangeSink, end: int) -> None:
        """Wait until the sink has records, or the range ends."""
        engine = self._engine
        began, position = time.monotonic(), sink.position
        problem: ClientError | None = None
        engine.begin_poll()
        try:
            while True:
                self._ready.clear()
                try:
                    engine.step(sink)
                except OffsetOutOfRange as error:
                    raise self._lost(tp, position, end) from error
                except ClientError as error:
                    if not error.retriable:
                        raise
                    problem = error
                if len(sink) or sink.position >= end:
                    return
                now = time.monotonic()
                if sink.position > position:
                    began, position, problem = now, sink.position, None
                if now - began >= GONE_S:
                    self._refuse_what_is_gone(tp, position, end)
                if now - began >= self._patience_s:
                    raise self._out_of_patience(tp, position, problem)
                self._ready.wait(min(LOOK_AGAIN_S, began + self._patience_s - now))
        finally:
            engine.end_poll()

    def _out_of_patience(self, tp: TopicPartition, position: int, problem: ClientError | None) -> RequestTimedOut:
        why = str(problem or "") or self._engine.cluster.problems
        if not why and self._engine.cluster.view.leader(*tp) is None:
            why = "the leader of the partition is not known"
        return RequestTimedOut(
            f"{tp} at offset {position}: no records within {self._patience_s:g} s" + (f" ({why})" if why else "")
        )

    def _lost(self, tp: TopicPartition, position: int, end: int) -> RecordsLost:
        """What became of an offset that the log does not have."""
        earliest = self._offset_of(tp, -2)
        latest = self._offset_of(tp, -1)
        until = earliest if position < earliest < end else end
        return RecordsLost(
            f"{tp}: offsets {position} to {until - 1} are not in the log, which has {earliest} to {latest - 1}",
            topic=tp.topic, partition=tp.partition, offset=position, until=until,
        )  # fmt: skip

    def _offset_of(self, tp: TopicPartition, which: int) -> int:
        row = self._driver.run(self._engine.list_offsets({tp: which}, self._patience_s))[tp]
        return -1 if row is None else row[0]

    def _refuse_what_is_gone(self, tp: TopicPartition, position: int, end: int) -> None:
        view = self._engine.cluster.view
        partitions = view.partitions(tp.topic)
        unknown = view.topic_errors.get(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unknown or (partitions is not None and tp.partition not in partitions):
            raise RecordsLost(
                f"{tp}: the {'topic' if unknown else 'partition'} does not exist (any more), so offsets {position} to "
                f"{end - 1} are lost", topic=tp.topic, partition=tp.partition, offset=position, until=end,
            ) from UnknownTopicOrPartition()  # fmt: skip
        reached = self._engine.change(lambda core: core.positions.of(tp).high_watermark)
        if 0 <= reached <= position:
            raise RecordsLost(
                f"{tp}: the log ends at offset {reached}, before the range does ({end}): records were lost",
                topic=tp.topic, partition=tp.partition, offset=position, until=end,
            )  # fmt: skip

    @property
    def usable(self) -> bool:
        """Whether it can be used here: not after `close`, nor in a forked child."""
        try:
            self._driver.check()
        except ClientError:
            return False
        return not self._engine.closed

    def close(self) -> None:
        """End all connections. Does nothing the second time, nor in a forked child."""
        if not self.usable:
            return
        try:
            self._driver.run(self._engine.close(CLOSE_S), CLOSE_S + 1)
        except Closed:
            return
        finally:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
