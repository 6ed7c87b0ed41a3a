"""The partitions of this node, by name or topic id; they follow the metadata image.

`publish` is called with each new image, after its records were committed. It closes the partitions of deleted topics
and passes changed settings on. Work on thousands of partitions is done a few at a time, between other work of the event
loop: opening the logs of new partitions (earlier if a request needs one), setting aside the logs of deleted topics, and
applying changed settings. A log on disk that the image does not contain is set aside and never deleted: it may be the
only copy of its records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.partition import Partition
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.common.shortage import ShortageError, is_shortage
from ottla.log.config import LogConfig
from ottla.records import ProduceRules

if TYPE_CHECKING:
    from ottla.log import LogManager
    from ottla.metadata.image import MetadataImage, TopicImage

logger = logging.getLogger(__name__)

TopicValues = Callable[[str], dict[str, object]]
"""The effective settings of a topic by Kafka's names, typed."""
# Partitions per event loop iteration: two or three milliseconds.
_OPENED_AT_ONCE = 16
_DELETED_AT_ONCE = 64
_CONFIGURED_AT_ONCE = 64


class Partitions:
    """Every partition that this node leads."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        clock: Clock,
        topic_values: TopicValues,
        flush_in_thread: Callable[[Callable[[], object]], Completion[None]],
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`later` calls a function in the next event loop iteration; without it, `publish` opens all logs at once."""
        self._node_id = node_id
        self._logs = logs
        self._clock = clock
        self._topic_values = topic_values
        self._flush_in_thread = flush_in_thread
        self._later = later
        self.directory_is_missing = False
        """A log directory of this broker is missing: partitions that existed are offline instead of being recreated."""
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        self._names: dict[Uuid, str] = {}
        self._image: MetadataImage | None = None
        # Partitions of the image that are not open yet, by topic, and the settings of their topics.
        self._unopened: dict[str, dict[int, None]] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._is_scheduled = False
        # Partitions of deleted topics whose logs are not set aside yet.
        self._undeleted: dict[TopicPartition, None] = {}
        # Topics whose changed settings are not applied to their partitions yet.
        self._unconfigured: dict[str, None] = {}
        # Partitions that could not be opened for lack of descriptors.
        self._postponed: dict[str, dict[int, None]] = {}

    # -- finding -----------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """The partition by its topic's name; raises UNKNOWN_TOPIC_OR_PARTITION."""
        try:
            return self._by_topic[topic][index]
        except KeyError:
            return self._open_for(topic, index)

    def get_by_id(self, topic_id: Uuid, index: int) -> Partition:
        """The partition by its topic's id; raises UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
        partitions = self._by_id.get(topic_id)
        if partitions is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            return partitions[index]
        except KeyError:
            return self._open_for(self._names[topic_id], index)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic with this id, if it exists."""
        return self._names.get(topic_id)

    def __iter__(self) -> Iterator[Partition]:
        """The open partitions; after `open_all`, all partitions."""
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def _open_for(self, topic: str, index: int) -> Partition:
        postponed = self._postponed.get(topic, {})
        if index in postponed:
            self._unopened.setdefault(topic, {})[index] = None
        unopened = self._unopened.get(topic)
        if unopened is not None and index in unopened:
            self._open(topic, index)
        partition = self._by_topic.get(topic, {}).get(index)
        if partition is None:
            raise self._missing(topic, index)
        return partition

    def _missing(self, topic: str, index: int) -> KafkaError:
        image = self._image
        known = image.topics_by_name.get(topic) if image is not None else None
        if known is not None and index in known.partitions:
            # Its log directory failed, or no descriptor was left: the partition exists but cannot be served.
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{index} is offline")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")

    # -- following the metadata --------------------------------------------------------------------------------

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Follow the image `new`. Errors of one log directory take only its partitions offline."""
        self._image = new
        old_topics = old.topics_by_name if old is not None else {}
        if old_topics is not new.topics_by_name:
            for name, topic in old_topics.items():
                current = new.topics_by_name.get(name)
                if current is None or current.topic_id != topic.topic_id:
                    self._remove(topic)
            if self._undeleted:
                self._delete_some()
            for name, topic in new.topics_by_name.items():
                if old_topics.get(name) is not topic:
                    self._update(topic)
        if old is None and self.directory_is_missing:
            self._skip_missing()
        if old is not None and old.configs is not new.configs:
            self._reconfigure(old, new)
        if self._later is None:
            self._do_all()
        else:
            self._schedule_slice()

    def _skip_missing(self) -> None:
        for name in list(self._unopened):
            for index in list(self._unopened[name]):
                if self._logs.get(TopicPartition(name, index)) is None:
                    logger.error("Partition %s-%d is offline: its log directory is missing", name, index)
                    del self._unopened[name][index]
            if not self._unopened[name]:
                del self._unopened[name]

    def open_all(self) -> None:
        """Open all partitions that are not open yet."""
        while self.open_some():
            pass

    def open_some(self) -> bool:
        """Open a few partitions that are not open yet; False if all are open."""
        for _ in range(_OPENED_AT_ONCE):
            if not self._unopened:
                return False
            topic, indices = next(iter(self._unopened.items()))
            self._open(topic, next(iter(indices)))
        return True

    def _schedule_slice(self) -> None:
        is_left = self._unopened or self._undeleted or self._unconfigured
        if self._later is not None and is_left and not self._is_scheduled:
            self._is_scheduled = True
            self._later(self._do_slice)

    def _do_slice(self) -> None:
        self._is_scheduled = False
        if self._unconfigured:
            self._configure_some()
        elif self._undeleted:
            self._delete_some()
        else:
            self.open_some()
        self._schedule_slice()

    def _do_all(self) -> None:
        while self._unconfigured:
            self._configure_some()
        while self._undeleted:
            self._delete_some()
        self.open_all()

    def _delete_some(self) -> None:
        some = list(islice(self._undeleted, _DELETED_AT_ONCE))
        for topic_partition in some:
            del self._undeleted[topic_partition]
        self._logs.delete(some)

    def close(self) -> None:
        """Open no more partitions: the logs are about to be closed."""
        self._unopened.clear()
        while self._undeleted:
            self._delete_some()
        self._postponed.clear()

    def _remove(self, topic: TopicImage) -> None:
        self._by_id.pop(topic.topic_id, None)
        self._names.pop(topic.topic_id, None)
        self._settings.pop(topic.name, None)
        partitions = self._by_topic.pop(topic.name, {})
        for partition in partitions.values():
            partition.close()
        self._unopened.pop(topic.name, None)
        self._postponed.pop(topic.name, None)
        # This includes partitions that are not open yet (after a start their logs exist) and offline partitions: a new
        # topic of the same name is created on a disk that works.
        self._undeleted.update(dict.fromkeys(TopicPartition(topic.name, index) for index in topic.partitions))

    def _update(self, topic: TopicImage) -> None:
        partitions = self._by_topic.setdefault(topic.name, {})
        self._by_id[topic.topic_id] = partitions
        self._names[topic.topic_id] = topic.name
        for index, image in topic.partitions.items():
            existing = partitions.get(index)
            if existing is not None:
                existing.leader_epoch = image.leader_epoch
                existing.isr_size = len(image.isr)
                existing.replica_count = len(image.replicas)
            elif self._node_id in image.replicas:
                self._unopened.setdefault(topic.name, {})[index] = None

    def _open(self, name: str, index: int) -> None:
        assert self._image is not None
        topic = self._image.topics_by_name[name]
        settings = self._settings.get(name)
        if settings is None:
            settings = self._settings[name] = TopicSettings.of(name, self._topic_values(name))
        unopened = self._unopened[name]
        del unopened[index]
        self._postponed.get(name, {}).pop(index, None)
        if not unopened:
            del self._unopened[name], self._settings[name]
        topic_partition = TopicPartition(name, index)
        if topic_partition in self._undeleted:  # of a deleted topic with the same name
            del self._undeleted[topic_partition]
            self._logs.delete([topic_partition])
        try:
            log = self._logs.get(topic_partition)
            if log is None:
                overrides = self._image.config(TOPIC_RESOURCE, name)
                log = self._logs.create(topic_partition, topic.topic_id, settings.log, overrides)
            else:
                log.reconfigure(settings.log)
                if log.topic_id == ZERO_UUID:
                    log.adopt(topic.topic_id)
        except (KafkaError, OSError) as error:
            if isinstance(error, ShortageError) or (isinstance(error, OSError) and is_shortage(error)):
                # Opened when a client requests it and a descriptor is free.
                self._postponed.setdefault(name, {})[index] = None
            logger.error("Partition %s is offline: %s", topic_partition, error)  # noqa: TRY400 - an operator needs no traceback
            return
        image = topic.partitions[index]
        partition = Partition(
            log,
            leader_epoch=image.leader_epoch,
            rules=settings.rules,
            min_insync_replicas=settings.min_insync_replicas,
            clock=self._clock,
            flush_in_thread=self._flush_in_thread,
        )
        partition.isr_size, partition.replica_count = len(image.isr), len(image.replicas)
        self._by_topic[name][index] = partition

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        self._settings.clear()
        changed = {
            key for key in old.configs.keys() | new.configs.keys() if old.configs.get(key) != new.configs.get(key)
        }
        # A broker-wide default may reach every topic.
        names = {name for kind, name in changed if kind == TOPIC_RESOURCE}
        if any(kind != TOPIC_RESOURCE for kind, _ in changed):
            names = set(self._by_topic)
        self._unconfigured.update(dict.fromkeys(names))
        if self._unconfigured:
            self._configure_some()

    def _configure_some(self) -> None:
        for name in list(islice(self._unconfigured, _CONFIGURED_AT_ONCE)):
            del self._unconfigured[name]
            partitions = self._by_topic.get(name)
            if not partitions:
                continue
            settings = TopicSettings.of(name, self._topic_values(name))
            for partition in partitions.values():
                partition.log.reconfigure(settings.log)
                partition.rules = settings.rules
                partition.min_insync_replicas = settings.min_insync_replicas

    def directory_failed(self, path: str) -> None:
        """Stop serving the partitions of a log directory that failed."""
        for partitions in self._by_topic.values():
            for index, partition in tuple(partitions.items()):
                if partition.log.log_directory.path == path:
                    del partitions[index]
                    partition.close(self._missing(*partition.topic_partition))


TOPIC_RESOURCE = 2


class TopicSettings(NamedTuple):
    """The values of a topic's settings, which all its partitions share."""

    log: LogConfig
    rules: ProduceRules
    min_insync_replicas: int

    @classmethod
    def of(cls, topic: str, values: dict[str, object]) -> TopicSettings:
        """Read the effective settings `values`, by Kafka's names."""
        min_insync_replicas = int_value(values, "min.insync.replicas")
        return cls(LogConfig.from_topic_config(values), produce_rules(topic, values), min_insync_replicas)


def int_value(values: dict[str, object], name: str) -> int:
    """An integer setting from typed values."""
    value = values[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, not a whole number")
    return value


def produce_rules(topic: str, values: dict[str, object]) -> ProduceRules:
    """The rules for batches that are produced to this topic."""
    compression = str(values["compression.type"])
    level = values.get(f"compression.{compression}.level")
    policies = values["cleanup.policy"]
    return ProduceRules(
        topic=topic,
        max_message_bytes=int_value(values, "max.message.bytes"),
        compression_type=compression,
        compression_level=level if isinstance(level, int) else None,
        timestamp_type=str(values["message.timestamp.type"]),
        before_max_ms=int_value(values, "message.timestamp.before.max.ms"),
        after_max_ms=int_value(values, "message.timestamp.after.max.ms"),
        compacted=isinstance(policies, (list, tuple, frozenset, set)) and "compact" in policies,
    )
