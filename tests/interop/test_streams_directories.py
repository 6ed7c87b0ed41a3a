"""A directory with a streams group: Kafka -> Ottla -> Kafka. Members continue, and the records have the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group import GroupConfig, GroupShard
from ottla.coordinators.group.streams import records as encode
from ottla.protocol import streams_group_records as s
from ottla.protocol.group_records import decode_record, encode_key, encode_value
from ottla.protocol.messages import streams_group_describe, streams_group_heartbeat
from ottla.records import decode_batch, iter_batches
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.conftest import TEST_PROPERTIES
from tests.drivers.streams_members import word_count
from tests.peers import kafka

from .conftest import Tools
from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-streams-directory")]

GROUP = "flow"
WAIT_S = 30.0
RETRIED = (14, 15, 16)


class Member:
    """One thread of the application, without Kafka Streams. It continues at another broker."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.tasks: tuple[list[Any], list[Any]] = ([], [])

    @property
    def active(self) -> list[tuple[str, int]]:
        return [(row.subtopology_id, index) for row in self.tasks[0] for index in row.partitions]

    def beat(self, broker: Asking) -> int:
        """Send a heartbeat; returns its error."""
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(GROUP, self.member_id, self.epoch)
        request.active_tasks, request.standby_tasks, request.warmup_tasks = *map(_asked, self.tasks), []
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.process_id, request.topology = 30_000, self.member_id, word_count()
        response = broker.send_message(request, 0)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.tasks = response.active_tasks, response.standby_tasks
        return int(response.error_code)


def _asked(rows: list[Any]) -> list[streams_group_heartbeat.RequestTaskIds]:
    return [streams_group_heartbeat.RequestTaskIds(row.subtopology_id, row.partitions) for row in rows]


def settled(broker: Asking, *members: Member) -> streams_group_describe.DescribedGroup:
    """Send heartbeats until the group is stable; returns its description."""
    described: list[streams_group_describe.DescribedGroup] = []

    def is_stable() -> bool:
        errors = [member.beat(broker) for member in members]
        assert all(error in (0, *RETRIED) for error in errors), errors
        answer = broker.send_message(streams_group_describe.StreamsGroupDescribeRequest([GROUP]), 0)
        described.append(answer.groups[0])
        tasks = sorted(task for member in members for task in member.active)
        return described[-1].group_state == "Stable" and tasks == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]

    wait_until(is_stable, "the group is stable", WAIT_S)
    return described[-1]


@contextmanager
def connected(bootstrap: str) -> Iterator[Asking]:
    """A connection to the group's coordinator, which is the only broker."""
    with Asking(bootstrap, timeout_s=60.0) as broker:
        yield broker


def stored(data: Path) -> list[RecordBytes]:
    """Keys and values of the records of streams groups, in their order."""
    found: list[RecordBytes] = []
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        content = path.read_bytes()
        for position, header in iter_batches(content):
            rows = [] if header.is_control else decode_batch(content, position)
            found += [(bytes(row.key or b""), None if row.value is None else bytes(row.value)) for row in rows]
    return [row for row in found if (decoded := decode_record(*row)) and type(decoded[0]).__name__[:7] == "Streams"]


def encoded(shard: GroupShard, key: Any) -> RecordBytes:
    """The record of the group's present state with this key."""
    group = shard.streams_groups[GROUP]
    match key:
        case s.StreamsGroupMetadataKey():
            settings = group.assignment_settings
            return encode.epoch_record(group, group.epoch, group.state.metadata_hash, group.validated_epoch, settings)
        case s.StreamsGroupTopologyKey():
            assert group.topology is not None
            return encode.topology_record(GROUP, group.topology)
        case s.StreamsGroupTargetAssignmentMetadataKey():
            return encode.TYPES.target_epoch_record(GROUP, group.target.epoch, group.target.timestamp_ms)
        case s.StreamsGroupMemberMetadataKey():
            return encode.member_record(GROUP, group.members[key.member_id])
        case s.StreamsGroupTargetAssignmentMemberKey():
            return encode.target_record(GROUP, key.member_id, group.target_of(key.member_id))
    return encode.current_record(GROUP, group.members[key.member_id])


def check_bytes(records: list[RecordBytes]) -> set[type]:
    """Decode and encode each record, also from the state that it leads to; returns the types of the keys."""
    shard = GroupShard(GroupConfig(), lambda count: bytes(count))
    kinds: set[type] = set()
    for offset, (key, value) in enumerate(records):
        decoded = decode_record(key, value)
        assert decoded is not None
        shard.replay(key, value, offset)
        assert encode_key(decoded[0]) == key
        if value is not None and decoded[1] is not None:
            assert encode_value(decoded[1], 0) == value
            assert encoded(shard, decoded[0]) == (key, value)
            kinds.add(type(decoded[0]))
    return kinds


def test_members_continue_on_ottla_and_back_on_kafka(tmp_path: Path) -> None:
    # A start of stock Kafka takes longer than the session timeout of other tests.
    settings = {**TEST_PROPERTIES, "offsets.topic.num.partitions": 2, "group.streams.session.timeout.ms": 40_000}
    stock = kafka.StockKafka(tmp_path / "stock", overrides=settings)
    first, second = Member("first"), Member("second")
    with stock, connected(stock.bootstrap) as broker:
        tools = Tools(stock.bootstrap)
        tools.create_topic("in", partitions=2)
        tools.run("console-consumer", "--topic", "in", "--group", "warm", "--timeout-ms", 1_000)
        before = settled(broker, first, second)
    assert len(check_bytes(stored(stock.data()))) == 6, "records of all types"
    properties = tmp_path / "stock" / "node-1" / "server.properties"
    epochs = first.epoch, second.epoch
    with OttlaOnStock(tmp_path / "ottla", properties) as ottla, connected(ottla.bootstrap) as broker:
        on_ottla = settled(broker, first, second)
        assert {row.member_id for row in on_ottla.members} == {"first", "second"}
        assert on_ottla.topology == before.topology
        assert (first.epoch, second.epoch) >= epochs
        gone = streams_group_heartbeat.StreamsGroupHeartbeatRequest(GROUP, "second", -1)
        assert broker.send_message(gone, 0).error_code == 0
        settled(broker, first)
    ottla.assert_no_traceback()
    check_bytes(stored(stock.data()))
    epoch = first.epoch
    with stock, connected(stock.bootstrap) as broker:
        back = settled(broker, first)
        assert [row.member_id for row in back.members] == ["first"]
        assert first.epoch >= epoch
        assert back.topology == before.topology
    assert " ERROR " not in (stock.directory / "node-1" / "server.log").read_text()
