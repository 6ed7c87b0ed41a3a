"""Single records: changes of registrations and partitions, deletions, and corrupt logs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.metadata.delta import MetadataDelta, MetadataError, changed_partition
from ottla.metadata.image import GROUP, TOPIC, BrokerImage, MetadataImage, PartitionImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message

from .test_image import IDS, partition, replayed, topic

A, B, C = (bytes([each]) * 16 for each in b"abc")
BEFORE = PartitionImage((1, 2, 3), (1, 2), 1, 4, 6, (A, B, C), leader_recovery_state=1)


def register(**values: object) -> m.RegisterBrokerRecord:
    """Register broker 1 with epoch 5 and two directories."""
    record = m.RegisterBrokerRecord(broker_id=1, broker_epoch=5, incarnation_id=IDS[0], log_dirs=[A, B])
    for name, value in values.items():
        setattr(record, name, value)
    return record


# -- brokers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"fenced": 1}, {"fenced": True}),
        ({"fenced": -1}, {"fenced": False}),
        ({"in_controlled_shutdown": 1}, {"in_controlled_shutdown": True}),
        ({"log_dirs": [B]}, {"directories": (B,)}),
        ({"log_dirs": []}, {}),
        ({"cordoned_log_dirs": [A]}, {"cordoned_directories": (A,)}),
        ({"cordoned_log_dirs": []}, {"cordoned_directories": ()}),
    ],
)
@pytest.mark.parametrize("was_fenced", [False, True])
def test_registration_change_alters_only_the_fields_that_it_names(
    changes: dict[str, Any], expected: dict[str, Any], was_fenced: bool
) -> None:
    before = replayed([register(fenced=was_fenced, cordoned_log_dirs=[B])])
    record = m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5)
    for name, value in changes.items():
        setattr(record, name, value)
    after = replayed([record], before)
    assert after.brokers[1] == before.brokers[1]._replace(**expected)


@pytest.mark.parametrize(
    "record",
    [
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        m.FenceBrokerRecord(id=1, epoch=6),
        m.UnfenceBrokerRecord(id=2, epoch=5),
        m.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
    ],
)
def test_record_for_another_registration_of_a_broker_is_an_error(record: Message) -> None:
    image = replayed([register()])
    with pytest.raises(MetadataError, match="A record for broker"):
        replayed([record], image)


def test_broker_that_is_unregistered_can_register_again() -> None:
    image = replayed([register(rack="r"), m.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)])
    assert not image.brokers
    again = replayed([register(broker_epoch=9, rack=None)], image).brokers[1]
    assert (again.epoch, again.rack) == (9, None)


@pytest.mark.parametrize(
    ("directories", "cordoned", "is_cordoned"),
    [
        ((A, B), (A, B), True),
        ((A, B), (B, C, A), True),
        ((A, B), (A,), False),
        ((A, B), None, False),
        ((A,), (), False),
        ((), (A,), False),
        ((), None, False),
    ],
)
def test_broker_is_cordoned_if_no_known_directory_takes_replicas(
    directories: tuple[bytes, ...], cordoned: tuple[bytes, ...] | None, is_cordoned: bool
) -> None:
    image = BrokerImage(1, 1, IDS[0], (), (), None, False, False, directories, cordoned)
    assert image.is_cordoned == is_cordoned


@pytest.mark.parametrize(
    ("directory", "of_two", "of_unknown"),
    [
        (A, True, True),
        (C, False, True),
        (DIRECTORY_LOST, False, False),
        (DIRECTORY_UNASSIGNED, True, True),
        (DIRECTORY_MIGRATING, True, True),
    ],
)
def test_replica_is_offline_if_its_directory_failed(directory: bytes, of_two: bool, of_unknown: bool) -> None:
    for log_dirs, online in (([A, B], of_two), ([], of_unknown)):
        image = replayed([register(log_dirs=log_dirs)])
        place = PartitionImage((1, 2), (1,), 1, 0, 0, (directory, B))
        assert image.offline_replicas(place, {1}) == ([] if online else [1]) + [2]
        assert image.offline_replicas(place, ()) == [1, 2]


# -- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"isr": [1]}, {"isr": (1,)}),
        ({"isr": []}, {"isr": ()}),
        ({"leader": 2}, {"leader": 2, "leader_epoch": 5}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 5}),
        ({"leader": 1}, {"leader_epoch": 5}),
        ({"leader_recovery_state": 0}, {"leader_recovery_state": 0}),
        ({"directories": [C, B, A]}, {"directories": (C, B, A)}),
        ({"replicas": [3, 1, 2]}, {"replicas": (3, 1, 2), "directories": (C, A, B)}),
        ({"replicas": [2, 4]}, {"replicas": (2, 4), "directories": (B, DIRECTORY_UNASSIGNED)}),
        ({"replicas": [2, 4], "directories": [A, C]}, {"replicas": (2, 4), "directories": (A, C)}),
        ({"adding_replicas": [3], "removing_replicas": []}, {"adding_replicas": (3,)}),
        ({"eligible_leader_replicas": [3]}, {"eligible_leader_replicas": (3,)}),
        ({"last_known_elr": [2]}, {"last_known_elr": (2,)}),
    ],
)  # fmt: skip
def test_partition_change_alters_only_the_fields_that_it_names(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = m.PartitionChangeRecord()
    for name, value in changes.items():
        setattr(record, name, value)
    assert changed_partition(BEFORE, record) == BEFORE._replace(partition_epoch=7, **expected)


def test_partition_of_an_old_record_has_unassigned_directories() -> None:
    record = partition(0, 0)
    record.directories = []
    image = replayed([m.TopicRecord(name="t0", topic_id=IDS[0]), record])
    assert image.topics_by_name["t0"].partitions[0].directories == (DIRECTORY_UNASSIGNED,) * 2


def test_partitions_are_in_order_whatever_the_order_of_their_records() -> None:
    image = replayed([m.TopicRecord(name="t0", topic_id=IDS[0]), *(partition(0, index) for index in (2, 0, 1))])
    assert list(image.topics_by_name["t0"].partitions) == [0, 1, 2]
    image.validate()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"replicas": (1, 2, 2), "isr": (1,)}, "name a broker twice"),
        ({"isr": (1, 9)}, "is not within replicas"),
        ({"leader": 9}, "leader 9 is not among replicas"),
        ({"directories": (A,)}, "1 directories for 3 replicas"),
        ({"adding_replicas": (9,)}, "an adding or removing replica"),
    ],
)
def test_contradictions_of_a_partition_are_reported(changes: dict[str, Any], problem: str) -> None:
    assert not BEFORE.problems()
    [found] = BEFORE._replace(**changes).problems()
    assert problem in found


# -- topics and settings ---------------------------------------------------------------------------------------------


def test_deleted_topic_loses_its_settings_but_others_retain_theirs() -> None:
    settings = [m.ConfigRecord(kind, name, "a.ms", "1") for kind, name in ((TOPIC, "t0"), (TOPIC, "t1"), (GROUP, "t0"))]
    image = replayed([*topic(0), *topic(1), *settings])
    after = replayed([m.RemoveTopicRecord(topic_id=IDS[0])], image)
    assert set(after.configs) == {(TOPIC, "t1"), (GROUP, "t0")}
    recreated = replayed([m.TopicRecord(name="t0", topic_id=IDS[4])], after)
    assert not recreated.config(TOPIC, "t0")
    assert len(image.configs) == 3, "the old image does not change"


def test_topic_that_is_deleted_and_recreated_in_one_delta_has_none_of_its_old_state() -> None:
    image = replayed([*topic(0, partitions=3), m.ConfigRecord(TOPIC, "t0", "a.ms", "1")])
    after = replayed(
        [
            m.PartitionChangeRecord(topic_id=IDS[0], partition_id=1, isr=[1]),
            m.RemoveTopicRecord(topic_id=IDS[0]),
            m.TopicRecord(name="t0", topic_id=IDS[4]),
            partition(4, 0),
            m.ConfigRecord(TOPIC, "t0", "b.ms", "2"),
        ],
        image,
    )
    after.validate()
    assert (after.topics_by_name["t0"].topic_id, len(after.topics_by_name["t0"].partitions)) == (IDS[4], 1)
    assert after.config(TOPIC, "t0") == {"b.ms": "2"}


@pytest.mark.parametrize(("name", "collides"), [("a.b", "a_b"), ("a_b", "a_b"), ("ab", None)])
def test_name_in_metrics_is_free_again_after_its_topic_is_deleted(name: str, collides: str | None) -> None:
    image = replayed([m.TopicRecord(name=name, topic_id=IDS[0])])
    assert image.colliding_names == ({collides: name} if collides else {})
    assert not replayed([m.RemoveTopicRecord(topic_id=IDS[0])], image).colliding_names


def test_second_topic_of_a_name_is_an_error() -> None:
    with pytest.raises(MetadataError, match="A second record for topic t0"):
        replayed([*topic(0), m.TopicRecord(name="t0", topic_id=IDS[1])])


def test_quota_is_removed_with_its_entity_and_the_order_of_the_entity_does_not_matter() -> None:
    parts = [m.EntityData("user", "u"), m.EntityData("client-id", None)]
    image = replayed(
        [m.ClientQuotaRecord(parts, key, 1.0, False) for key in ("producer_byte_rate", "request_percentage")]
    )
    assert image.client_quotas == {
        (("client-id", None), ("user", "u")): {"producer_byte_rate": 1.0, "request_percentage": 1.0}
    }
    removals: list[Message] = [
        m.ClientQuotaRecord(parts[::-1], key, 0.0, True) for key in ("producer_byte_rate", "request_percentage")
    ]
    half = replayed(removals[:1], image)
    assert list(half.client_quotas.values()) == [{"request_percentage": 1.0}]
    assert not replayed(removals, image).client_quotas


# -- transactions of records (KIP-868) -------------------------------------------------------------------------------


def test_transaction_may_span_several_images_and_takes_effect_in_the_last() -> None:
    delta = MetadataDelta(MetadataImage())
    delta.replay(m.BeginTransactionRecord())
    for record in topic(0):
        delta.replay(record)
    open_then = delta.in_transaction
    assert not delta.apply(1, 1).topics_by_name
    delta.replay(m.EndTransactionRecord())
    assert (open_then, delta.in_transaction) == (True, False)
    image = delta.apply(2, 1)
    assert list(image.topics_by_name) == ["t0"]
    assert len(image.topics_by_name["t0"].partitions) == 1


def test_nested_transaction_is_an_error() -> None:
    delta = MetadataDelta(MetadataImage())
    delta.replay(m.BeginTransactionRecord())
    with pytest.raises(MetadataError, match="begins inside another one"):
        delta.replay(m.BeginTransactionRecord())
