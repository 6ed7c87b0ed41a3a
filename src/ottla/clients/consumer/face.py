"""What both faces of the consumer share: everything that does not wait.

`AsyncConsumer` and `Consumer` add how to wait: on an event loop of the caller's, or in the caller's thread.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic

from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.deserializers import Deserializers, deserializer
from ottla.clients.consumer.engine import Chosen, Engine, compiled, topic_list
from ottla.clients.consumer.membership import Duty
from ottla.clients.consumer.options import read_consumer_options
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.requests import GroupMetadata, OffsetAndMetadata
from ottla.clients.errors import ClientError, Closed, ConcurrentUse, ConfigurationError, NotAssigned, Wakeup
from ottla.clients.options import merged
from ottla.clients.values import as_timestamp_ms
from ottla.common.ids import TopicPartition

CLOSE_S = 10.0
"""How long close may take, all in all."""
ON_TIME_S = 5.0
"""How long a commit before a partition is given up may take."""
ARROW_RECORDS = 65_536
Listener = Callable[[list[TopicPartition]], Any]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class ConsumerFace(Generic[K, V]):
    """The part of a consumer that does not wait. Use `Consumer` or `AsyncConsumer`."""

    def __init__(
        self, settings: Mapping[str, object] | None, given: Mapping[str, object], notify: Callable[[], None]
    ) -> None:
        self._notify = notify
        options = read_consumer_options(merged(settings, given))
        self._options = options
        self._deserializers = Deserializers(
            deserializer(options["key_deserializer"], "key.deserializer"),
            deserializer(options["value_deserializer"], "value.deserializer"),
            skip=options["on_deserialization_error"] == "skip",
        )
        # The engine must not refer to the consumer, or one that the program dropped would never be collected.
        self._engine = Engine(options, notify)
        self._listeners: dict[str, Listener] = {}
        # Records that an iteration has taken and not yielded yet.
        self._left: deque[Record[K, V]] = deque()
        # Held by who polls or closes. Taken without waiting, but by close.
        self._turn = threading.Lock()
        self._polls: object = None
        self._ending = False
        self._woken = False
        self._pid = os.getpid()

    def _me(self) -> object:
        """Who calls: the thread, or the task."""
        raise NotImplementedError

    def _check_process(self) -> None:
        """Raise ClientError in a forked child: it would read what the parent has buffered, a second time."""
        if self._pid != os.getpid():
            raise ClientError("This consumer was made before a fork: make one in each process")

    def _begin(self) -> None:
        self._check_process()
        if self._ending:
            raise Closed("The consumer was closed")
        if not self._turn.acquire(blocking=False):
            raise ConcurrentUse("A poll of this consumer is under way, in another thread or around this listener")
        self._polls = self._me()

    def _done(self) -> None:
        self._polls = None
        self._turn.release()

    def _begin_to_end(self) -> bool:
        """Have who polls stop; False if there is nothing left to close."""
        if self._engine.closed:
            return False
        if self._polls is not None and self._polls == self._me():
            raise ConcurrentUse("A listener cannot close its consumer: leave the loop that polls, then close")
        self._ending = True
        self._notify()
        return True

    def wakeup(self) -> None:
        """End the poll that is under way, or else the next, with Wakeup.

        From any thread or signal handler; that of AsyncConsumer from its own thread.

        A poll that has records already may hand them over first; nothing is lost.
        """
        self._woken = True
        self._notify()

    def _look_around(self) -> None:
        """In a poll, before it waits."""
        if self._woken:
            self._woken = False
            raise Wakeup("The poll was ended by wakeup()")

    # -- what to read --------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Share topics with the group: these, or all whose whole name matches `pattern`, now or later.

        Partitions come and go in later polls. There, `on_assigned` gets the new partitions, `on_revoked` those that are
        given up (still ours: commit there) and `on_lost` those that are another's already (default: `on_revoked`).
        Replaces the subscription before. Raises ConfigurationError without group.id, or after `assign`.
        """
        if (topics is None) == (pattern is None):
            raise ConfigurationError("subscribe takes either topics or a pattern")
        wanted, matcher = topic_list(topics), compiled(pattern)
        listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost or on_revoked}
        self._engine.change(lambda core: core.subscribe(wanted, matcher))
        self._listeners = {kind: listener for kind, listener in listeners.items() if listener is not None}

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, whatever others do; replaces the assignment before.

        With a group.id the committed offsets are where it begins. Raises ConfigurationError after `subscribe`.
        """
        wanted = [_partition(tp) for tp in partitions]
        self._engine.change(lambda core: core.assign(wanted))
        self._drop_left({record.topic_partition for record in self._left}.difference(wanted))

    def incremental_assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions too; the others keep their positions. Otherwise as `assign`."""
        self.assign([*self.assignment(), *(_partition(tp) for tp in partitions)])

    def incremental_unassign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Stop reading these partitions; the others keep their positions. Raises NotAssigned."""
        leaving = {_partition(tp) for tp in partitions}
        assigned = self.assignment()
        for tp in leaving.difference(assigned):
            raise NotAssigned(f"{tp} is not assigned to this consumer")
        self.assign([tp for tp in assigned if tp not in leaving])

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer has now, sorted."""
        return self._engine.change(lambda core: core.positions.assigned())

    def subscription(self) -> list[str]:
        """The topics that it is subscribed to, sorted; with a pattern those that match."""
        return self._engine.change(lambda core: sorted(core.topics) if core.subscribed else [])

    # -- where to read -------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Start the next poll of `partition` at `offset`; what is buffered is dropped, nothing is committed.

        With an OffsetAndMetadata that has a leader epoch it is found out whether the log was truncated since.
        Raises NotAssigned (not retriable) if the partition is not this consumer's.
        """
        tp = TopicPartition(*partition)
        row = (offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)).checked()
        self._drop_left([tp])
        self._engine.change(lambda core: core.seek(tp, row.offset, row.leader_epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Start the next poll of these (None: all assigned) at the first record. Raises NotAssigned."""
        self._reset(partitions, -2)

    def seek_to_end(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Start the next poll of these (None: all assigned) after the last record that is there. Raises NotAssigned."""
        self._reset(partitions, -1)

    def seek_to_timestamp(
        self, timestamp_ms: int | datetime, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> None:
        """Start at the first record whose timestamp (ms since the epoch, or a datetime) is not less.

        It is the end if there is none.
        """
        self._reset(partitions, as_timestamp_ms(timestamp_ms))

    def _reset(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None, timestamp: int) -> None:
        tps = self.assignment() if partitions is None else [TopicPartition(*tp) for tp in partitions]
        self._drop_left(tps)
        for tp in tps:
            self._engine.change(lambda core, tp=tp: core.reset(tp, timestamp))  # type: ignore[misc]

    def pause(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Hand over nothing of these until `resume`; they stay ours, with their positions. Raises NotAssigned."""
        tps = [TopicPartition(*tp) for tp in partitions]
        self._engine.change(lambda core: core.pause(tps))
        left = [record for record in self._left if record.topic_partition in tps]
        self._drop_left(tps)
        self._engine.change(lambda core: core.give_back(left))

    def resume(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Go on with these. Raises NotAssigned."""
        tps = [TopicPartition(*tp) for tp in partitions]
        self._engine.change(lambda core: core.resume(tps))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return self._engine.change(lambda core: sorted(state.tp for state in core.positions if state.paused))

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the position and the end as the last fetch saw it; None before there was one.

        With read_committed the end is the last stable offset. Raises NotAssigned.
        """

        def look(core: ConsumerCore) -> int | None:
            core.want()
            return core.positions.of(TopicPartition(*partition)).lag(core.isolation)

        return self._engine.change(look)

    def store_offsets(self, records: Record[K, V] | Iterable[Record[K, V]] | Offsets) -> None:
        """Count these records as processed: auto-commit, and `commit` without offsets, commit what follows them.

        Takes one record, several, or offsets of the next records to read by partition. Needs
        enable.auto.offset.store=false. Raises NotAssigned, ValueError for an offset that was not handed over yet.
        """
        offsets = _offsets_after(records)
        self._engine.change(lambda core: core.store(offsets))

    def group_metadata(self) -> GroupMetadata:
        """The group, generation, member id and instance id of this consumer."""
        return self._engine.change(lambda core: core.group_metadata())

    @property
    def member_id(self) -> str:
        """The id that the group gave this consumer; empty while it is not a member."""
        return self.group_metadata().member_id

    def metrics(self) -> dict[str, float]:
        """Counts of records, bytes and connections, by the names of Kafka's consumer; `-total` only grows."""
        return self._engine.metrics()

    # -- for the faces -------------------------------------------------------------------------------------------

    def _drop_left(self, partitions: Iterable[TopicPartition]) -> None:
        if self._left:
            dropped = set(partitions)
            self._left = deque(r for r in self._left if r.topic_partition not in dropped)

    def _deserialized(self, records: list[Record[K, V]]) -> list[Record[K, V]]:
        """The records as the user wants them; those after one that cannot be read come in a later poll."""
        if not self._deserializers.active or not records:
            return records
        made, failed = self._deserializers.apply(records)
        if failed is None:
            return made
        self._engine.change(lambda core: core.give_back(records[len(made) + (not made) :]))
        if not made:
            raise failed
        return made

    def _to_commit(self, offsets: Offsets | None) -> Chosen:
        given = None if offsets is None else {
            TopicPartition(*tp): (row if isinstance(row, OffsetAndMetadata) else OffsetAndMetadata(row)).checked()
            for tp, row in offsets.items()
        }  # fmt: skip

        def choose(core: ConsumerCore) -> Chosen:
            chosen = core.handed_over(self._left) if given is None else given
            return chosen, core.held(chosen)

        return self._engine.change(choose)

    def _last_duty(self) -> Duty | None:
        """What is given up when the consumer ends."""

        def look(core: Any) -> Duty | None:
            member = core.membership
            if member is None or not member.owned:
                return None
            return Duty("revoked" if member.generation >= 0 else "lost", tuple(sorted(member.owned)))

        return self._engine.change(look)

    def _settle(self) -> None:
        """The user is done with all that was handed over, but not with what an iteration has left."""

        def settle(core: Any) -> None:
            core.give_back(self._left)
            core.settle()

        self._engine.change(settle)
        self._left.clear()


def _offsets_after(records: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """By partition, the offset after the last of these records; or the given offsets, checked."""
    if isinstance(records, Mapping):
        return {
            _partition(tp): (row if isinstance(row, OffsetAndMetadata) else OffsetAndMetadata(row)).checked()
            for tp, row in records.items()
        }
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in [records] if isinstance(records, Record) else records:
        known = found.get(record.topic_partition)
        if known is None or record.offset >= known.offset:
            found[record.topic_partition] = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
    return found


def timestamps_by_partition(given: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    """The timestamps to look for, by partition. Raises ValueError, TypeError."""
    return {_partition(tp): as_timestamp_ms(timestamp) for tp, timestamp in given.items()}


def _partition(given: Any) -> TopicPartition:
    """The partition that is meant; raises TypeError for a topic's name alone, whose letters would be taken apart."""
    if not isinstance(given, str) and len(given) == 2 and not isinstance(given[1], str):
        return TopicPartition(*given)
    raise TypeError(f"A partition is a TopicPartition or (topic, number), not {given!r}")
