"""Every metadata record type of Kafka 4.3 has a rule: it changes the image, and a snapshot retains the change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.metadata.features import bootstrap_records, record_version
from ottla.metadata.image import EMPTY_IMAGE, TOPIC, MetadataImage
from ottla.metadata.snapshot import snapshot_records
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import RECORD_TYPES, decode_metadata_record, encode_metadata_record

# MetadataRecordType of Kafka 4.3.0: type to (lowest, highest version).
KAFKA_4_3 = {
    0: (0, 4), 1: (0, 0), 2: (0, 0), 3: (0, 2), 4: (0, 0), 5: (0, 2), 7: (0, 0), 8: (0, 0), 9: (0, 0), 10: (0, 0),
    11: (0, 0), 12: (0, 0), 14: (0, 0), 15: (0, 0), 17: (0, 3), 18: (0, 0), 19: (0, 0), 20: (0, 0), 21: (0, 0),
    22: (0, 0), 23: (0, 0), 24: (0, 0), 25: (0, 0), 26: (0, 0), 27: (0, 0), 28: (0, 0),
}  # fmt: skip

TOPIC_ID, OTHER_ID, ACL_ID, DIRECTORY = (bytes([i]) * 16 for i in range(1, 5))


def partition(topic_id: bytes = TOPIC_ID) -> m.PartitionRecord:
    return m.PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1, 2, 3], isr=[1], removing_replicas=[2], adding_replicas=[3],
        leader=1, leader_recovery_state=1, leader_epoch=5, partition_epoch=6, directories=[DIRECTORY] * 3,
        eligible_leader_replicas=[2], last_known_elr=[3],
    )  # fmt: skip


def broker(fenced: bool = True) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(
        broker_id=1, incarnation_id=OTHER_ID, broker_epoch=9, rack="r", fenced=fenced, in_controlled_shutdown=False,
        end_points=[m.BrokerEndpoint("EXTERNAL", "host", 9092, 3)],
        features=[m.BrokerFeature("group.version", 0, 1)], log_dirs=[DIRECTORY], cordoned_log_dirs=[DIRECTORY],
    )  # fmt: skip


TOPIC_RECORDS = [m.TopicRecord("t", TOPIC_ID), partition()]
ACL = m.AccessControlEntryRecord(ACL_ID, 2, "t", 3, "User:a", "*", 3, 3)
SCRAM = m.UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096)
TOKEN = m.DelegationTokenRecord("User:a", "User:b", ["User:c"], 1, 2, 3, "token")

# For each type: the records that it needs before it, and the record itself.
SAMPLES: dict[type[Message], tuple[list[Message], Message]] = {
    m.RegisterBrokerRecord: ([], broker()),
    m.UnregisterBrokerRecord: ([broker()], m.UnregisterBrokerRecord(1, 9)),
    m.TopicRecord: ([], m.TopicRecord("other.name", OTHER_ID)),
    m.PartitionRecord: ([m.TopicRecord("t", TOPIC_ID)], partition()),
    m.ConfigRecord: (TOPIC_RECORDS[:1], m.ConfigRecord(TOPIC, "t", "min.insync.replicas", "2")),
    m.PartitionChangeRecord: (
        [*TOPIC_RECORDS],
        m.PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, isr=[3], leader=3, replicas=[3, 4], removing_replicas=[],
            adding_replicas=[], leader_recovery_state=0, directories=[DIRECTORY, DIRECTORY],
            eligible_leader_replicas=[4], last_known_elr=[4],
        ),
    ),
    m.FenceBrokerRecord: ([broker(fenced=False)], m.FenceBrokerRecord(1, 9)),
    m.UnfenceBrokerRecord: ([broker()], m.UnfenceBrokerRecord(1, 9)),
    m.RemoveTopicRecord: ([*TOPIC_RECORDS], m.RemoveTopicRecord(TOPIC_ID)),
    m.DelegationTokenRecord: ([], TOKEN),
    m.UserScramCredentialRecord: ([], SCRAM),
    m.FeatureLevelRecord: ([], m.FeatureLevelRecord("streams.version", 2)),
    m.ClientQuotaRecord: ([], m.ClientQuotaRecord([m.EntityData("user", None)], "producer_byte_rate", 5.5, False)),
    m.ProducerIdsRecord: ([], m.ProducerIdsRecord(1, 9, 5000)),
    m.BrokerRegistrationChangeRecord: (
        [broker()], m.BrokerRegistrationChangeRecord(1, 9, -1, 1, [OTHER_ID], [OTHER_ID])
    ),
    m.AccessControlEntryRecord: ([], ACL),
    m.RemoveAccessControlEntryRecord: ([ACL], m.RemoveAccessControlEntryRecord(ACL_ID)),
    m.NoOpRecord: ([], m.NoOpRecord()),
    m.ZkMigrationStateRecord: ([], m.ZkMigrationStateRecord(4)),
    m.RemoveUserScramCredentialRecord: ([SCRAM], m.RemoveUserScramCredentialRecord("u", 1)),
    m.BeginTransactionRecord: ([], m.BeginTransactionRecord("bootstrap")),
    m.EndTransactionRecord: ([m.BeginTransactionRecord(), ACL], m.EndTransactionRecord()),
    m.AbortTransactionRecord: ([m.BeginTransactionRecord(), ACL], m.AbortTransactionRecord("failover")),
    m.RemoveDelegationTokenRecord: ([TOKEN], m.RemoveDelegationTokenRecord("token")),
    m.RegisterControllerRecord: (
        [],
        m.RegisterControllerRecord(
            1, OTHER_ID, True, [m.ControllerEndpoint("C", "host", 9093, 0)],
            [m.ControllerFeature("kraft.version", 0, 1)],
        ),
    ),
    m.ClearElrRecord: ([*TOPIC_RECORDS], m.ClearElrRecord("t")),
}  # fmt: skip
# These records do not change the state of the cluster, or only delimit a transaction.
WITHOUT_EFFECT = {m.NoOpRecord, m.ZkMigrationStateRecord, m.BeginTransactionRecord, m.AbortTransactionRecord}


def replayed(records: list[Message], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(7, 1)


def test_types_and_versions_equal_kafka_4_3() -> None:
    assert {key: (cls.MIN_VERSION, cls.MAX_VERSION) for key, cls in RECORD_TYPES.items()} == KAFKA_4_3


def test_every_record_type_has_a_sample() -> None:
    assert set(SAMPLES) == set(RECORD_TYPES.values())


@pytest.mark.parametrize("cls", RECORD_TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_record_type_is_replayed_and_retained_in_a_snapshot(cls: type[Message]) -> None:
    before, record = SAMPLES[cls]
    start = replayed([*bootstrap_records(), *before])
    image = replayed([*bootstrap_records(), *before, record])
    assert (image == start) == (cls in WITHOUT_EFFECT)
    wire = [encode_metadata_record(item, record_version(item, 30)) for item in snapshot_records(image)]
    again = replayed([decode_metadata_record(value) for value in wire])
    assert replace(again, offset=image.offset, epoch=image.epoch) == image


@pytest.mark.parametrize("cls", RECORD_TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_field_of_a_record_survives_its_frame(cls: type[Message]) -> None:
    record = SAMPLES[cls][1]
    assert decode_metadata_record(encode_metadata_record(record, cls.MAX_VERSION)) == record


def test_record_of_a_class_without_a_rule_is_an_error() -> None:
    class FutureRecord(Message, key=99, versions="0", flexible="0+"):
        """A record type that nothing handles."""

    with pytest.raises(MetadataError, match="Unsupported record FutureRecord"):
        replayed([FutureRecord()])


# -- ClearElrRecord --------------------------------------------------------------------------------------------------


def elr(image: MetadataImage, topic: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    found = image.topics_by_name[topic].partitions[0]
    return found.eligible_leader_replicas, found.last_known_elr, found.partition_epoch


def test_eligible_leader_replicas_of_one_topic_are_cleared() -> None:
    image = replayed([*TOPIC_RECORDS, m.TopicRecord("u", OTHER_ID), partition(OTHER_ID), m.ClearElrRecord("t")])
    assert elr(image, "t") == ((), (), 7)
    assert elr(image, "u") == ((2,), (3,), 6)
    after = image.topics_by_name["t"].partitions[0]
    assert (after.leader, after.leader_epoch, after.isr) == (1, 5, (1,))


def test_eligible_leader_replicas_of_all_topics_are_cleared() -> None:
    image = replayed([*TOPIC_RECORDS, m.TopicRecord("u", OTHER_ID), partition(OTHER_ID)])
    cleared = replayed([m.ClearElrRecord("")], image)
    assert elr(cleared, "t") == elr(cleared, "u") == ((), (), 7)
    assert replayed([m.ClearElrRecord("")], cleared).topics_by_id is cleared.topics_by_id, "nothing left to clear"


def test_clearing_the_eligible_leader_replicas_of_an_unknown_topic_changes_nothing() -> None:
    image = replayed([*TOPIC_RECORDS])
    assert replayed([m.ClearElrRecord("deleted")], image) == image
