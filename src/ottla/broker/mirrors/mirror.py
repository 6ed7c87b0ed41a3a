"""One mirror on one node.

Every refresh compares the metadata of the source with this node's partitions: the leaders here get their leaders there.
The comparison is repeated at intervals, after errors and after changes of its topics in the metadata. It depends on no
notification: a lost one delays it by one interval. At intervals, the offsets of groups follow, and the active
controller creates and changes the topics.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.broker.mirrors.acls import AclCopier
from ottla.broker.mirrors.groups import GroupOffsets, GroupPorts
from ottla.broker.mirrors.pace import Pace
from ottla.broker.mirrors.problems import Measures, Problems
from ottla.broker.mirrors.source import Source, awaited
from ottla.broker.mirrors.stand_in import Decider, StandIn, stands_in
from ottla.broker.mirrors.status import partition_row
from ottla.broker.mirrors.topics import read_topics
from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.controller.controller import Controller
from ottla.metadata.image import TOPIC
from ottla.metadata.mirrors import (
    ACLS,
    COPY_SETTING,
    FAILBACK,
    MIRROR_SETTING,
    MIRRORING,
    PAUSED,
    RATE_SETTING,
    STATE_SETTING,
    STOPPING,
    UNHANDLED,
    TopicNames,
    generation_start,
    is_read_only_state,
)
from ottla.network.errors import NetworkError
from ottla.partitions.promotion import PROMOTING, forget_producers
from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.mirrored import UNKNOWN, MirroredPartition, MirrorPorts
from ottla.partitions.replication.quotas import FetchLimit
from ottla.partitions.replication.replication import fetch_settings
from ottla.replication.leader import ClusterView

if TYPE_CHECKING:
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.completion import Completion
    from ottla.common.slices import Slices
    from ottla.config import BrokerConfig
    from ottla.controller.state import Outcome
    from ottla.log import LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.partitions.partition import Partition
    from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
    from ottla.replication.session import FetchSettings

logger = logging.getLogger(__name__)

EPOCH_FENCING: Final = "EPOCH_FENCING"
FAILED: Final = "FAILED"
CONSUMER: Final = -1
LONGEST_SHORT_LINE_S: Final = 0.01
FETCHERS_OF_LONG_LINE: Final = 4
FOLLOWED: Final = "created or changed the topic as its source"
# Topics whose settings are read in one request.
_PARTS: Final = 200


class MirrorNode(GroupPorts, Protocol):
    """The parts of the node that its mirrors use."""

    settings: NodeSettings
    schedulers: Schedulers
    logs: LogManager


class Copiers(NamedTuple):
    """The parts of a mirror that copy other things than records; `acls` is None unless they are wanted."""

    groups: GroupOffsets
    acls: AclCopier | None
    stand_in: StandIn
    """Decides about topics if the active controller is not a broker."""


class Mirror:
    """See the module's docstring. `close` when the mirror was changed or deleted, or the node stops."""

    def __init__(self, node: MirrorNode, name: str, settings: Mapping[str, Any]) -> None:
        """`settings` are typed, and so valid."""
        self.name = name
        self._node = node
        self._settings = settings
        self._pattern = _pattern(settings["topics"])
        self.source = Source(f"mirror-{name}-{node.node_id}", settings)
        self._problems = Problems()
        self._waiting: dict[TopicPartition, tuple[str, str]] = {}
        self._copies: dict[TopicPartition, MirroredPartition] = {}
        self._former: dict[TopicPartition, MirroredPartition] = {}
        """The last copy of partitions that are not fetched now: an unplanned promotion reports how far it was."""
        # Partitions whose producers are being removed.
        self._resetting: set[Partition] = set()
        self._states = self._read_states()
        fetchers = int(settings["num.replica.fetchers"])
        self._fetchers = ReplicaFetchers(self._context(), lambda: fetchers_of(fetchers, self.source.fastest_s))
        groups, interval_ms = _pattern(settings["groups"]), settings["refresh.interval.ms"]
        self._copiers = Copiers(
            GroupOffsets(node, self.source, groups, self._names),
            AclCopier(node, name, self.source, groups, self._names) if ACLS in settings[COPY_SETTING] else None,
            StandIn(node, interval_ms),
        )
        self._pace = Pace(interval_ms)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mirror {name}")

    def _context(self) -> FetcherContext:
        node, config = self._node, self._node.settings.static
        return FetcherContext(
            cluster=ClusterView(CONSUMER, {}),
            logs=node.logs,
            clock=node.clock,
            call_later=node.schedulers.call_later,
            worker=node.schedulers.worker,
            settings=mirror_fetch_settings(config),
            request_timeout_s=config.int("replica.socket.timeout.ms") / 1000,
            connect=lambda leader, _: self.source.connect(leader, f"mirror-{self.name}-{node.node_id}"),
            on_lost=lambda _: self._pace.retry(),
            on_answer=self._problems.answered,
            on_failure=self._problems.no_answer,
            on_throttled=self._problems.throttled,
            name_at_leader=self._at_source,
            fetches_last=True,
            limit=FetchLimit(node.clock, lambda: int(self._settings[RATE_SETTING])),
        )

    def throttle(self, rate: int) -> None:
        """Limit the copy to `rate` bytes per second from now on."""
        self._settings = {**self._settings, RATE_SETTING: rate}

    @property
    def is_paused(self) -> bool:
        """Whether nothing is copied."""
        return bool(self._settings["state"] == PAUSED)

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Compare soon: topics, states or leaders have changed."""
        before = self._states
        if old is None or old.configs is not new.configs:
            self._states = self._read_states()
            # Not after the next answer of the source, which may be lost.
            self._task.get_loop().call_soon(self._reset_producers)
        elif old.topics_by_name is new.topics_by_name:
            return
        self._drop_ended()
        if before != self._states and STOPPING in self._states.values():
            self._pace.hurry()
        if old is None or before != self._states or has_changed(self._states, old, new):
            self._pace.wake.set()

    def _read_states(self) -> dict[str, str]:
        """The state of each topic of this mirror."""
        return {
            name: settings.get(STATE_SETTING, "")
            for (kind, name), settings in self._node.metadata.image.configs.items()
            if kind == TOPIC and settings.get(MIRROR_SETTING) == self.name
        }

    def close(self) -> None:
        """Stop; what was copied stays."""
        self._task.cancel()
        for key, copy in list(self._copies.items()):
            self._drop(key, copy)
        self._fetchers.close()
        self.source.close()

    def replaces(self, closed: Mirror) -> None:
        """Continue the reports of a mirror that was closed because its settings have changed."""
        self._former = dict(closed._former)

    # -- comparing -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pace, clock = self._pace, self._node.clock
        while True:
            pace.wake.clear()
            try:
                await self._refresh()
            except (NetworkError, KafkaError) as error:
                if not self._problems.of_mirror:
                    logger.warning("Mirror %s cannot reach its source: %s", self.name, error)
                self._problems.of_mirror = str(error)
                pace.retry()
            except Exception as error:  # an unhandled error must not end the copy: it may not occur again
                problem = f"{UNHANDLED}, and is retried: {error!r}"
                if problem != self._problems.of_mirror:
                    logger.exception("Unhandled error in mirror %s; retrying", self.name)
                self._problems.of_mirror = problem
                pace.retry()
            else:
                self._problems.of_mirror = ""
            if is_fencing(self._waiting.values()):
                pace.retry()
            await asyncio.sleep(pace.pause_s())
            try:
                await asyncio.wait_for(pace.wake.wait(), pace.wait_s(clock.monotonic_ms()))
            except TimeoutError:
                continue

    async def _refresh(self) -> None:
        self._reset_producers()
        begun_ms = self._node.clock.monotonic_ms()
        is_due = self._pace.is_due(begun_ms)
        decides = self._node.metadata.is_active_controller
        reports = decides or stands_in(self._node)
        if not reports:
            # The next controller reports them, or that they are solved.
            self._problems.of_source = {}
            if self._copiers.acls is not None:
                self._copiers.acls.problem = ""
        if self.is_paused:
            self._waiting = {}
            self._keep({})
            self._pace.completed(begun_ms)
            return
        led = dict.fromkeys(self._at_source(partition.topic_partition.topic) for partition in self._led(MIRRORING))
        # Without topics, the answer has the nodes of the source.
        metadata = await self.source.metadata(None if is_due and reports else led)
        self._place(metadata)
        if is_due and reports:
            await self._follow_topics(metadata, decides=decides)
        if is_due and reports and self._copiers.acls is not None:
            await self._copiers.acls.copy(self._states, decides=decides)
        if is_due:
            await self._copiers.groups.copy(self._states)
            self._pace.completed(begun_ms)

    @property
    def _names(self) -> TopicNames:
        return TopicNames.of(self._settings)

    def _at_source(self, topic: str) -> str:
        return self._names.at_source(topic)

    def _led(self, state: str) -> list[Partition]:
        """The partitions of topics in this state that this node leads."""
        image, node_id = self._node.metadata.image, self._node.node_id
        found = []
        for name, each in self._states.items():
            topic = image.topics_by_name.get(name) if each == state else None
            for index in () if topic is None else topic.partitions:
                if topic is not None and topic.partitions[index].leader == node_id:
                    try:
                        found.append(self._node.partitions.get(name, index))
                    except KafkaError:
                        continue  # Its log is offline, or it is opened later.
        return found

    def _place(self, metadata: MetadataResponse) -> None:
        """Fetch each led partition from its leader in the source."""
        rows = {(topic.topic_id, row.partition_index): row for topic in metadata.topics for row in topic.partitions}
        self._waiting = {}
        wanted: dict[TopicPartition, tuple[Partition, MetadataResponsePartition]] = {}
        for partition in self._led(MIRRORING):
            key = partition.topic_partition
            row = rows.get((partition.topic_id, key.partition))
            waits = reason_to_wait(partition, row)
            if waits is not None or row is None:
                self._waiting[key] = waits or (FAILED, "")
            else:
                wanted[key] = partition, row
        self._keep(wanted)

    def _keep(self, wanted: Mapping[TopicPartition, tuple[Partition, MetadataResponsePartition]]) -> None:
        """Copy these partitions and no others."""
        for key, copy in list(self._copies.items()):
            if key not in wanted or wanted[key][0] is not copy.partition or copy.partition.closed:
                self._drop(key, copy)
        for key, (partition, row) in wanted.items():
            known = self._copies.get(key)
            if known is None:
                ports = MirrorPorts(self._node.schedulers.flush_threads.run, self._pace.retry)
                copy = self._copies[key] = MirroredPartition(partition, row.leader_id, row.leader_epoch, ports)
                former = self._former.pop(key, None)
                if former is not None and former.partition is partition:
                    copy.continues(former)
                self._fetchers.following(copy)
            elif known.follow(row.leader_id, row.leader_epoch):
                self._fetchers.following(known)

    def _drop_ended(self) -> None:
        """Drop copies of partitions that this node no longer leads, and of topics that are not copied any more.

        It does not wait for the source, whose answer may be lost.
        """
        for key, copy in list(self._copies.items()):
            if copy.partition.closed or self._states.get(key.topic) != MIRRORING:
                self._drop(key, copy)
        self._former = {
            key: copy
            for key, copy in self._former.items()
            if not copy.partition.closed and self._states.get(key.topic) == MIRRORING
        }

    def _drop(self, key: TopicPartition, copy: MirroredPartition) -> None:
        progress = copy.progress
        if progress.as_of_ms != UNKNOWN:
            progress.as_of_ms = max(progress.as_of_ms, self._fetchers.as_of_ms(copy))
        progress.problem = ""
        self._former[key] = self._copies.pop(key)
        copy.close()
        self._fetchers.unfollowed(copy)

    # -- promotion -----------------------------------------------------------------------------------------------

    def _reset_producers(self) -> None:
        """In topics whose copy has ended, remove the producers of the source."""
        self._drop_ended()
        for partition in self._led(STOPPING):
            if partition not in self._resetting:
                self._resetting.add(partition)
                work = forget_producers(partition, partial(self._is_stopping, partition))
                self._node.schedulers.worker.submit(work).on_done(partial(self._reset, partition))

    def _is_stopping(self, partition: Partition) -> bool:
        """Whether no client can have written to the partition, by the newest metadata of this node."""
        settings = self._node.metadata.image.config(TOPIC, partition.topic_partition.topic)
        return settings.get(STATE_SETTING) == STOPPING and not partition.closed

    def _reset(self, partition: Partition, done: Completion[None]) -> None:
        self._resetting.discard(partition)
        topic = partition.topic_partition.topic
        try:
            done.result()
        except KafkaError as error:
            self._problems.of_promotion[topic] = str(error)
        else:
            self._problems.of_promotion.pop(topic, None)

    # -- topics --------------------------------------------------------------------------------------------------

    async def _follow_topics(self, metadata: MetadataResponse, *, decides: bool) -> None:
        """Create and change the topics as the source's if this node `decides`; otherwise only find the problems."""
        known = [self._at_source(name) for name, state in self._states.items() if is_read_only_state(state)]
        topics, unread = await read_topics(self.source, metadata, self._pattern, known)
        problems = {self._names.local(name) or name: problem for name, problem in unread.items()}
        factor, stand_in = self._settings["replication.factor"], self._copiers.stand_in
        decider: Decider = self._node.metadata if decides else stand_in
        for start in range(0, len(topics), _PARTS):
            part = topics[start : start + _PARTS]
            decide: Callable[[Controller], Slices[Outcome[dict[str, str]]]] = partial(
                Controller.follow_source, mirror=self.name, replication_factor=factor, topics=part
            )
            found: dict[str, str] = await awaited(decider.submit(decide))
            problems |= found
        if not decides:
            problems = dict.fromkeys(map(str, stand_in.overdue()), stand_in.problem(FOLLOWED)) | problems
        for name, problem in problems.items():
            if self._problems.of_source.get(name) != problem:
                logger.warning("Mirror %s cannot follow topic %s: %s", self.name, name, problem)
        self._problems.of_source = problems

    # -- reports -------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """The state of the mirror on this node: its problem, the problems of topics, and the led partitions."""
        groups, acls, _ = self._copiers
        throttling = self._fetchers.throttling()
        return {
            "problem": self._problem(),
            "topics": self._problems.of_topics,
            "leaderless": self._leaderless(),
            "groups_age_ms": self._age_ms(groups.copied_ms),
            "groups_found": groups.found,
            "group_errors": dict(groups.errors),
            "acls": "" if acls is None else acls.problem,
            "throttling": None if throttling is None else throttling._asdict(),
            "partitions": list(self.rows()),
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """The reports of the led partitions, one at a time, so that other work can run in between."""
        for state in (FAILBACK, MIRRORING, STOPPING):
            for partition in self._led(state):
                yield self._row(partition, state)

    def measure(self) -> Measures:
        """The figures of the mirror on this node that are not of single partitions."""
        groups, acls, _ = self._copiers
        problems = [self._problem(), "" if acls is None else acls.problem]
        count = len([each for each in problems if each]) + len(self._problems.of_topics) + len(groups.errors)
        return Measures(count, self._age_ms(groups.copied_ms))

    def _problem(self) -> str:
        return self._problems.of_link({copy.leader_id for copy in self._copies.values()})

    def _leaderless(self) -> list[tuple[str, int]]:
        """The partitions of copied topics that no node reports, since they have no leader."""
        topics = self._node.metadata.image.topics_by_name
        copied = (topics[name] for name, state in self._states.items() if is_read_only_state(state) and name in topics)
        return [
            (topic.name, index)
            for topic in copied
            for index, partition in topic.partitions.items()
            if partition.leader == UNKNOWN
        ]

    def _age_ms(self, since_ms: int) -> int:
        return UNKNOWN if since_ms == UNKNOWN else self._node.clock.monotonic_ms() - since_ms

    def _age_of(self, copy: MirroredPartition) -> int:
        """The age of the last answer about the partition; answers without news do not name it."""
        named_ms = copy.progress.as_of_ms
        return UNKNOWN if named_ms == UNKNOWN else self._age_ms(max(named_ms, self._fetchers.as_of_ms(copy)))

    def _row(self, partition: Partition, state: str) -> dict[str, object]:
        key = partition.topic_partition
        copy = self._copies.get(key) or self._former.get(key)
        if copy is not None and copy.partition is not partition:
            copy = None
        age_ms = UNKNOWN if copy is None else self._age_of(copy)
        row = partition_row(partition, PAUSED if self.is_paused and state == MIRRORING else state, copy, age_ms)
        waits = self._waiting.get(key)
        if waits is not None and state == MIRRORING:
            row["state"], row["problem"] = waits
        return row


def mirror_fetch_settings(config: BrokerConfig) -> FetchSettings:
    """The settings of the fetchers of mirrors.

    Over a long line, a partition that is alone needs all of an answer, since the next one takes a round trip. A limit
    that is set for each partition counts here, too.
    """
    settings = fetch_settings(config)
    if "replica.fetch.max.bytes" in config.static:
        return settings
    return replace(settings, max_bytes=settings.response_max_bytes)


def _pattern(text: str) -> re.Pattern[str] | None:
    return re.compile(text) if text else None


def fetchers_of(given: int, answer_s: float) -> int:
    """The fetchers for each leader of a source that needs `answer_s` for an answer; `given` by the settings, or -1.

    One takes an answer after the other, so that a long line is empty for the time of a round trip. Over a short line,
    several only cost CPU time: each takes fewer records at a time.
    """
    if given > 0:
        return given
    return FETCHERS_OF_LONG_LINE if answer_s > LONGEST_SHORT_LINE_S else 1


def has_changed(topics: Iterable[str], old: MetadataImage, new: MetadataImage) -> bool:
    """Whether one of the topics has changed, e.g. its leaders."""
    before, after = old.topics_by_name, new.topics_by_name
    return before is not after and any(before.get(name) is not after.get(name) for name in topics)


def is_fencing(waiting: Iterable[tuple[str, str]]) -> bool:
    """Whether a partition waits for this cluster's metadata; the source decides about all others."""
    return any(state == EPOCH_FENCING for state, _ in waiting)


def reason_to_wait(partition: Partition, row: MetadataResponsePartition | None) -> tuple[str, str] | None:
    """The state and problem of a partition that cannot be copied now; None if it can."""
    if row is None:
        return (
            FAILED,
            "The source does not have the topic, or another topic with this name; its topic has the next step",
        )
    if row.leader_id < 0:
        return MIRRORING, "The partition has no leader in the source; start the brokers there that have its replicas"
    # A leader that still writes the markers of the previous promotion appends to the log itself.
    if partition.refusal in (None, PROMOTING) or not partition.refusal.is_copy:
        return EPOCH_FENCING, "The topic is not a read-only copy here yet"
    if row.leader_epoch >= generation_start(partition.leader_epoch):
        return EPOCH_FENCING, "The leader epoch is not above the source's yet"
    return None
