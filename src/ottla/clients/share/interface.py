"""The part of `ShareConsumer` and `AsyncShareConsumer` that does not wait for the user, and the client below both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.clients.consumer.effect_runner import now_ms
from ottla.clients.consumer.reader import CLOSE_S, GRACE_S, Reader, ReaderClient
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.errors import ClientError, NotSubscribed, RequestTimedOut
from ottla.clients.options import merged
from ottla.clients.share.acknowledgements import AcknowledgeType, CommitOutcome
from ottla.clients.share.core import ShareCore
from ottla.clients.share.settings import ShareSettings, read_share_settings
from ottla.clients.telemetry import Role, Telemetry
from ottla.clients.waits import Waits
from ottla.common.ids import TopicPartition

logger = logging.getLogger("ottla.clients.share")
CommitResults = dict[TopicPartition, ClientError | None]


class ShareClient(ReaderClient[ShareCore]):
    """One share consumer."""

    def __init__(self, options: Mapping[str, Any], settings: ShareSettings, notify: Callable[[], None]) -> None:
        super().__init__(options, settings, lambda view, member_id: ShareCore(settings, view, member_id), notify)
        self.settings = settings
        if options["enable_metrics_push"]:
            self.runner.cluster.telemetry = Telemetry(self.runner.cluster, Role("consumer", dict))

    def describe(self) -> str:
        """Return the name of this consumer for warnings."""
        return f"share consumer of group {self.settings.group_id}"

    def begin_poll(self, limit: int) -> None:
        """Begin a poll of at most `limit` records. Raises NotSubscribed, Closed, ClientError."""
        if not self.core.topics:
            raise NotSubscribed("This consumer reads nothing: subscribe() to topics first")
        self.change(lambda core: core.begin_poll(now_ms(), limit))

    def fill(self) -> list[Record[Any, Any]]:
        """Return buffered records; none if the poll must wait. Raises the error that prevents it."""

        def fill(core: ShareCore) -> list[Record[Any, Any]]:
            core.raise_error()
            return core.fill(now_ms())

        return self.change(fill)

    def end_poll(self) -> None:
        with self.runner.lock:
            self.core.end_poll(now_ms())

    async def wait(self, outcome: CommitOutcome, timeout_s: float | None) -> CommitResults:
        """Wait until the results of a commit are known. Raises RequestTimedOut."""
        self.runner.wake()
        await self._until(lambda: outcome.is_done or None, timeout_s, "The acknowledgements were not answered")
        return dict(outcome.results)

    def commit_later(self, outcome: CommitOutcome, callback: Callable[[CommitResults], Any] | None) -> None:
        """Call `callback` with the results of a commit when they are known; on the loop."""
        self._commit_in_background(self._wait_and_call(outcome, callback))

    async def _wait_and_call(self, outcome: CommitOutcome, callback: Callable[[CommitResults], Any] | None) -> None:
        try:
            results = await self.wait(outcome, None)
        except RequestTimedOut as error:
            logger.warning("Commit of acknowledgements failed: %s", error)
            return
        if callback is not None:
            self._call_back(callback, results)

    async def close(self, timeout_s: float, *, settle: bool = False) -> None:
        """Send the acknowledgements, release the other records, leave the group, close the connections."""
        runner = self.runner
        if runner.closed:
            return
        deadline = time.monotonic() + timeout_s
        self.change(lambda core: core.begin_close(settle=settle))
        try:
            async with asyncio.timeout(timeout_s / 2):
                # A fetch that is in flight would acquire records after the session was closed.
                while not self.core.is_idle:
                    runner.advanced.clear()
                    await runner.advanced.wait()
        except TimeoutError:
            logger.info("Closing the share consumer although a broker has not responded")
        await runner.close(ShareCore.leave, max(0.0, deadline - time.monotonic()))


class ShareInterface(Reader[K, V]):
    """The methods of both share consumers that do not wait, and the coroutines of those that do."""

    _client: ShareClient
    _closed_text = "The share consumer was closed"
    _busy_text = "poll is already running in another thread"

    def __init__(self, settings: Mapping[str, object] | None, given: Mapping[str, object], waits: Waits) -> None:
        super().__init__(waits)
        options, self._settings = read_share_settings(merged(settings, given))
        self._deserializers = self._read_deserializers(options)
        self._client = ShareClient(options, self._settings, self._ready.set)

    async def _poll(self, timeout_s: float, limit: int) -> list[Record[Any, Any]]:
        deadline = time.monotonic() + timeout_s
        self._client.begin_poll(limit)
        try:
            while True:
                self._ready.clear()
                records = self._client.fill()
                left_s = deadline - time.monotonic()
                if records or left_s <= 0 or self._closing:
                    return records
                await self._ready.until(left_s)
        finally:
            self._client.end_poll()

    async def _close(self, timeout_s: float, *, settle: bool) -> None:
        if self._closing:
            return
        self._closing = True
        self._dropped.detach()
        self._ready.set()
        try:
            await self._waits.run(self._client.close(timeout_s, settle=settle), timeout_s + GRACE_S)
        finally:
            self._waits.close()

    async def _exit(self, error: BaseException | None) -> None:
        await self._close(CLOSE_S, settle=error is None)

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read these topics together with the other members of the group. Replaces the previous subscription."""
        wanted = [topics] if isinstance(topics, str) else list(topics)
        self._client.change(lambda core: core.subscribe(wanted))

    def unsubscribe(self) -> None:
        """Leave the group. Records that a poll returned can still be acknowledged."""
        self._client.change(lambda core: core.subscribe(()))

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted."""
        return sorted(self._client.core.topics)

    def acknowledge(self, record: Record[K, V], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what became of a record that the last poll returned; sent by the next poll or commit.

        Requires share.acknowledgement.mode=explicit. With RENEW the record must be acknowledged again later. Raises
        NotAssigned if this consumer does not hold the record any more.
        """
        self._client.change(lambda core: core.acknowledge(record.topic_partition, record.offset, AcknowledgeType(kind)))

    def delivery_count(self, record: Record[K, V]) -> int:
        """Return how often the group delivered a record that this consumer holds, this time included."""
        return self._client.change(lambda core: core.delivery_count(record.topic_partition, record.offset))

    @property
    def member_id(self) -> str:
        """The member id of this consumer; empty while it is not a member of the group."""
        return self._client.core.membership.member_id

    def commit_async(self, callback: Callable[[CommitResults], Any] | None = None) -> None:
        """Send the acknowledgements without waiting; `callback` gets the results, in the thread of the network."""
        self._waits.call(self._client.commit_later, self._commit(), callback)

    async def _deserialized(self, records: list[Record[K, V]]) -> list[Record[K, V]]:
        """Return the records with deserialized keys and values.

        A record that cannot be deserialized is released, or with on.deserialization.error=skip rejected. The records
        after it are returned by a later poll; its error is raised if no records precede it.
        """
        if not self._deserializers.active or not records:
            return records
        made: list[Record[K, V]] = []
        taken: list[Record[K, V]] = []  # the same with their bytes
        left = records
        while left:
            try:
                more, failed = await self._apply(self._deserializers.apply, left)
            except asyncio.CancelledError:
                self._give_back([*taken, *left])
                raise
            made += more
            taken += left[: len(more)]
            if failed is None:
                return made
            bad, left = left[len(more)], left[len(more) + 1 :]
            if self._settings.skip_deserialization_errors and not failed.retriable:
                logger.error("Rejected: %s", failed)
                self._release(bad, AcknowledgeType.REJECT)
                continue
            self._release_and_give_back(bad, left)
            if not made:
                raise failed
            logger.error("Released: %s", failed)
            return made
        return made

    def _release(self, bad: Record[K, V], kind: AcknowledgeType) -> None:
        self._client.change(lambda core: core.release(bad.topic_partition, bad.offset, kind))

    def _release_and_give_back(self, bad: Record[K, V], left: list[Record[K, V]]) -> None:
        self._release(bad, AcknowledgeType.RELEASE)
        self._give_back(left)

    def _give_back(self, records: list[Record[K, V]]) -> None:
        self._client.change(lambda core: core.give_back(records))

    def _commit(self) -> CommitOutcome:
        return self._client.change(lambda core: core.commit())
