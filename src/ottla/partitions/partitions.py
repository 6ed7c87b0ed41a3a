"""The partitions of this node, by name or topic id; they follow the metadata image.

A partition with a replica on this node is led, followed, or offline. `get` returns the led ones; a change of the leader
closes a partition, and its waiting requests fail with NOT_LEADER_OR_FOLLOWER. Listeners are notified of each role.

`publish` is called with each new image, after its records were committed. It closes the partitions of deleted topics
and passes changed settings on. Work on thousands of partitions is done a few at a time, between other work of the event
loop: taking new roles and opening the logs of new partitions (both earlier if a request needs one), setting aside the
logs of deleted topics, and applying changed settings.

A partition whose new role waits acts on one older image (leader, epochs, replicas, ISR), as on a broker that has not
received the newer records: epochs fence it. A request that looks the partition up gives it its newest role first.

A log on disk that the image does not contain is set aside and never deleted: it may be the
only copy of its records. The log of a partition that was reassigned to other nodes is deleted: they have its records.
A log that was lost with its directory is created again only while another node leads the partition (`lost_logs.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ottla.common.clock import Clock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.common.shortage import ShortageError, is_shortage
from ottla.common.work import SLICE_MS, Worker
from ottla.metadata.image import TOPIC
from ottla.partitions.flush import FlushInThread
from ottla.partitions.lost_logs import LostLogs
from ottla.partitions.partition import Partition, Replication
from ottla.partitions.pending import PendingWork
from ottla.partitions.promotion import admit_clients
from ottla.partitions.replication.followed import FollowedPartition, RoleListener
from ottla.partitions.topic_settings import TopicSettings
from ottla.partitions.traffic import Traffic
from ottla.replication.leader import ClusterView, IsrProposal, Leader

if TYPE_CHECKING:
    from ottla.log import Log, LogManager
    from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage

logger = logging.getLogger(__name__)

TopicValues = Callable[[str], dict[str, object]]
"""The effective settings of a topic by Kafka's names, typed."""
# Partitions per event loop iteration, at most: two or three milliseconds, if the disk is not busy.
_OPENED_AT_ONCE = 16
_DELETED_AT_ONCE = 64
_CONFIGURED_AT_ONCE = 64
# Changed roles take 10 us each.
_CHANGED_AT_ONCE = 400


@dataclass(frozen=True, slots=True)
class PartitionsPorts:
    """The parts of the node that its partitions use."""

    node_id: int
    logs: LogManager
    clock: Clock
    topic_values: TopicValues
    flush_in_thread: FlushInThread
    worker: Worker


class Partitions:
    """Every partition that has a replica on this node."""

    def __init__(self, ports: PartitionsPorts, later: Callable[[Callable[[], None]], object] | None = None) -> None:
        """`later` calls a function in the next event loop iteration; without it, `publish` opens all logs at once."""
        self._ports = ports
        self._pending = PendingWork(later)
        self.lost_logs = LostLogs(ports.node_id, ports.logs)
        # The partitions that this node leads; each topic of the image has an entry.
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._listeners: list[RoleListener] = []
        self.cluster = ClusterView(ports.node_id, {})
        """The leaders' knowledge of the brokers; see `ottla.replication.leader`."""
        self.send_proposal: Callable[[Partition, IsrProposal], None] | None = None
        """Sends a change of in-sync replicas to the controller. Without it, the ISR stays as it is."""
        self.traffic = Traffic()
        """The records and bytes of clients and followers, by topic."""
        self._names: dict[Uuid, str] = {}
        self._image: MetadataImage | None = None
        # The settings of topics with partitions that are not open yet.
        self._settings: dict[str, TopicSettings] = {}

    # -- finding -----------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """The partition by its topic's name; raises UNKNOWN_TOPIC_OR_PARTITION."""
        if self._pending.unchanged:
            self._change_now(topic, index)
        try:
            return self._by_topic[topic][index]
        except KeyError:
            return self._open_for(topic, index)

    def get_by_id(self, topic_id: Uuid, index: int) -> Partition:
        """The partition by its topic's id; raises UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
        partitions = self._by_id.get(topic_id)
        if partitions is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self._pending.unchanged:
            self._change_now(self._names[topic_id], index)
        try:
            return partitions[index]
        except KeyError:
            return self._open_for(self._names[topic_id], index)

    def readable(self, topic: str | Uuid, index: int) -> Partition | FollowedPartition:
        """The partition by its topic's name or id, also one that this node only follows (KIP-392); raises as `get`."""
        try:
            return self.get(topic, index) if isinstance(topic, str) else self.get_by_id(topic, index)
        except KafkaError as error:
            name = topic if isinstance(topic, str) else self._names.get(topic, "")
            followed = self._followed.get(TopicPartition(name, index))
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or followed is None:
                raise
            return followed

    def local_log(self, topic: str, index: int) -> Log | None:
        """The log of an open replica on this node, led or followed; opens none."""
        led = self._by_topic.get(topic, {}).get(index)
        replica = led or self._followed.get(TopicPartition(topic, index))
        return None if replica is None else replica.log

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic with this id, if it exists."""
        return self._names.get(topic_id)

    def __iter__(self) -> Iterator[Partition]:
        """The open partitions; after `open_all`, all partitions."""
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def _open_for(self, topic: str, index: int) -> Partition:
        if (topic, index) in self._pending.unopened or (topic, index) in self._pending.postponed:
            self._open(topic, index)
        partition = self._by_topic.get(topic, {}).get(index)
        if partition is None:
            raise self._missing(topic, index)
        return partition

    def _missing(self, topic: str, index: int) -> KafkaError:
        image = self._image
        known = image.topics_by_name.get(topic) if image is not None else None
        partition = known.partitions.get(index) if known is not None else None
        if partition is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
        if partition.leader != self._ports.node_id:
            text = f"Node {partition.leader} leads {topic}-{index} in epoch {partition.leader_epoch}"
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        # Its log directory failed, or no descriptor was left: the partition exists but cannot be served.
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{index} is offline")

    def leader_of(self, topic: str | Uuid, index: int) -> tuple[int, int]:
        """The leader's node id and its epoch, by the metadata that this node has; (-1, -1) if unknown. KIP-951."""
        image = self._image
        if image is None:
            return -1, -1
        known = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        partition = known.partitions.get(index) if known is not None else None
        return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)

    def followed(self) -> list[FollowedPartition]:
        """The partitions that this node follows."""
        return list(self._followed.values())

    def listen(self, listener: RoleListener) -> None:
        """Notify `listener` of the role of each open partition, now and after each change."""
        self._listeners.append(listener)
        for partition in self:
            listener.leading(partition)
        for followed in self._followed.values():
            listener.following(followed)

    # -- following the metadata --------------------------------------------------------------------------------

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follow the image `new`. Errors of one log directory take only its partitions offline."""
        self._image = new
        if old is None:
            self.lost_logs.begin(new)
        self.cluster.brokers = new.brokers
        old_topics = old.topics_by_name if old is not None else {}
        if old_topics is not new.topics_by_name:
            for name, topic in old_topics.items():
                current = new.topics_by_name.get(name)
                if current is None or current.topic_id != topic.topic_id:
                    self._remove(topic)
            if self._pending.undeleted:
                self._delete_some()
            for name, topic in new.topics_by_name.items():
                known = old_topics.get(name)
                if known is not topic:
                    self._update(topic, known)
            self._change_some()
        if old is not None and old.configs is not new.configs:
            self._reconfigure(old, new)
        if old is not None and old.brokers is not new.brokers:
            for partition in self:
                if partition.topic_partition not in self._pending.unchanged:  # the others check it with their new role
                    partition.check_joining()
        if self._pending.later is None:
            self._do_all()
        else:
            self._pending.schedule(self._do_slice)
        self._forget_settings()

    def _forget_settings(self) -> None:
        if not self._pending.unopened and not self._pending.unchanged:
            self._settings.clear()

    def open_all(self) -> None:
        """Open all partitions that are not open yet."""
        while self.open_some():
            pass

    def open_some(self) -> bool:
        """Open a few partitions that are not open yet; False if all are open.

        A busy disk takes many milliseconds for one new log, and other nodes must not wait for all of them.
        """
        if self._pending.unchanged:  # This node may not have a replica any more.
            self._change_some()
            return True
        end_ms = self._ports.clock.monotonic_ms() + SLICE_MS
        for _ in range(_OPENED_AT_ONCE):
            if not self._pending.unopened:
                return False
            self._open(*next(iter(self._pending.unopened)))
            if self._ports.clock.monotonic_ms() >= end_ms:
                break
        return True

    def _do_slice(self) -> None:
        if self._pending.unchanged:
            self._change_some()
        elif self._pending.unconfigured:
            self._configure_some()
        elif self._pending.undeleted:
            self._delete_some()
        else:
            self.open_some()

    def _do_all(self) -> None:
        while self._pending.unconfigured:
            self._configure_some()
        while self._pending.undeleted:
            self._delete_some()
        self.open_all()

    def _delete_some(self) -> None:
        some = list(islice(self._pending.undeleted, _DELETED_AT_ONCE))
        for topic_partition in some:
            del self._pending.undeleted[topic_partition]
        self._ports.logs.delete(some)

    def close(self) -> None:
        """Open no more partitions: the logs are about to be closed."""
        self._pending.unchanged.clear()
        self._pending.unopened.clear()
        while self._pending.undeleted:
            self._delete_some()
        self._pending.postponed.clear()

    def _remove(self, topic: TopicImage) -> None:
        self._by_id.pop(topic.topic_id, None)
        self._names.pop(topic.topic_id, None)
        self._settings.pop(topic.name, None)
        self.traffic.forget(topic.name)
        for partition in self._by_topic.pop(topic.name, {}).values():
            partition.close()
            self._resigned(partition)
        for index in topic.partitions:
            self._unfollow(TopicPartition(topic.name, index))
        # This includes partitions that are not open yet (after a start their logs exist) and offline partitions: a new
        # topic of the same name is created on a disk that works.
        self._pending.topic_deleted(topic.name, (TopicPartition(topic.name, index) for index in topic.partitions))

    def _update(self, topic: TopicImage, known: TopicImage | None) -> None:
        self._by_topic.setdefault(topic.name, {})
        self._by_id[topic.topic_id] = self._by_topic[topic.name]
        self._names[topic.topic_id] = topic.name
        before = known.partitions if known is not None and known.topic_id == topic.topic_id else {}
        changed = (index for index, image in topic.partitions.items() if before.get(index) is not image)
        self._pending.unchanged.add(topic.name, changed)

    def _change_some(self) -> None:
        for name, index in self._pending.unchanged.first(_CHANGED_AT_ONCE):
            self._change_now(name, index)
        self._forget_settings()

    def _change_now(self, name: str, index: int) -> None:
        """Give a partition its new role, unless it has it."""
        if self._image is not None and (name, index) in self._pending.unchanged:
            self._pending.unchanged.discard(name, index)
            topic = self._image.topics_by_name[name]
            self._change(topic, index, topic.partitions[index])

    def _change(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        """Take the role that a new or changed partition of the image gives to this node."""
        topic_partition = TopicPartition(topic.name, index)
        led = self._by_topic[topic.name].get(index)
        followed = self._followed.get(topic_partition)
        if self._ports.node_id not in image.replicas:
            self._leave(topic_partition)
        elif led is not None:
            if image.leader == self._ports.node_id:
                led.follow(self._replication(led.log, image, led.settings.min_insync_replicas, led.replication), image)
            else:
                self._resign(led, self._missing(topic.name, index))
                self._follow(led.log, image, is_truncation_synced=led.is_truncation_synced)
        elif followed is None and self.lost_logs.is_lost(topic, index):
            logger.error("Partition %s is offline: its log directory is missing", topic_partition)
            self._pending.unopened.discard(topic.name, index)
        elif followed is None:
            self._pending.unopened.add(topic.name, (index,))
        elif image.leader == self._ports.node_id:
            self._unfollow(topic_partition)
            self._promote(followed, image)
        elif followed.follow(image):
            for listener in self._listeners:
                listener.following(followed)

    # -- roles -------------------------------------------------------------------------------------------------

    def _replication(
        self, log: Log, image: PartitionImage, min_insync_replicas: int, known: Leader | None = None
    ) -> Replication | None:
        if len(image.replicas) == 1:
            return None
        leader = known or Leader(
            self.cluster,
            image,
            min_insync_replicas=min_insync_replicas,
            log_end_offset=log.log_end_offset,
            now_ms=self._ports.clock.monotonic_ms(),
        )
        return Replication(leader, self._propose)

    def _settings_of(self, topic: str) -> TopicSettings:
        settings = self._settings.get(topic)
        if settings is None:
            settings = self._settings[topic] = TopicSettings.of(topic, self._ports.topic_values(topic))
        return settings

    def _promote(self, followed: FollowedPartition, image: PartitionImage) -> None:
        log = followed.log
        try:
            if not followed.is_truncation_synced:
                log.flush()
        except KafkaError as error:
            logger.error("Partition %s is offline: %s", log.topic_partition, error)  # noqa: TRY400 - as in `_open`
            return
        self._lead(log, image, self._settings_of(log.topic_partition.topic))

    def _lead(self, log: Log, image: PartitionImage, settings: TopicSettings) -> None:
        partition = Partition(
            log,
            leader_epoch=image.leader_epoch,
            settings=settings,
            flush_in_thread=self._ports.flush_in_thread,
            replication=self._replication(log, image, settings.min_insync_replicas),
        )
        topic, index = log.topic_partition
        partition.traffic = self.traffic.of(topic)
        self._by_topic[topic][index] = partition
        for listener in self._listeners:
            listener.leading(partition)
        admit_clients(partition, settings.refusal, self._ports.worker)

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        if self.send_proposal is not None:
            self.send_proposal(partition, proposal)

    def _resign(self, partition: Partition, reason: KafkaError) -> None:
        topic, index = partition.topic_partition
        del self._by_topic[topic][index]
        partition.close(reason)
        self._resigned(partition)

    def _resigned(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener.resigned(partition)

    def _follow(self, log: Log, image: PartitionImage, *, is_truncation_synced: bool = True) -> None:
        followed = self._followed[log.topic_partition] = FollowedPartition(log, image, self._ports.flush_in_thread)
        followed.is_truncation_synced = is_truncation_synced
        followed.traffic = self.traffic.of(log.topic_partition.topic)
        for listener in self._listeners:
            listener.following(followed)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            followed.close()
            for listener in self._listeners:
                listener.unfollowed(followed)

    def _leave(self, topic_partition: TopicPartition) -> None:
        """Delete the replica of a partition that was reassigned to other nodes."""
        topic, index = topic_partition
        led = self._by_topic[topic].get(index)
        if led is not None:
            self._resign(led, self._missing(topic, index))
        self._unfollow(topic_partition)
        self._pending.opened(topic, index)
        if self._ports.logs.get(topic_partition) is not None:
            self._pending.undeleted[topic_partition] = None

    def _open(self, name: str, index: int) -> None:
        assert self._image is not None
        topic = self._image.topics_by_name[name]
        settings = self._settings_of(name)
        self._pending.opened(name, index)
        if not self._pending.unopened.has_topic(name):
            self._settings.pop(name, None)
        topic_partition = TopicPartition(name, index)
        if topic_partition in self._pending.undeleted:  # of a deleted topic with the same name
            del self._pending.undeleted[topic_partition]
            self._ports.logs.delete([topic_partition])
        try:
            log = self._ports.logs.get(topic_partition)
            if log is None:
                overrides = self._image.config(TOPIC, name)
                log = self._ports.logs.create(topic_partition, topic.topic_id, settings.log, overrides, plan=True)
            elif not log.log_directory.online:
                # As a follower, it would be in sync and delay the others, since it fetches and cannot append.
                log.context.raise_offline()
            else:
                log.reconfigure(settings.log)
                if log.topic_id == ZERO_UUID:
                    log.adopt(topic.topic_id)
        except (KafkaError, OSError) as error:
            if isinstance(error, ShortageError) or (isinstance(error, OSError) and is_shortage(error)):
                # Opened when a client requests it and a descriptor is free.
                self._pending.postponed.add(name, (index,))
            logger.error("Partition %s is offline: %s", topic_partition, error)  # noqa: TRY400 - an operator needs no traceback
            return
        image = topic.partitions[index]
        if image.leader == self._ports.node_id:
            self._lead(log, image, settings)
        else:
            self._follow(log, image)

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        self._settings.clear()
        changed = {
            key for key in old.configs.keys() | new.configs.keys() if old.configs.get(key) != new.configs.get(key)
        }
        # A broker-wide default may reach every topic.
        names = {name for kind, name in changed if kind == TOPIC}
        if any(kind != TOPIC for kind, _ in changed):
            names = set(self._by_topic)
        self._pending.unconfigured.update(dict.fromkeys(names))
        if self._pending.unconfigured:
            self._configure_some()

    def _configure_some(self) -> None:
        for name in list(islice(self._pending.unconfigured, _CONFIGURED_AT_ONCE)):
            del self._pending.unconfigured[name]
            led = self._by_topic.get(name, {})
            topic = self._image.topics_by_name.get(name) if self._image is not None else None
            indices = topic.partitions if topic is not None and len(led) < len(topic.partitions) else ()
            followed = [self._followed.get(TopicPartition(name, index)) for index in indices]
            if not led and not any(followed):
                continue
            settings = TopicSettings.of(name, self._ports.topic_values(name))
            for partition in led.values():
                partition.log.reconfigure(settings.log)
                admit_clients(partition, settings.refusal, self._ports.worker)
                partition.configure(settings)
            for other in followed:
                if other is not None:
                    other.log.reconfigure(settings.log)

    def directory_failed(self, path: str) -> None:
        """Stop serving the partitions of a log directory that failed."""
        for partitions in self._by_topic.values():
            for index, partition in tuple(partitions.items()):
                if partition.log.log_directory.path == path:
                    del partitions[index]
                    partition.close(self._missing(*partition.topic_partition))
                    self._resigned(partition)
        for followed in self.followed():
            if followed.log.log_directory.path == path:
                self._unfollow(followed.log.topic_partition)
