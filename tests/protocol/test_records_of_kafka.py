"""Kafka's stored records, read and written again: a stock Kafka 4.3 wrote them into its internal topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from ottla.common.control_types import ControlType
from ottla.protocol import control_records, group_records, metadata_records, share_records, transaction_records
from ottla.protocol.control_records import LeaderChangeMessage
from ottla.protocol.keyed import RecordTypes, decode_keyed, encode_key, encode_value
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from ottla.protocol.wire import DecodeError

from .protocol_strategies import bounded, carried, structs, versions_of

Row = tuple[str, bytes | None, bytes | None]


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def _rows() -> list[Row]:
    lines = (Path(__file__).parent / "kafka_4_3_records.txt").read_text().splitlines()[1:]
    return [(kind, _bytes(key), _bytes(value)) for kind, key, value in map(str.split, lines)]


ROWS = _rows()
KEYED: dict[str, RecordTypes] = {
    "group": group_records.RECORD_TYPES,
    "transaction": transaction_records.RECORD_TYPES,
    "share": share_records.RECORD_TYPES,
}


def test_metadata_records_of_kafka_are_written_as_they_were_read() -> None:
    seen = set()
    for kind, _, value in ROWS:
        if kind == "metadata" and value is not None:
            message = decode_metadata_record(value)
            assert encode_metadata_record(message, version=value[2]) == value, message
            seen.add(type(message))
    assert len(seen) == 17


@pytest.mark.parametrize("kind", KEYED)
def test_coordinator_records_of_kafka_are_written_as_they_were_read(kind: str) -> None:
    seen = 0
    for row_kind, key, value in ROWS:
        if row_kind != kind or key is None:
            continue
        decoded = decode_keyed(KEYED[kind], key, value)
        assert decoded is not None
        assert encode_key(decoded[0]) == key
        assert value is None if decoded[1] is None else encode_value(decoded[1], version=value[1]) == value
        seen += 1
    assert seen == {"group": 11, "transaction": 1, "share": 6}[kind]


def test_control_records_of_kafka_are_understood() -> None:
    rows = [(key, value) for kind, key, value in ROWS if kind == "control" and key is not None and value is not None]
    assert [control_records.decode_control_key(key) for key, _ in rows] == [
        ControlType.LEADER_CHANGE,
        ControlType.COMMIT,
    ]
    change = LeaderChangeMessage.decode(rows[0][1], 0)
    assert (change.leader_id, [voter.voter_id for voter in change.voters]) == (1, [1])
    assert control_records.decode_marker(rows[1][1]).coordinator_epoch == 0
    assert b"\0\0" + control_records.EndTxnMarker(0).encode(0) == rows[1][1]
    assert control_records.encode_control_key(ControlType.COMMIT) == rows[1][0]


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    change = metadata_records.PartitionChangeRecord(
        3, bytes(16), directories=[b"d" * 16], eligible_leader_replicas=[4], last_known_elr=[5]
    )
    tagged = b"\x06\x05\x02\0\0\0\4" + b"\x07\x05\x02\0\0\0\5" + b"\x08\x11\x02" + b"d" * 16
    assert change.encode(2) == b"\0\0\0\3" + bytes(16) + b"\x03" + tagged


def test_values_of_kafkas_records_are_the_ones_set() -> None:
    messages = [decode_metadata_record(value) for kind, _, value in ROWS if kind == "metadata" and value is not None]
    topic = next(message for message in messages if isinstance(message, metadata_records.TopicRecord))
    partition = next(message for message in messages if isinstance(message, metadata_records.PartitionRecord))
    feature = next(message for message in messages if isinstance(message, metadata_records.FeatureLevelRecord))
    assert topic.name == "orders"
    assert partition.topic_id == topic.topic_id
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ([1], 1, 0)
    assert (feature.name, feature.feature_level) == ("metadata.version", 30)


@pytest.mark.parametrize("cls", metadata_records.RECORD_TYPES.values(), ids=lambda cls: cls.__name__)
def test_any_metadata_record_survives_its_frame(cls: type[Message]) -> None:
    @bounded
    @given(structs(cls))
    def check(message: Message) -> None:
        for version in versions_of(cls):
            expected = carried(message, version)
            assert decode_metadata_record(encode_metadata_record(expected, version)) == expected

    check()


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00\x02\x00", b"\x01\x7f\x00", b"\x01\x02\x09", b"\x01\x02"],
    ids=["empty", "frame version", "type", "version", "cut"],
)
def test_unreadable_metadata_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metadata_record(value)


def test_group_records_of_the_future_are_skipped_by_type_and_refused_by_version() -> None:
    assert group_records.decode_record(b"\x00\x63rest", b"") is None
    key = encode_key(group_records.GroupMetadataKey("g"))
    with pytest.raises(DecodeError, match="version 9"):
        group_records.decode_record(key, b"\x00\x09")
    with pytest.raises(DecodeError):
        group_records.decode_record(b"\x00", None)
