"""The driver's questions to the cluster: which partitions there are, where they begin and end, what to commit.

One client is kept for the life of a query. `survey` costs one ListOffsets round trip; topics are looked at beside it,
once a second (`kafka.metadata.max.age.ms`), or when an answer says that something changed. A cluster that does not
answer is asked again until `kafka.default.api.timeout.ms` (a minute) is over; then ClusterError says what was wanted.
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

LOOK_EVERY_MS: Final = 1_000
SETTLE_S: Final = 5.0


class ClusterError(Exception):
    """The cluster did not answer in time, or refused; the message names the brokers, what was asked and why not."""


class CommitError(Exception):
    """The group of `commitGroup` cannot be committed to."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the cluster has it. `topic_id` is "" where the broker is too old to have ids."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """Where every partition ends, and the first offsets of those whose topic has another id than before."""

    latest: Positions
    recreated: Positions


class SourceCluster:
    """What a read asks of its cluster. Every method blocks; not for several threads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._servers = options.client["bootstrap.servers"]
        self._committed = options.isolation_level == "read_committed"
        self._look_every_s = int(options.client.get("metadata.max.age.ms", LOOK_EVERY_MS)) / 1000
        self._topics: dict[str, Topic] = {}
        self._looked_at_s: float | None = None
        self._admin = AsyncAdmin(common_settings(options.client))
        self._driver = Driver("ottla-spark")  # after what may raise: it has a thread
        self._group: dict[TopicPartition, int] = {}
        self._commit: concurrent.futures.Future[None] | None = None

    def close(self) -> None:
        """End a commit under way and close the connections; never raises."""
        if self._driver.closed:
            return
        try:
            self.settle()
        except CommitError as error:
            logger.warning("While a query stopped: %s", error)
        try:
            self._driver.run(self._admin.close(), SETTLE_S)
        except ClientError as error:
            logger.warning("While a query stopped: %s", error)
        self._driver.close()

    def _ask(self, what: str, question: Coroutine[Any, Any, R]) -> R:
        try:
            return self._driver.run(question)
        except ClientError as error:
            about = " ".join(getattr(error, "__notes__", ()))
            raise ClusterError(f"Asking {self._servers} for {what} failed: {error} {about}".rstrip()) from error

    # -- topics ------------------------------------------------------------------------------------------------

    def partitions(self, *, all_named: bool = True) -> list[TopicPartition]:
        """What is subscribed to, as the cluster has it now.

        Raises ClusterError if a topic or partition that was named is not there, unless `all_named` is false.
        """
        self._ask("topics", self._look())
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

    async def _look(self) -> set[str]:
        """Learn the topics; those that have another id than before are returned."""
        before = self._topics
        self._topics = await self._describe()
        self._looked_at_s = time.monotonic()
        return {
            name
            for name, topic in self._topics.items()
            if name in before and topic.topic_id and before[name].topic_id not in ("", topic.topic_id)
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

    # -- offsets -----------------------------------------------------------------------------------------------

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The end of each: the next offset, or with read_committed the first of an open transaction."""
        return self._ask("the ends of partitions", self._offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))

    def firsts(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The first offset of each; those that are gone are left out."""
        return self._ask("first offsets", self._offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))

    def at_times(self, times: Mapping[TopicPartition, int]) -> Positions:
        """The first offset at or after each time (ms); -1 where no record is so young."""
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
        """Where everything that is subscribed to ends, new partitions too, seen from a query at `start`.

        An end before `start` is asked for again a few times: a new leader may not know of all it has.
        """
        survey = self._ask("the ends of partitions", self._survey())
        for _ in range(self._options.fetch_offset_retries - 1):
            odd = shrunk(start, survey.latest)
            if survey.recreated or not odd:
                break
            logger.warning("%s ended before the query's position; asking again", ", ".join(map(str, odd)))
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            survey = self._ask("the ends of partitions", self._survey(look=True))
        return survey

    async def _survey(self, look: bool = False) -> Survey:
        looked_at_s = self._looked_at_s
        is_due = look or looked_at_s is None or time.monotonic() - looked_at_s >= self._look_every_s
        known = self._partitions()
        specs = dict.fromkeys(known, OffsetSpec.LATEST)
        if is_due:
            changed, latest = await asyncio.gather(self._look(), self._offsets(specs))
        else:
            changed, latest = set(), await self._offsets(specs)
            if len(latest) < len(known):
                changed = await self._look()
        there = self._partitions()
        # What is new, and what was asked about while it was made anew.
        again = [tp for tp in there if tp not in latest or tp.topic in changed]
        latest |= await self._offsets(dict.fromkeys(again, OffsetSpec.LATEST))
        renewed = [tp for tp in there if tp.topic in changed]
        recreated = await self._offsets(dict.fromkeys(renewed, OffsetSpec.EARLIEST))
        return Survey({tp: latest[tp] for tp in there if tp in latest}, recreated)

    # -- the group ---------------------------------------------------------------------------------------------

    def commit(self, group: str, at: Mapping[TopicPartition, int]) -> None:
        """Begin to commit what changed since the last commit; does not wait for the answer.

        While one is under way nothing is begun: the next call has what this one leaves. Raises CommitError if the one
        before was refused.
        """
        if self._commit is not None and not self._commit.done():
            return
        self.settle()
        changed = {tp: offset for tp, offset in at.items() if self._group.get(tp) != offset}
        if changed:
            self._commit = asyncio.run_coroutine_threadsafe(self._commit_now(group, changed), self._driver.loop)

    def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait for a commit under way; raises CommitError if it was refused for good."""
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
                    f"Group {group} of commitGroup has members of its own, so offsets cannot be committed to it; "
                    f"give this query a group that no consumer is in ({reason})"
                ) from reason
            if not reason.retriable and not isinstance(reason, UnknownTopicOrPartition):
                raise CommitError(f"Offsets cannot be committed to group {group} of commitGroup: {reason}") from reason
            logger.warning("Offset of %s was not committed to group %s: %s", tp, group, reason)
        # A topic that is gone has no offset to commit, now or later.
        self._group |= {
            tp: offset
            for tp, offset in at.items()
            if tp not in failed or isinstance(failed[tp], UnknownTopicOrPartition)
        }


def _raise_others(failure: PartialFailure) -> None:
    """Raise the first error that is not that something is not there."""
    for key, error in failure.errors.items():
        if not isinstance(error, UnknownTopicOrPartition):
            error.add_note(f"(about {key})")
            raise error
