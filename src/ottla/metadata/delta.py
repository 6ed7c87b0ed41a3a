"""Applies metadata records to an image.

Create `MetadataDelta(image)`, call `replay` with each record in order, then `apply(offset, epoch)` for the new image.

The old image never changes. A delta copies a dictionary when the first record changes it, and changes the copy for all
later records. So n records cost O(n) plus one copy of each changed dictionary, and dictionaries that no record changed
are shared by both images. Nested dictionaries (partitions of a topic, configs of a resource, quotas of an entity) are
copied in the same way, and `apply` puts them back into their parents.

Records between BeginTransaction and EndTransaction (KIP-868) take effect together at the end, or not at all. A record
that contradicts the image, such as a partition of an unknown topic, raises MetadataError: the log is corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ottla.common.ids import DIRECTORY_UNASSIGNED, Uuid
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import (
    TOPIC,
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
    collision_name,
)
from ottla.protocol import metadata_records as m

if TYPE_CHECKING:
    from ottla.protocol.message import Message

K = TypeVar("K")
V = TypeVar("V")

NO_CHANGE = -2
MAX_TRANSACTION_RECORDS = 1_000_000


class MetadataError(Exception):
    """A metadata record contradicts the previous records."""


def changed_partition(before: PartitionImage, record: m.PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change."""
    changes: dict[str, Any] = {
        name: tuple(value)
        for name, value in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("removing_replicas", record.removing_replicas),
            ("adding_replicas", record.adding_replicas),
            ("directories", record.directories),
            ("eligible_leader_replicas", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        )
        if value is not None
    }
    if record.replicas is not None and record.directories is None:
        known = dict(zip(before.replicas, before.directories, strict=False))
        changes["directories"] = tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in record.replicas)
    if record.leader_recovery_state >= 0:
        changes["leader_recovery_state"] = record.leader_recovery_state
    if record.leader != NO_CHANGE:
        # The leader epoch increases even if the leader stays, so that clients and followers refresh.
        changes["leader"] = record.leader
        changes["leader_epoch"] = before.leader_epoch + 1
    return before._replace(partition_epoch=before.partition_epoch + 1, **changes)


class MetadataDelta:
    """The changes of records to `image`."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._changed: dict[str, dict[Any, Any]] = {}
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._producer_ids_next = image.producer_ids_next
        self._transaction: list[Message] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open. A snapshot must not be written then."""
        return self._transaction is not None

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version so far; 0 before the bootstrap records."""
        level: int = self._look("features").get(METADATA_VERSION, 0)
        return level

    def replay(self, record: Message) -> None:
        """Apply one record, or store it until its transaction ends."""
        if isinstance(record, m.BeginTransactionRecord):
            if self._transaction is not None:
                raise MetadataError("A metadata transaction begins inside another one")
            self._transaction = []
        elif isinstance(record, m.AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, m.EndTransactionRecord):
            records, self._transaction = self._transaction or [], None
            for waiting in records:
                self._replay(waiting)
        elif self._transaction is not None:
            if len(self._transaction) >= MAX_TRANSACTION_RECORDS:
                raise MetadataError(f"A metadata transaction of more than {MAX_TRANSACTION_RECORDS} records")
            self._transaction.append(record)
        else:
            self._replay(record)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """Return the image after all records so far. Later records apply to that image."""
        self._close_topics()
        self._close_nested("configs", self._configs)
        self._close_nested("client_quotas", self._quotas)
        image = replace(
            self._image, offset=offset, epoch=epoch, producer_ids_next=self._producer_ids_next, **self._changed
        )
        self._image, self._changed = image, {}
        return image

    # -- copy on first write-------------------------------------------------------------------------------------

    def _map(self, name: str) -> dict[Any, Any]:
        changed = self._changed.get(name)
        if changed is None:
            changed = self._changed[name] = dict(getattr(self._image, name))
        return changed

    def _look(self, name: str) -> Mapping[Any, Any]:
        """Return the present dictionary, read only."""
        changed = self._changed.get(name)
        return cast("Mapping[Any, Any]", getattr(self._image, name)) if changed is None else changed

    def _nested(self, name: str, opened: dict[K, dict[str, V]], key: K) -> dict[str, V]:
        values = opened.get(key)
        if values is None:
            values = opened[key] = dict(self._look(name).get(key, {}))
        return values

    def _close_nested(self, name: str, opened: dict[K, dict[str, V]]) -> None:
        for key, values in opened.items():
            if values:
                self._map(name)[key] = values
            elif key in self._look(name):
                del self._map(name)[key]
        opened.clear()

    def _close_topics(self) -> None:
        if not self._partitions:
            return
        by_id, by_name = self._map("topics_by_id"), self._map("topics_by_name")
        for topic_id, partitions in self._partitions.items():
            indexes = list(partitions)
            if indexes != sorted(indexes):
                partitions = dict(sorted(partitions.items()))
            topic = by_id[topic_id]._replace(partitions=partitions)
            by_id[topic_id] = by_name[topic.name] = topic
        self._partitions.clear()

    # -- one record --------------------------------------------------------------------------------------------

    def _replay(self, record: Message) -> None:
        method = _METHODS.get(type(record))
        if method is None:
            raise MetadataError(f"Unsupported record {type(record).__name__}")
        getattr(self, method)(record)

    def _feature_level(self, record: m.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._map("features")[record.name] = record.feature_level
        else:
            self._map("features").pop(record.name, None)

    # topics

    def _topic(self, record: m.TopicRecord) -> None:
        if record.name in self._look("topics_by_name"):
            raise MetadataError(f"A second record for topic {record.name}")
        topic = TopicImage(record.name, record.topic_id, {})
        self._map("topics_by_name")[record.name] = self._map("topics_by_id")[record.topic_id] = topic
        collision = collision_name(record.name)
        if collision is not None:
            self._map("colliding_names")[collision] = record.name

    def _remove_topic(self, record: m.RemoveTopicRecord) -> None:
        topic = self._map("topics_by_id").pop(record.topic_id, None)
        if topic is None:
            raise MetadataError(f"Removal of an unknown topic id {record.topic_id.hex()}")
        del self._map("topics_by_name")[topic.name]
        self._partitions.pop(record.topic_id, None)
        collision = collision_name(topic.name)
        if collision is not None and self._look("colliding_names").get(collision) == topic.name:
            del self._map("colliding_names")[collision]
        self._nested("configs", self._configs, (TOPIC, topic.name)).clear()

    def _partitions_of(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._look("topics_by_id").get(topic_id)
            if topic is None:
                raise MetadataError(f"A partition of an unknown topic id {topic_id.hex()}")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
        return partitions

    def _partition(self, record: m.PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories) or (DIRECTORY_UNASSIGNED,) * len(record.replicas),
            adding_replicas=tuple(record.adding_replicas),
            removing_replicas=tuple(record.removing_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def _partition_change(self, record: m.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        before = partitions.get(record.partition_id)
        if before is None:
            raise MetadataError(f"A change of an unknown partition {record.topic_id.hex()}-{record.partition_id}")
        partitions[record.partition_id] = changed_partition(before, record)

    def _clear_elr(self, record: m.ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic, or of all topics if the name is empty (KIP-966)."""
        topics = self._look("topics_by_name")
        if record.topic_name:
            # A topic that does not exist has no eligible leader replicas.
            chosen = [topics[record.topic_name]] if record.topic_name in topics else []
        else:
            chosen = list(topics.values())
        for topic in chosen:
            current = self._partitions.get(topic.topic_id, topic.partitions)
            cleared = {
                index: partition._replace(
                    partition_epoch=partition.partition_epoch + 1, eligible_leader_replicas=(), last_known_elr=()
                )
                for index, partition in current.items()
                if partition.eligible_leader_replicas or partition.last_known_elr
            }
            if cleared:
                self._partitions_of(topic.topic_id).update(cleared)

    # brokers

    def _register_broker(self, record: m.RegisterBrokerRecord) -> None:
        self._map("brokers")[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=_optional(record.cordoned_log_dirs),
        )

    def _unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._map("brokers")[record.broker_id]

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker: BrokerImage | None = self._look("brokers").get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataError(f"A record for broker {broker_id} with epoch {epoch}, but {broker} is registered")
        return broker

    def _fence_broker(self, record: m.FenceBrokerRecord) -> None:
        self._map("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _unfence_broker(self, record: m.UnfenceBrokerRecord) -> None:
        self._map("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _change_broker(self, record: m.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_directories=tuple(record.cordoned_log_dirs))
        self._map("brokers")[record.broker_id] = broker

    def _register_controller(self, record: m.RegisterControllerRecord) -> None:
        self._map("controllers")[record.controller_id] = record

    # configs, quotas and security

    def _config(self, record: m.ConfigRecord) -> None:
        values = self._nested("configs", self._configs, (record.resource_type, record.resource_name))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def _client_quota(self, record: m.ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        values = self._nested("client_quotas", self._quotas, entity)
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    def _producer_ids(self, record: m.ProducerIdsRecord) -> None:
        self._producer_ids_next = record.next_producer_id

    def _acl(self, record: m.AccessControlEntryRecord) -> None:
        self._map("acls")[record.id] = record

    def _remove_acl(self, record: m.RemoveAccessControlEntryRecord) -> None:
        self._map("acls").pop(record.id, None)

    def _scram(self, record: m.UserScramCredentialRecord) -> None:
        self._map("scram_credentials")[(record.name, record.mechanism)] = record

    def _remove_scram(self, record: m.RemoveUserScramCredentialRecord) -> None:
        self._map("scram_credentials").pop((record.name, record.mechanism), None)

    def _token(self, record: m.DelegationTokenRecord) -> None:
        self._map("delegation_tokens")[record.token_id] = record

    def _remove_token(self, record: m.RemoveDelegationTokenRecord) -> None:
        self._map("delegation_tokens").pop(record.token_id, None)

    def _nothing(self, record: Message) -> None:
        """Ignore a record without cluster state: NoOp, or the state of a migration from ZooKeeper."""


def _optional(values: list[Uuid] | None) -> tuple[Uuid, ...] | None:
    return None if values is None else tuple(values)


_METHODS: dict[type[Message], str] = {
    m.FeatureLevelRecord: "_feature_level",
    m.TopicRecord: "_topic",
    m.RemoveTopicRecord: "_remove_topic",
    m.PartitionRecord: "_partition",
    m.PartitionChangeRecord: "_partition_change",
    m.ClearElrRecord: "_clear_elr",
    m.RegisterBrokerRecord: "_register_broker",
    m.UnregisterBrokerRecord: "_unregister_broker",
    m.FenceBrokerRecord: "_fence_broker",
    m.UnfenceBrokerRecord: "_unfence_broker",
    m.BrokerRegistrationChangeRecord: "_change_broker",
    m.RegisterControllerRecord: "_register_controller",
    m.ConfigRecord: "_config",
    m.ClientQuotaRecord: "_client_quota",
    m.ProducerIdsRecord: "_producer_ids",
    m.AccessControlEntryRecord: "_acl",
    m.RemoveAccessControlEntryRecord: "_remove_acl",
    m.UserScramCredentialRecord: "_scram",
    m.RemoveUserScramCredentialRecord: "_remove_scram",
    m.DelegationTokenRecord: "_token",
    m.RemoveDelegationTokenRecord: "_remove_token",
    m.NoOpRecord: "_nothing",
    m.ZkMigrationStateRecord: "_nothing",
}
