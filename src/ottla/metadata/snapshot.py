"""Encodes an image as the records of a snapshot (KIP-630).

Replaying the records on an empty image gives an equal image. Features come first, because a reader needs the
metadata.version to interpret the other records.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message


def snapshot_records(image: MetadataImage) -> Iterator[Message]:
    """The records of the image, in the order in which they can be replayed."""
    # False sorts before True: metadata.version is first.
    for name, level in sorted(image.features.items(), key=lambda item: (item[0] != METADATA_VERSION, item)):
        yield m.FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    yield from image.controllers.values()
    for topic in image.topics_by_name.values():
        yield m.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic.topic_id, index, partition)
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            yield m.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    yield from _quotas(image)
    if image.producer_ids_next:
        yield m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids_next)
    yield from image.scram_credentials.values()
    yield from image.acls.values()
    yield from image.delegation_tokens.values()


def _quotas(image: MetadataImage) -> Iterator[Message]:
    for entity, values in image.client_quotas.items():
        for key, value in values.items():
            parts = [m.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield m.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


def broker_record(broker: BrokerImage) -> m.RegisterBrokerRecord:
    """The broker as its registration."""
    return m.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            m.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            m.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> m.PartitionRecord:
    """The partition as the record that creates it."""
    return m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
