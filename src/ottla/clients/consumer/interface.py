"""The common part of `Consumer` and `AsyncConsumer`: methods that do not wait, and the coroutines of others.

`AsyncConsumer` waits on the caller's event loop, and `Consumer` in the caller's thread: see `ottla.clients.waits`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.clients import late
from ottla.clients.consumer.client import CommitPlan, ConsumerClient
from ottla.clients.consumer.collectors import Collector, ColumnCollector
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.group_member import Duty
from ottla.clients.consumer.reader import CLOSE_S, GRACE_S, Reader
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.settings import EARLIEST, LATEST, read_settings
from ottla.clients.consumer.subscription import SubscriptionPattern, TopicMatcher
from ottla.clients.errors import ClientError, Closed, ConcurrentUse, ConfigurationError, NotAssigned, Wakeup
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.options import merged
from ottla.clients.values import as_timestamp_ms
from ottla.clients.waits import Waits
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("ottla.clients.consumer")

REVOKE_COMMIT_S: Final = 5.0
"""How long a commit before a partition is revoked may take."""
ARROW_RECORDS: Final = 65_536
Listener = Callable[[list[TopicPartition]], Any]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class ConsumerInterface(Reader[K, V]):
    """The methods of both consumers that do not wait. Use `Consumer` or `AsyncConsumer`."""

    _client: ConsumerClient

    def __init__(self, settings: Mapping[str, object] | None, given: Mapping[str, object], waits: Waits) -> None:
        super().__init__(waits)
        self._notify = self._ready.set
        options, self._settings = read_settings(merged(settings, given))
        self._deserializers = self._read_deserializers(options, skip=self._settings.skip_deserialization_errors)
        self._client = ConsumerClient(options, self._settings, self._notify)
        self._listeners: dict[str, Listener] = {}
        # Records that an iteration has polled and not yielded yet.
        self._pending: deque[Record[K, V]] = deque()
        self._turn_owner: object = None
        self._woken = False

    def _begin(self) -> None:
        super()._begin()
        self._turn_owner = self._waits.caller()

    def _done(self) -> None:
        self._turn_owner = None
        self._turn.release()

    def _begin_close(self) -> bool:
        """Make the current poll end. Returns False if the consumer is closed already."""
        if self._client.closed:
            return False
        if self._turn_owner is not None and self._turn_owner == self._waits.caller():
            raise ConcurrentUse("A listener cannot close its consumer: end the poll loop, then call close")
        self._closing = True
        self._notify()
        return True

    def wakeup(self) -> None:
        """End the current poll, or else the next one, with Wakeup.

        May be called from any thread or signal handler; for AsyncConsumer, from its own thread. A poll that has records
        may return them first; nothing is lost.
        """
        self._woken = True
        self._notify()

    # -- reading -------------------------------------------------------------------------------------------------

    async def _poll(self, timeout_s: float, collector: Collector) -> None:
        """Fill `collector`, or wait for records until `timeout_s` seconds are over."""
        deadline = time.monotonic() + timeout_s
        client = self._client
        client.begin_poll()
        try:
            while True:
                self._ready.clear()
                if self._woken:
                    self._woken = False
                    raise Wakeup("The poll was ended by wakeup()")
                duty = client.step(collector)
                if duty is not None:
                    await self._do(duty)
                elif len(collector):
                    return
                else:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or self._closing:
                        return
                    await self._ready.until(left_s)
        finally:
            client.end_poll()

    def _revert_poll(self, error: BaseException) -> None:
        """Return the records of an interrupted poll by the next poll, so that `close` does not commit them.

        Ctrl-C or a signal handler may interrupt a poll anywhere. ClientErrors are raised when no record was taken, or
        after the positions were set; tasks are cancelled while a poll waits and has no record.
        """
        if not isinstance(error, (ClientError, asyncio.CancelledError)) and not self._client.closed:
            self._client.change(lambda core: core.fetch.delivery.revert_poll())

    async def _do(self, duty: Duty, commit_timeout_s: float = REVOKE_COMMIT_S) -> None:
        if duty.kind == "revoked" and self._client.core.auto_commits:
            await self._commit_processed(commit_timeout_s)
        listener = self._listeners.get(duty.kind)
        try:
            if listener is not None:
                await self._waits.listener(listener(list(duty.partitions)))
        finally:
            self._client.duty_done(duty)

    async def _commit_processed(self, timeout_s: float) -> None:
        try:
            await self._waits.run(self._client.commit(None, timeout_s))
        except ClientError as error:
            logger.warning("Commit of positions before partitions are revoked failed: %s", error)

    async def _close(self, timeout_s: float, *, settle: bool) -> None:
        if not self._begin_close():
            return
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        has_turn = await self._waits.acquire(self._turn, timeout_s / 2)
        if has_turn and self._client.closed:  # another thread or task has closed it
            self._turn.release()
            return
        try:
            if has_turn:
                await self._release(min(REVOKE_COMMIT_S, max(0.0, deadline - time.monotonic()) / 2), settle=settle)
        finally:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                await self._waits.run(self._client.close(left_s), left_s + GRACE_S)
            finally:
                self._waits.close()
                self._ready.set()
                if has_turn:
                    self._turn.release()

    async def _exit(self, error: BaseException | None) -> None:
        with suppress(Closed):
            await self._close(CLOSE_S, settle=error is None)

    async def _release(self, commit_timeout_s: float, *, settle: bool) -> None:
        """Commit, and revoke the partitions."""
        if settle:
            self._settle()
        duty = self._last_duty()
        if duty is not None:
            await self._do(duty, commit_timeout_s)
        elif self._client.core.auto_commits:
            await self._commit_processed(commit_timeout_s)

    # -- what to read --------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | TopicMatcher | SubscriptionPattern | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Share topics with the group: these, or all topics whose whole name matches `pattern`, now or later.

        The consumer matches a Python pattern itself, and the broker a SubscriptionPattern (RE2 syntax), which needs
        group.protocol=consumer and does not load the names of all topics.

        Later polls assign and revoke partitions and call the listeners. `on_assigned` gets the new partitions.
        `on_revoked` gets the partitions that are about to be revoked; it may still commit their offsets. `on_lost`
        (default: `on_revoked`) gets the partitions that may belong to another member already. Replaces the previous
        subscription. Raises ConfigurationError without group.id, or after `assign`.
        """
        if (topics is None) == (pattern is None):
            raise ConfigurationError("subscribe takes either topics or a pattern")
        wanted = [topics] if isinstance(topics, str) else None if topics is None else list(topics)
        compiled = pattern if isinstance(pattern, SubscriptionPattern) else _compile(pattern)
        listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost or on_revoked}
        self._client.change(lambda core: core.subscribe(wanted, compiled))
        self._listeners = {kind: listener for kind, listener in listeners.items() if listener is not None}

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, even if other consumers read them too; replaces the previous assignment.

        With a group.id, reading starts at the committed offsets. Raises ConfigurationError after `subscribe`.
        """
        wanted = [_partition(tp) for tp in partitions]
        self._client.change(lambda core: core.assign(wanted))
        self._drop_pending({record.topic_partition for record in self._pending}.difference(wanted))

    def incremental_assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions too; the others keep their positions. Otherwise as `assign`."""
        self.assign([*self.assignment(), *(_partition(tp) for tp in partitions)])

    def incremental_unassign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Stop reading these partitions; the others keep their positions. Raises NotAssigned."""
        removed = {_partition(tp) for tp in partitions}
        assigned = self.assignment()
        for tp in removed.difference(assigned):
            raise NotAssigned(f"{tp} is not assigned to this consumer")
        self.assign([tp for tp in assigned if tp not in removed])

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, sorted."""
        return self._client.change(lambda core: core.fetch.positions.assigned())

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted; with a pattern, the topics that match it."""
        return self._client.change(lambda core: sorted(core.subscribed_topics()))

    # -- where to read -------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Start the next poll of `partition` at `offset`. Buffered records are dropped; nothing is committed.

        With an OffsetAndMetadata that has a leader epoch, the consumer checks whether the log was truncated since.
        Raises NotAssigned (not retriable) if the partition is not assigned to this consumer.
        """
        tp = TopicPartition(*partition)
        row = (offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)).checked()
        self._drop_pending([tp])
        self._client.change(lambda core: core.fetch.seek(tp, row.offset, row.leader_epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Start the next poll of these partitions (None: all assigned) at the first record. Raises NotAssigned."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Start the next poll of these partitions (None: all assigned) after the last record. Raises NotAssigned."""
        self._reset(partitions, LATEST)

    def seek_to_timestamp(
        self, timestamp_ms: int | datetime, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> None:
        """Start at the first record whose timestamp (ms since the epoch, or a datetime) is not less.

        Without such a record, start at the end.
        """
        self._reset(partitions, as_timestamp_ms(timestamp_ms))

    def seek_to_committed(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None) -> None:
        """Start the next poll of these partitions (None: all assigned) at their committed offsets. Raises NotAssigned.

        A partition without a committed offset starts where auto.offset.reset says. Use this after a transaction was
        aborted, to read its records again.
        """
        tps = self.assignment() if partitions is None else [TopicPartition(*tp) for tp in partitions]
        self._drop_pending(tps)

        def forget(core: ConsumerCore) -> None:
            for tp in tps:
                core.fetch.seek_to_committed(tp)

        self._client.change(forget)

    def _reset(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None, timestamp: int) -> None:
        tps = self.assignment() if partitions is None else [TopicPartition(*tp) for tp in partitions]
        self._drop_pending(tps)

        def reset(core: ConsumerCore) -> None:
            for tp in tps:
                core.fetch.reset(tp, timestamp)

        self._client.change(reset)

    def pause(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Return no records of these partitions until `resume`. They keep their positions. Raises NotAssigned."""
        tps = [TopicPartition(*tp) for tp in partitions]
        self._client.change(lambda core: core.fetch.pause(tps))
        dropped = [record for record in self._pending if record.topic_partition in tps]
        self._drop_pending(tps)
        self._client.change(lambda core: core.fetch.delivery.give_back(dropped))

    def resume(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Return records of these partitions again. Raises NotAssigned."""
        tps = [TopicPartition(*tp) for tp in partitions]
        self._client.change(lambda core: core.fetch.resume(tps))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions, sorted."""
        return self._client.change(lambda core: sorted(state.tp for state in core.fetch.positions if state.paused))

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Return the number of records between the position and the end at the last fetch; None before a fetch.

        With read_committed the end is the last stable offset. Raises NotAssigned.
        """

        def lag(core: ConsumerCore) -> int | None:
            core.fetch.want()
            state = core.fetch.positions.of(TopicPartition(*partition))
            return state.lag(core.fetch.settings.isolation_level)

        return self._client.change(lag)

    def store_offsets(self, records: Record[K, V] | Iterable[Record[K, V]] | Offsets) -> None:
        """Count these records as processed.

        Automatic commits, and `commit` without offsets, commit the offsets after these records. Takes one record,
        several, or a mapping from partitions to the offsets of the next records to read. Requires
        enable.auto.offset.store=false. Raises NotAssigned, or ValueError for an offset that poll has not returned yet.
        """
        offsets = _offsets_after(records)
        self._client.change(lambda core: core.store(offsets))

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that `commit` would commit now, for `send_offsets_to_transaction` of a producer."""
        return self._client.change(lambda core: core.returned(self._pending))

    def group_metadata(self) -> GroupMetadata:
        """Return the group, generation, member id and instance id of this consumer.

        After the group has removed the consumer, they belong to its last membership, until it has joined again.
        """
        return self._client.change(lambda core: core.group_metadata())

    @property
    def auto_commits(self) -> bool:
        """Whether this consumer commits its positions by itself: it has a group and `enable.auto.commit`."""
        return self._client.core.auto_commits

    @property
    def member_id(self) -> str:
        """The member id that the group assigned to this consumer; empty while it is not a member."""
        return self._client.change(lambda core: core.member_id)

    def metrics(self) -> dict[str, float]:
        """Return counts of records, bytes and connections by the names of Kafka's consumer; `-total` only grows."""
        return self._client.metrics()

    # -- for the subclasses --------------------------------------------------------------------------------------

    async def _log_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*tp): timestamp for tp in partitions}
        rows = await self._waits.run(self._client.queries.list_offsets(wanted, timeout_s))
        return {tp: row[0] for tp, row in rows.items() if row is not None}

    def _drop_pending(self, partitions: Iterable[TopicPartition]) -> None:
        if self._pending:
            dropped = set(partitions)
            self._pending = deque(r for r in self._pending if r.topic_partition not in dropped)

    def _give_back_pending(self) -> None:
        """Return the pending records of an iteration in a later poll."""
        if self._pending:
            self._client.change(lambda core: core.fetch.delivery.give_back(self._pending))
            self._pending.clear()

    def _take_pending(self) -> list[Record[K, V]]:
        records, self._pending = list(self._pending), deque()
        return records

    async def _deserialized(self, records: list[Record[K, V]]) -> list[Record[K, V]]:
        """Return the records with deserialized keys and values.

        If a record cannot be deserialized, the records after it are returned by a later poll. So is the record itself
        if records precede it; otherwise its error is raised. A record whose error is retriable is returned again.
        """
        if not self._deserializers.active or not records:
            return records
        try:
            made, failed = await self._apply(self._deserializers.apply, records)
        except asyncio.CancelledError:
            self._client.change(lambda core: core.fetch.delivery.give_back(records))
            raise
        if failed is None:
            return made
        first = len(made) if made or failed.retriable else 1
        self._client.change(lambda core: core.fetch.delivery.give_back(records[first:]))
        if not made:
            raise failed
        return made

    async def _decoded(self, collector: ColumnCollector) -> pa.RecordBatch:
        """Return the columns of a poll, decoded by the deserializers of columns. Errors as for `_deserialized`."""
        batch = late.arrow.to_arrow(collector)
        if not self._deserializers.has_columns or not len(batch):
            return batch
        places = partial(late.arrow.places, collector.runs, batch)
        try:
            decoded, failed = await self._apply(self._deserializers.apply_columns, batch)
        except asyncio.CancelledError:
            self._client.change(lambda core: core.fetch.delivery.give_back(places(0)))
            raise
        if failed is None:
            return decoded
        first = len(decoded) if len(decoded) or failed.retriable else 1
        self._client.change(lambda core: core.fetch.delivery.give_back(places(first)))
        if not len(decoded):
            raise failed
        return decoded

    def _commit_plan(self, offsets: Offsets | None) -> CommitPlan:
        given = None if offsets is None else _checked(offsets)

        def plan(core: ConsumerCore) -> CommitPlan:
            chosen = core.returned(self._pending) if given is None else given
            return chosen, {} if core.commits is None else core.commits.assignments(chosen)

        return self._client.change(plan)

    def _last_duty(self) -> Duty | None:
        """Return the duty of a consumer that is closed: to revoke what it owns."""

        def last_duty(core: ConsumerCore) -> Duty | None:
            member = core.membership
            if member is None or not member.owned:
                return None
            return Duty("revoked" if member.generation >= 0 else "lost", tuple(sorted(member.owned)))

        return self._client.change(last_duty)

    def _settle(self) -> None:
        """Count all returned records as processed, except the pending records of an iteration."""

        def settle(core: ConsumerCore) -> None:
            core.fetch.delivery.give_back(self._pending)
            core.settle()

        self._client.change(settle)
        self._pending.clear()


def _checked(offsets: Mapping[Any, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*tp): (row if isinstance(row, OffsetAndMetadata) else OffsetAndMetadata(row)).checked()
        for tp, row in offsets.items()
    }


def _offsets_after(records: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset after the last of these records by partition; or the given offsets, checked."""
    if isinstance(records, Mapping):
        return _checked({_partition(tp): row for tp, row in records.items()})
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in [records] if isinstance(records, Record) else records:
        known = found.get(record.topic_partition)
        if known is None or record.offset >= known.offset:
            found[record.topic_partition] = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
    return found


def timestamps_by_partition(given: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    """Check timestamps to look up, by partition. Raises ValueError, TypeError."""
    return {_partition(tp): as_timestamp_ms(timestamp) for tp, timestamp in given.items()}


def _partition(given: Any) -> TopicPartition:
    """Check a partition. Raises TypeError for a topic's name alone, which would be split into its letters."""
    if not isinstance(given, str) and len(given) == 2 and not isinstance(given[1], str):
        return TopicPartition(*given)
    raise TypeError(f"A partition is a TopicPartition or (topic, number), not {given!r}")


def _compile(pattern: str | TopicMatcher | None) -> TopicMatcher | None:
    if not isinstance(pattern, str):
        return pattern
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is not a regular expression: {error}") from error
