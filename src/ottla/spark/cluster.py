"""The driver's requests to the cluster: the partitions, their first and last offsets, and commits.

A query uses one client for its whole life. `survey` costs one ListOffsets round trip. In parallel, topics are described
again once a second (`kafka.metadata.max.age.ms`), or after a response which shows that they changed. Requests are
retried until `kafka.default.api.timeout.ms` (a minute); then ClusterError names what was requested.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.clients.admin import AsyncAdmin, OffsetSpec, PartialFailure
from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, GroupSubscribedToTopic, UnknownMember, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.spark.offsets import Positions, shrunk
from ottla.spark.options import Assign, SourceOptions, Subscribe, common_settings

R = TypeVar("R")

logger = logging.getLogger("ottla.spark")

METADATA_MAX_AGE_MS: Final = 1_000
COMMIT_WAIT_S: Final = 5.0


class ClusterError(Exception):
    """A request failed or timed out; the message names the brokers, the request and the reason."""


class CommitError(Exception):
    """Offsets cannot be committed to the group of `commitGroup`."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the cluster. `topic_id` is "" if the broker is too old for topic ids."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """The end of every partition, and the first offsets of partitions whose topic was recreated."""

    latest: Positions
    recreated: Positions


class SourceCluster:
    """The cluster of one query. Every method blocks. Not thread-safe."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._servers = options.client["bootstrap.servers"]
        self._committed = options.isolation_level == "read_committed"
        self._max_age_s = int(options.client.get("metadata.max.age.ms", METADATA_MAX_AGE_MS)) / 1000
        self._topics: dict[str, Topic] = {}
        self._described_at_s: float | None = None
        self._admin = AsyncAdmin(common_settings(options.client))
        self._driver = Driver("ottla-spark")  # last: it starts a thread, and the lines above may raise
        self._group: dict[TopicPartition, int] = {}
        self._commit: concurrent.futures.Future[None] | None = None

    def close(self) -> None:
        """Wait for a commit in flight and close the connections; never raises."""
        if self._driver.closed:
            return
        try:
            self.wait_for_commit()
        except CommitError as error:
            logger.warning("Error while stopping a query: %s", error)
        try:
            self._driver.run(self._admin.close(), COMMIT_WAIT_S)
        except ClientError as error:
            logger.warning("Error while stopping a query: %s", error)
        self._driver.close()

    def _ask(self, what: str, question: Coroutine[Any, Any, R]) -> R:
        try:
            return self._driver.run(question)
        except ClientError as error:
            about = " ".join(getattr(error, "__notes__", ()))
            raise ClusterError(f"Asking {self._servers} for {what} failed: {error} {about}".rstrip()) from error

    # -- topics ---------------------------------------------------------------------------------------------------

    def partitions(self, *, all_named: bool = True) -> list[TopicPartition]:
        """Return the subscribed partitions that exist now.

        Raises ClusterError if a topic or partition of the options does not exist, unless `all_named` is false.
        """
        self._ask("topics", self._describe_again())
        there = self._partitions()
        missing = self._missing(set(there)) if all_named else []
        if missing:
            raise ClusterError(f"{self._servers} has no {', '.join(missing)}; create it first, or fix the option")
        return there

    def _missing(self, there: set[TopicPartition]) -> list[str]:
        subscription = self._options.subscription
        if isinstance(subscription, Subscribe):
            return [f"topic {topic}" for topic in subscription.topics if topic not in self._topics]
        if isinstance(subscription, Assign):
            wanted = [TopicPartition(topic, i) for topic, indexes in subscription.partitions.items() for i in indexes]
            return [f"partition {tp}" for tp in wanted if tp not in there]
        return []

    def _partitions(self) -> list[TopicPartition]:
        subscription = self._options.subscription
        there = [TopicPartition(name, i) for name, topic in sorted(self._topics.items()) for i in topic.partitions]
        if isinstance(subscription, Assign):
            return [tp for tp in there if tp.partition in subscription.partitions[tp.topic]]
        return there

    async def _describe_again(self) -> set[str]:
        """Describe the subscribed topics. Returns the topics whose id changed: they were recreated."""
        previous = self._topics
        self._topics = await self._describe()
        self._described_at_s = time.monotonic()
        return {
            name
            for name, topic in self._topics.items()
            if name in previous and topic.topic_id and previous[name].topic_id not in ("", topic.topic_id)
        }

    async def _describe(self) -> dict[str, Topic]:
        subscription = self._options.subscription
        if not isinstance(subscription, (Subscribe, Assign)):
            listed = await self._admin.list_topics()
            found = [topic for topic in listed if subscription.matches(topic.name)]
            return {topic.name: Topic(topic.topic_id, tuple(range(topic.partitions))) for topic in found}
        names = subscription.topics if isinstance(subscription, Subscribe) else tuple(subscription.partitions)
        try:
            described = await self._admin.describe_topics(names)
        except PartialFailure as failure:
            _raise_others(failure)
            described = dict(failure.results)
        return {
            name: Topic(topic.topic_id, tuple(row.partition for row in topic.partitions))
            for name, topic in described.items()
        }

    # -- offsets --------------------------------------------------------------------------------------------------

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the end of each partition: the next offset, or with read_committed the last stable offset."""
        return self._ask("the ends of partitions", self._offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))

    def firsts(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the first offset of each partition. Deleted partitions are omitted."""
        return self._ask("first offsets", self._offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))

    def at_times(self, times: Mapping[TopicPartition, int]) -> Positions:
        """Return the first offset at or after each time (ms); -1 if no record is that new."""
        return self._ask("offsets by timestamp", self._offsets(times))

    async def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec | int]) -> Positions:
        if not specs:
            return {}
        try:
            found = await self._admin.list_offsets(specs, read_committed=self._committed)
        except PartialFailure as failure:
            _raise_others(failure)
            found = dict(failure.results)
        return {tp: at.offset for tp, at in found.items()}

    def survey(self, start: Mapping[TopicPartition, int]) -> Survey:
        """Return the ends of all subscribed partitions, including new ones.

        An end before `start` is requested again a few times: a new leader may not know its high watermark yet.
        """
        survey = self._ask("the ends of partitions", self._survey())
        for _ in range(self._options.fetch_offset_retries - 1):
            odd = shrunk(start, survey.latest)
            if survey.recreated or not odd:
                break
            logger.warning("%s ended before the query's position; retrying", ", ".join(map(str, odd)))
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            survey = self._ask("the ends of partitions", self._survey(describe=True))
        return survey

    async def _survey(self, describe: bool = False) -> Survey:
        described_at_s = self._described_at_s
        is_due = describe or described_at_s is None or time.monotonic() - described_at_s >= self._max_age_s
        known = self._partitions()
        specs = dict.fromkeys(known, OffsetSpec.LATEST)
        if is_due:
            changed, latest = await asyncio.gather(self._describe_again(), self._offsets(specs))
        else:
            changed, latest = set(), await self._offsets(specs)
            if len(latest) < len(known):
                changed = await self._describe_again()
        there = self._partitions()
        # New partitions, and partitions whose topic was recreated during the request.
        again = [tp for tp in there if tp not in latest or tp.topic in changed]
        latest |= await self._offsets(dict.fromkeys(again, OffsetSpec.LATEST))
        renewed = [tp for tp in there if tp.topic in changed]
        recreated = await self._offsets(dict.fromkeys(renewed, OffsetSpec.EARLIEST))
        return Survey({tp: latest[tp] for tp in there if tp in latest}, recreated)

    # -- the group ------------------------------------------------------------------------------------------------

    def commit(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        """Start to commit the offsets that changed since the last commit, without waiting for the response.

        If a commit is in flight, this does nothing, and the next call commits the offsets. Raises CommitError if the
        previous commit was refused.
        """
        if self._commit is not None and not self._commit.done():
            return
        self.wait_for_commit()
        changed = {tp: offset for tp, offset in at.items() if self._group.get(tp) != offset}
        if changed:
            self._commit = asyncio.run_coroutine_threadsafe(self._commit_now(group, changed), self._driver.loop)

    def wait_for_commit(self, timeout_s: float = COMMIT_WAIT_S) -> None:
        """Wait for a commit in flight. Raises CommitError if it was refused with an error that is not retriable."""
        commit, self._commit = self._commit, None
        if commit is None:
            return
        try:
            commit.result(timeout_s)
        except concurrent.futures.TimeoutError:
            logger.warning("A commit of offsets takes longer than %g s", timeout_s)
            self._commit = commit

    async def _commit_now(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        failed: Mapping[TopicPartition, ClientError] = {}
        try:
            await self._admin.alter_group_offsets(group, at)
        except PartialFailure as failure:
            failed = failure.errors
        except ClientError as error:
            failed = dict.fromkeys(at, error)
        for tp, reason in failed.items():
            if isinstance(reason, (UnknownMember, GroupSubscribedToTopic)):
                raise CommitError(
                    f"Group {group} of commitGroup has members, so offsets cannot be committed to it; "
                    f"set commitGroup to a group without consumers ({reason})"
                ) from reason
            if not reason.retriable and not isinstance(reason, UnknownTopicOrPartition):
                raise CommitError(f"Offsets cannot be committed to group {group} of commitGroup: {reason}") from reason
            logger.warning("Offset of %s was not committed to group %s: %s", tp, group, reason)
        # A deleted topic has no offset to commit, now or later.
        self._group |= {
            tp: offset
            for tp, offset in at.items()
            if tp not in failed or isinstance(failed[tp], UnknownTopicOrPartition)
        }


def _raise_others(failure: PartialFailure) -> None:
    """Raise the first error other than UnknownTopicOrPartition."""
    for key, error in failure.errors.items():
        if not isinstance(error, UnknownTopicOrPartition):
            error.add_note(f"(about {key})")
            raise error
