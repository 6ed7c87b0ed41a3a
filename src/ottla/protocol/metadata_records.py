"""Records of the metadata log (KRaft), and how they are framed. KIP-631.

`API_KEY` of a class is the record's type. A frame is: frame version (1), type, version, each an unsigned varint, then
the message. The writer chooses the version that the finalized metadata.version allows.
"""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Float64, Int8, Int16, Int32, Int64, Message, Struct, UInt16, Uuid, since, tagged
from ottla.protocol.wire import Buffer, DecodeError, read_uvarint, uvarint

FRAME_VERSION = 1


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    """A broker registered, and is fenced until it asks otherwise. KIP-631, KIP-858, KIP-1066"""

    broker_id: Int32 = 0
    is_migrating_zk_broker: bool = since(2)
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = since(1)
    log_dirs: list[Uuid] = tagged(0, 3)
    cordoned_log_dirs: list[Uuid] | None = tagged(1, 4, default=None)


class BrokerEndpoint(Struct):
    """An element of `RegisterBrokerRecord.end_points`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    """An element of `RegisterBrokerRecord.features`."""

    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    """A broker left for good."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    """A partition was created, with its full state."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Int8 = tagged(0, 0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[Uuid] = since(1)
    eligible_leader_replicas: list[Int32] | None = tagged(1, 2, default=None)
    last_known_elr: list[Int32] | None = tagged(2, 2, default=None)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    """A setting of a resource was set, or (null) removed."""

    resource_type: Int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    """The changes of a partition; absent fields stay as they were."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: list[Int32] | None = tagged(0, 0, default=None)
    leader: Int32 = tagged(1, 0, default=-2)
    replicas: list[Int32] | None = tagged(2, 0, default=None)
    removing_replicas: list[Int32] | None = tagged(3, 0, default=None)
    adding_replicas: list[Int32] | None = tagged(4, 0, default=None)
    leader_recovery_state: Int8 = tagged(5, 0, default=-1)
    directories: list[Uuid] | None = tagged(8, 1, default=None)
    eligible_leader_replicas: list[Int32] | None = tagged(6, 2, default=None)
    last_known_elr: list[Int32] | None = tagged(7, 2, default=None)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    """A broker was fenced. Written by metadata versions before 3.3 only."""

    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    """A broker was unfenced. Written by metadata versions before 3.3 only."""

    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions."""

    topic_id: Uuid = ZERO_UUID


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed. KIP-48"""

    owner: str = ""
    requester: str = ""
    renewers: list[str] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: str = ""


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential was set. KIP-554"""

    name: str = ""
    mechanism: Int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    """A feature was set to a level; level 0 removes it."""

    name: str = ""
    feature_level: Int16 = 0


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    """A quota of an entity was set or removed. KIP-546"""

    entity: list[EntityData] = []
    key: str = ""
    value: Float64 = 0.0
    remove: bool = False


class EntityData(Struct):
    """An element of `ClientQuotaRecord.entity`."""

    entity_type: str = ""
    entity_name: str | None = ""


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    """A broker was given the producer ids below `next_producer_id`. KIP-730"""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    """A broker was fenced, unfenced or began to shut down, or its log directories changed."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = tagged(0, 0)
    in_controlled_shutdown: Int8 = tagged(1, 1)
    log_dirs: list[Uuid] = tagged(2, 2)
    cordoned_log_dirs: list[Uuid] | None = tagged(3, 3, default=None)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    """An access rule was added."""

    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 0
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
    # Ottla's own; other software skips it. The mirrors that have copied the rule, or none if a client has created it.
    mirrors: list[str] = tagged(1000, 0)


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    """An access rule was removed."""

    id: Uuid = ZERO_UUID


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    """Nothing: keeps the log's end moving. KIP-835"""


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    """How far a migration from ZooKeeper has come. KIP-866"""

    zk_migration_state: Int8 = 0


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was removed."""

    name: str = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    """The following records take effect only with the transaction's end. KIP-868"""

    name: str | None = tagged(0, 0, default=None)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    """The transaction takes effect."""


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    """The transaction's records are void."""

    reason: str | None = tagged(0, 0, default=None)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = ""


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    """A controller registered. KIP-919"""

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ControllerEndpoint(Struct):
    """An element of `RegisterControllerRecord.end_points`."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class ControllerFeature(Struct):
    """An element of `RegisterControllerRecord.features`."""

    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic (or, with an empty name, of all) were cleared. KIP-966"""

    topic_name: str = ""


RECORD_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
NEWEST_KNOWN = "Kafka 4.3"
_FRAME = uvarint(FRAME_VERSION)


class UnknownRecordError(DecodeError):
    """A metadata record of a frame, type or version that this software does not know: newer software wrote it."""


def encode_metadata_record(message: Message, version: int) -> bytes:
    """The value of a record of the metadata log."""
    return _FRAME + uvarint(message.API_KEY) + uvarint(version) + message.encode(version)


def decode_metadata_record(buffer: Buffer) -> Message:
    """The message in the value of a record of the metadata log.

    Raises DecodeError, as UnknownRecordError for a type or version that is unknown: metadata must not be skipped.
    """
    frame, position = read_uvarint(buffer, 0)
    if frame != FRAME_VERSION:
        raise UnknownRecordError(f"Metadata frame version {frame} is unknown")
    key, position = read_uvarint(buffer, position)
    version, position = read_uvarint(buffer, position)
    record = RECORD_TYPES.get(key)
    if record is None:
        raise UnknownRecordError(
            f"Metadata record type {key} (version {version}) is unknown: {NEWEST_KNOWN} has types up to"
            f" {max(RECORD_TYPES)}"
        )
    if not record.MIN_VERSION <= version <= record.MAX_VERSION:
        raise UnknownRecordError(
            f"{record.__name__} version {version} is unknown: {NEWEST_KNOWN} has versions {record.MIN_VERSION} to"
            f" {record.MAX_VERSION}"
        )
    return record.decode_from(buffer, position, version)[0]
