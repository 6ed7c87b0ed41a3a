"""Records become an image, and the image's snapshot becomes an equal image."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.delta import MetadataDelta, MetadataError
from ottla.metadata.features import bootstrap_records, record_version
from ottla.metadata.image import EMPTY_IMAGE, TOPIC, MetadataImage
from ottla.metadata.snapshot import snapshot_records
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from tests.conftest import DRAWN_EXAMPLES

IDS = [bytes([i]) * 16 for i in range(1, 6)]


def replayed(records: list[Message], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1)


def topic(i: int, partitions: int = 1) -> list[Message]:
    records: list[Message] = [m.TopicRecord(name=f"t{i}", topic_id=IDS[i])]
    return records + [partition(i, index) for index in range(partitions)]


def partition(i: int, index: int) -> m.PartitionRecord:
    return m.PartitionRecord(
        partition_id=index, topic_id=IDS[i], replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[b"a" * 16, b"b" * 16],
    )  # fmt: skip


def test_unchanged_parts_are_shared_between_images() -> None:
    first = replayed([*bootstrap_records(), *topic(0), *topic(1)])
    second = replayed([m.ConfigRecord(resource_type=TOPIC, resource_name="t0", name="a", value="b")], first)
    assert second.topics_by_name is first.topics_by_name
    assert not first.configs
    third = replayed([partition(0, 1)], second)
    assert third.topics_by_name["t1"] is second.topics_by_name["t1"]
    assert len(second.topics_by_name["t0"].partitions) == 1
    third.validate()


def test_leader_change_starts_an_epoch_but_other_changes_do_not() -> None:
    image = replayed([*topic(0), m.PartitionChangeRecord(partition_id=0, topic_id=IDS[0], isr=[1])])
    after = image.topics_by_name["t0"].partitions[0]
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1,), 0, 1)
    image = replayed([m.PartitionChangeRecord(partition_id=0, topic_id=IDS[0], leader=1)], image)
    after = image.topics_by_name["t0"].partitions[0]
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 1, 2)


def test_metadata_transaction_takes_effect_at_its_end_or_never() -> None:
    begin, end = m.BeginTransactionRecord(), m.EndTransactionRecord()
    assert not replayed([begin, *topic(0)]).topics_by_name
    assert not replayed([begin, *topic(0), m.AbortTransactionRecord()]).topics_by_name
    assert "t0" in replayed([begin, *topic(0), end]).topics_by_name
    assert "t1" in replayed([begin, *topic(0), m.AbortTransactionRecord(), *topic(1)]).topics_by_name


@pytest.mark.parametrize(
    "record",
    [
        partition(0, 0),
        m.PartitionChangeRecord(topic_id=IDS[0]),
        m.RemoveTopicRecord(topic_id=IDS[0]),
        m.FenceBrokerRecord(id=1, epoch=1),
        m.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
    ],
)
def test_record_that_contradicts_the_image_is_an_error(record: Message) -> None:
    with pytest.raises(MetadataError):
        replayed([record])


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Return a valid sequence of records of every type that an image stores."""
    records: list[Message] = list(bootstrap_records())
    alive: dict[int, int] = {}
    for i in draw(st.lists(st.integers(0, 4), max_size=12)):
        if i in alive and draw(st.booleans()):
            del alive[i]
            records.append(m.RemoveTopicRecord(topic_id=IDS[i]))
        elif i in alive:
            records.append(partition(i, alive[i]))
            alive[i] += 1
        else:
            alive[i] = draw(st.integers(1, 3))
            records += topic(i, alive[i])
    names = [f"t{i}" for i in alive]
    for name in names:
        for key in draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4)):
            value = draw(st.none() | st.text(max_size=3))
            records.append(m.ConfigRecord(resource_type=TOPIC, resource_name=name, name=key, value=value))
        leader = draw(st.sampled_from([-1, 1, 2]))
        change = m.PartitionChangeRecord(partition_id=0, topic_id=IDS[int(name[1])], leader=leader)
        if leader > 0:
            change.isr = [leader]
            change.eligible_leader_replicas = draw(st.none() | st.just([1]))
        records.append(change)
    records += [m.ClearElrRecord(name) for name in draw(st.lists(st.sampled_from(["", "t0", "t1"]), max_size=2))]
    for broker_id in draw(st.sets(st.integers(1, 3))):
        records.append(
            m.RegisterBrokerRecord(
                broker_id=broker_id, broker_epoch=broker_id, incarnation_id=IDS[0], rack=draw(st.none() | st.just("r")),
                end_points=[m.BrokerEndpoint("PLAINTEXT", "host", 9092, 0)],
                features=[m.BrokerFeature("metadata.version", 7, 30)], log_dirs=[IDS[1]],
                cordoned_log_dirs=draw(st.none() | st.just([IDS[1]])),
            )
        )  # fmt: skip
        if draw(st.booleans()):
            records.append(m.UnfenceBrokerRecord(id=broker_id, epoch=broker_id))
    entity = [m.EntityData("user", None), m.EntityData("client-id", "c")]
    records.append(m.ClientQuotaRecord(entity, "producer_byte_rate", 5.5, draw(st.booleans())))
    records.append(m.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=draw(st.integers(1, 9000))))
    records.append(m.UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096))
    records.append(m.AccessControlEntryRecord(IDS[2], 2, "t", 3, "User:a", "*", 3, 3))
    records.append(m.DelegationTokenRecord("User:a", "User:a", [], 1, 2, 3, "token"))
    records.append(m.RegisterControllerRecord(controller_id=1, incarnation_id=IDS[3]))
    return records


@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@given(histories())
def test_image_survives_its_snapshot(records: list[Message]) -> None:
    image = replayed(records)
    image.validate()
    wire = [encode_metadata_record(record, record_version(record, 30)) for record in snapshot_records(image)]
    again = replayed([decode_metadata_record(value) for value in wire])
    again.validate()
    assert replace(again, offset=image.offset, epoch=image.epoch) == image


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(histories(), st.data())
def test_image_is_independent_of_delta_boundaries(records: list[Message], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(records)))
    whole = replayed(records)
    parts = replayed(records[cut:], replayed(records[:cut]))
    assert replace(parts, offset=whole.offset) == whole


@pytest.mark.parametrize("level", [7, 8, 17, 23, 30])
def test_snapshot_uses_record_versions_of_the_metadata_version(level: int) -> None:
    for record in (partition(0, 0), m.RegisterBrokerRecord(), m.BrokerRegistrationChangeRecord(), m.TopicRecord()):
        version = record_version(record, level)
        assert type(record).MIN_VERSION <= version <= type(record).MAX_VERSION
        decode_metadata_record(encode_metadata_record(record, version))
