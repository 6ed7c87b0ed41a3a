"""Requests of brokers and administrators about share groups, sent over a raw socket. Stock Kafka defines the responses.

Brokers send the first ones to the share coordinator. Stock Kafka serves them on its client listeners too. KIP-932.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.common.ids import uuid_to_text
from ottla.protocol.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    find_coordinator,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_group_heartbeat,
    write_share_group_state,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from tests.conftest import KAFKA, RunningBroker

from .conftest import MakeTopic
from .support import unique, wait_until
from .test_answers_in_detail import Asking, send_batch, topic_id_of
from .wire import batch

pytestmark = pytest.mark.both

UNKNOWN_TOPIC, INVALID_GROUP_ID, INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 3, 24, 42, 68, 69
FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, NOT_LEADER, NO_SESSION = 74, 124, 6, 122
INVALID_RECORD_STATE, INVALID_SESSION_EPOCH = 121, 123
AVAILABLE, ACKNOWLEDGED = 0, 2
GROUP_KEY, SHARE_KEY, GROUP_RESOURCE, ACCEPT, RENEW = 0, 2, 32, 1, 4
UNKNOWN_TOPIC_ID = bytes(15) + b"\x09"
Offsets = Mapping[str, Mapping[int, int]]


class Shares(Asking):
    """Sends requests about one share group and one topic of two partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, timeout_s=30.0)
        self.topic, self.group = topic, unique("share")
        self.topic_id = topic_id_of(self, topic)
        self.member_id = unique("member")[-36:]
        self.session_epoch = 0
        key = f"{self.group}:{uuid_to_text(self.topic_id)}:0"
        for kind, name in ((GROUP_KEY, self.group), (SHARE_KEY, key)):
            request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            wait_until(lambda: not self.send_message(request, 6).coordinators[0].error_code, f"the coordinator: {name}")  # noqa: B023
        # A coordinator answers before its partition has been loaded.
        wait_until(lambda: self.summary(0).error_code in (0, UNKNOWN_TOPIC), "the share coordinator")
        wait_until(lambda: not self.describe(None)[0], "the group coordinator")

    # -- the share coordinator -------------------------------------------------------------------------------------

    def initialize(self, partition: int, state_epoch: int, start_offset: int, topic_id: bytes | None = None) -> int:
        module = initialize_share_group_state
        row = module.PartitionData(partition, state_epoch, start_offset)
        topic = module.InitializeStateData(topic_id or self.topic_id, [row])
        return self._row(module.InitializeShareGroupStateRequest(self.group, [topic]), 0).error_code

    def read(self, partition: int, leader_epoch: int, topic_id: bytes | None = None) -> Any:
        module = read_share_group_state
        topic = module.ReadStateData(topic_id or self.topic_id, [module.PartitionData(partition, leader_epoch)])
        return self._row(module.ReadShareGroupStateRequest(self.group, [topic]), 0)

    def summary(self, partition: int, version: int = 1, topic_id: bytes | None = None) -> Any:
        module = read_share_group_state_summary
        topic = module.ReadStateSummaryData(topic_id or self.topic_id, [module.PartitionData(partition, 0)])
        return self._row(module.ReadShareGroupStateSummaryRequest(self.group, [topic]), version)

    def write(
        self,
        partition: int,
        *batches: tuple[int, int, int, int],
        epochs: tuple[int, int] = (1, 0),
        start: int = -1,
        version: int = 1,
        topic_id: bytes | None = None,
    ) -> int:
        """`epochs` are the state epoch and the leader epoch."""
        module = write_share_group_state
        states = [module.StateBatch(*each) for each in batches]
        row = module.PartitionData(partition, *epochs, start, 0, states)
        topic = module.WriteStateData(topic_id or self.topic_id, [row])
        return self._row(module.WriteShareGroupStateRequest(self.group, [topic]), version).error_code

    def delete_state(self, partition: int, topic_id: bytes | None = None) -> int:
        module = delete_share_group_state
        topic = module.DeleteStateData(topic_id or self.topic_id, [module.PartitionData(partition)])
        return self._row(module.DeleteShareGroupStateRequest(self.group, [topic]), 0).error_code

    def _row(self, request: Any, version: int) -> Any:
        (topic,) = self.send_message(request, version).results
        (row,) = topic.partitions
        return row

    # -- the group coordinator -------------------------------------------------------------------------------------

    def describe(self, topics: Mapping[str, list[int]] | None, version: int = 1) -> tuple[int, Any]:
        """The error of the group, and (start offset, lag) by topic and partition."""
        module = describe_share_group_offsets
        wanted = topics and [module.DescribeShareGroupOffsetsRequestTopic(*each) for each in topics.items()]
        group = module.DescribeShareGroupOffsetsRequestGroup(self.group, wanted)
        (row,) = self.send_message(module.DescribeShareGroupOffsetsRequest([group]), version).groups
        return row.error_code, {
            topic.topic_name: {each.partition_index: (each.start_offset, each.lag) for each in topic.partitions}
            for topic in row.topics
        }

    def alter(self, offsets: Offsets, group: str | None = None) -> tuple[int, Any]:
        """The error of the group, and the errors of the partitions."""
        module = alter_share_group_offsets
        topics = [
            module.AlterShareGroupOffsetsRequestTopic(
                name, [module.AlterShareGroupOffsetsRequestPartition(*row) for row in rows.items()]
            )
            for name, rows in offsets.items()
        ]
        request = module.AlterShareGroupOffsetsRequest(self.group if group is None else group, topics)
        response = self.send_message(request, 0)
        return response.error_code, {
            topic.topic_name: {row.partition_index: row.error_code for row in topic.partitions}
            for topic in response.responses
        }

    def forget(self, *topics: str) -> tuple[int, Any]:
        """The error of the group, and the errors of the topics."""
        module = delete_share_group_offsets
        rows = [module.DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
        response = self.send_message(module.DeleteShareGroupOffsetsRequest(self.group, rows), 0)
        return response.error_code, {topic.topic_name: topic.error_code for topic in response.responses}

    def delete_group(self) -> int:
        request = delete_groups.DeleteGroupsRequest([self.group])
        return self.send_message(request, 2).results[0].error_code

    # -- a member --------------------------------------------------------------------------------------------------

    def beat(self, epoch: int) -> Any:
        topics = None if epoch else [self.topic]
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(self.group, self.member_id, epoch, None, topics)
        return self.send_message(request, 1)

    def join(self) -> None:
        """Become a member that has both partitions."""
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[config])
        self.send_message(IncrementalAlterConfigsRequest([resource]), 1)
        answers = [self.beat(0)]

        def has_partitions() -> bool:
            answers.append(self.beat(answers[-1].member_epoch))
            given = answers[-1].assignment
            return given is not None and [sorted(row.partitions) for row in given.topic_partitions] == [[0, 1]]

        wait_until(has_partitions, "the assignment")

    def fetch(self, *accepted: tuple[int, int]) -> tuple[int, list[tuple[int, int, int]]]:
        """Accept records of partition 0 and acquire others: the error of the former, and what was acquired.

        After SHARE_SESSION_NOT_FOUND, the next fetch opens a session.
        """
        rows = [AcknowledgementBatch(*each, [ACCEPT]) for each in accepted]
        topics = [FetchTopic(self.topic_id, [FetchPartition(0, rows)])]
        request = ShareFetchRequest(
            self.group, self.member_id, self.session_epoch, 300, 1, 1 << 20, 4, 4, topics=topics
        )
        response = self.send_message(request, 1)
        self.session_epoch += 1
        if response.error_code == NO_SESSION:
            self.session_epoch = 0
            return NO_SESSION, []
        assert response.error_code == 0, response.error_message
        for topic in response.responses:
            for row in topic.partitions:
                acquired = [(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records]
                return row.acknowledge_error_code, acquired
        return 0, []

    def fetch_as(self, mode: int, limit: int) -> list[tuple[int, int, int]]:
        """Acquire records of partition 0, about `limit` of them."""
        topics = [] if self.session_epoch else [FetchTopic(self.topic_id, [FetchPartition(0, [])])]
        request = ShareFetchRequest(
            self.group, self.member_id, self.session_epoch, 300, 1, 1 << 20, limit, limit, mode, topics=topics
        )
        response = self.send_message(request, 2)
        assert response.error_code == 0, response.error_message
        self.session_epoch += 1
        rows = [row for topic in response.responses for row in topic.partitions]
        return [
            (each.first_offset, each.last_offset, each.delivery_count) for row in rows for each in row.acquired_records
        ]

    def accept(self, *ranges: tuple[int, int], epoch: int | None = None) -> tuple[int, list[int]]:
        """Accept records of partition 0 without a fetch: the error of the request, and the partition's."""
        module = share_acknowledge
        rows = [module.AcknowledgementBatch(*each, [ACCEPT]) for each in ranges]
        topics = [module.AcknowledgeTopic(self.topic_id, [module.AcknowledgePartition(0, rows)])]
        session_epoch = self.session_epoch if epoch is None else epoch
        request = module.ShareAcknowledgeRequest(self.group, self.member_id, session_epoch, topics=topics)
        response = self.send_message(request, 1)
        if not response.error_code:
            self.session_epoch += 1
        return response.error_code, [row.error_code for topic in response.responses for row in topic.partitions]


@pytest.fixture
def shares(broker: RunningBroker, make_topic: MakeTopic) -> Iterator[Shares]:
    with Shares(broker.bootstrap, make_topic(2)) as connection:
        yield connection


def states(row: Any) -> list[tuple[int, int, int, int]]:
    return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in row.state_batches]


# -- requests to the share coordinator -----------------------------------------------------------------------------


def test_state_is_stored_and_merged(shares: Shares) -> None:
    assert shares.initialize(0, state_epoch=3, start_offset=10) == 0
    row = shares.read(0, leader_epoch=2)
    assert (row.error_code, row.state_epoch, row.start_offset, states(row)) == (0, 3, 10, [])
    assert shares.write(0, (10, 19, ACKNOWLEDGED, 1), (25, 29, AVAILABLE, 2), epochs=(3, 2)) == 0
    assert shares.write(0, (20, 26, AVAILABLE, 1), epochs=(-1, -1), version=0) == 0
    row = shares.read(0, leader_epoch=2)
    assert states(row) == [(10, 19, ACKNOWLEDGED, 1), (20, 24, AVAILABLE, 1), (25, 29, AVAILABLE, 2)]
    assert shares.write(0, epochs=(3, 2), start=22) == 0
    row = shares.read(0, leader_epoch=2)
    assert (row.start_offset, states(row)) == (22, [(22, 24, AVAILABLE, 1), (25, 29, AVAILABLE, 2)])
    summary = shares.summary(0)
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (3, 2, 22)
    assert (summary.delivery_complete_count, shares.summary(0, version=0).delivery_complete_count) == (0, -1)
    assert shares.delete_state(0) == 0
    assert shares.delete_state(0) == 0
    assert shares.read(0, leader_epoch=2).error_code == INVALID_REQUEST


def test_state_of_earlier_epochs_is_fenced(shares: Shares) -> None:
    assert shares.initialize(0, state_epoch=3, start_offset=10) == 0
    assert shares.read(0, leader_epoch=2).error_code == 0
    assert shares.read(0, leader_epoch=1).error_code == FENCED_LEADER_EPOCH
    assert shares.write(0, epochs=(3, 1)) == FENCED_LEADER_EPOCH
    assert shares.write(0, epochs=(2, 1)) == FENCED_LEADER_EPOCH
    assert shares.write(0, epochs=(2, 2)) == FENCED_STATE_EPOCH
    assert shares.initialize(0, state_epoch=2, start_offset=0) == FENCED_STATE_EPOCH
    assert shares.summary(0).start_offset == 10
    assert shares.initialize(0, state_epoch=3, start_offset=77) == 0
    assert shares.read(0, leader_epoch=1).error_code == FENCED_LEADER_EPOCH


def test_share_partitions_without_state_and_unknown_ones_are_refused(shares: Shares) -> None:
    assert shares.read(0, 0).error_message == "Read operation on uninitialized share partition not allowed."
    assert (shares.read(0, 0).error_code, shares.write(0)) == (INVALID_REQUEST, INVALID_REQUEST)
    assert (shares.summary(0).error_code, shares.summary(0).start_offset) == (0, -1)
    assert shares.delete_state(0) == 0
    for partition, topic_id in ((7, None), (0, UNKNOWN_TOPIC_ID)):
        assert shares.initialize(partition, 1, 0, topic_id) == UNKNOWN_TOPIC
        assert shares.summary(partition, topic_id=topic_id).error_code == UNKNOWN_TOPIC
        assert shares.delete_state(partition, topic_id) == UNKNOWN_TOPIC
        assert shares.read(partition, 0, topic_id).error_code == INVALID_REQUEST
        assert shares.write(partition, topic_id=topic_id) == INVALID_REQUEST
    negative = "The partition id cannot be a negative number."
    assert (shares.read(-1, 0).error_message, shares.summary(-1).error_message) == (negative, negative)
    errors = shares.initialize(-1, 1, 0), shares.write(-1), shares.delete_state(-1), shares.read(-1, 0).error_code
    assert set(errors) == {INVALID_REQUEST}


def test_request_that_names_nothing_gets_an_empty_response(shares: Shares) -> None:
    module = read_share_group_state
    asked = module.ReadStateData(shares.topic_id, [module.PartitionData(0, 0)])
    for group, topics in (
        ("", [asked]),
        (shares.group, []),
        (shares.group, [asked, module.ReadStateData(UNKNOWN_TOPIC_ID, [])]),
    ):
        assert shares.send_message(module.ReadShareGroupStateRequest(group, topics), 0).results == []


# -- requests of administrators ------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_are_altered_described_and_deleted(shares: Shares) -> None:
    topic = shares.topic
    assert shares.describe(None) == (0, {})
    assert shares.describe({topic: [0], "nowhere": [0]}) == (0, {topic: {0: (-1, -1)}, "nowhere": {0: (-1, -1)}})
    assert shares.forget(topic) == (GROUP_ID_NOT_FOUND, {})
    assert shares.alter({topic: {0: 1}}, group="") == (INVALID_GROUP_ID, {})
    for _ in range(5):
        assert send_batch(shares, topic, batch([b"a", b"b"])).error_code == 0
    outcome = shares.alter({topic: {0: 3, 1: -1, 5: 0}, "nowhere": {0: 0}})
    assert outcome == (0, {topic: {0: 0, 1: 0, 5: UNKNOWN_TOPIC}, "nowhere": {0: UNKNOWN_TOPIC}})
    assert shares.describe(None) == (0, {topic: {0: (3, 7), 1: (-1, -1)}})
    assert shares.describe({topic: [0]}, version=0) == (0, {topic: {0: (3, -1)}})
    assert shares.forget(topic, "nowhere") == (0, {topic: 0, "nowhere": UNKNOWN_TOPIC})
    assert shares.describe(None) == (0, {})
    assert shares.forget(topic) == (0, {topic: UNKNOWN_TOPIC})


def test_offsets_of_a_group_with_members_are_described_only(shares: Shares) -> None:
    topic = shares.topic
    for _ in range(5):
        assert send_batch(shares, topic, batch([b"a", b"b"])).error_code == 0
    shares.join()
    assert shares.describe(None) == (0, {topic: {0: (-1, -1), 1: (-1, -1)}})
    assert shares.alter({topic: {0: 1}}) == (NON_EMPTY_GROUP, {})
    assert shares.forget(topic) == (NON_EMPTY_GROUP, {})
    assert shares.delete_group() == NON_EMPTY_GROUP
    assert shares.fetch() == (0, [(0, 3, 1)])
    assert shares.fetch((2, 3))[0] == 0
    assert shares.describe(None)[1][topic][0] == (0, 8)
    assert shares.fetch((0, 0))[0] == 0
    assert shares.describe(None)[1][topic][0] == (0, 7)


def test_leader_does_not_deliver_from_the_former_offsets(broker: RunningBroker, shares: Shares) -> None:
    """A member that left the group may have a session with the leader, or open one."""
    topic = shares.topic
    for _ in range(5):
        assert send_batch(shares, topic, batch([b"a", b"b"])).error_code == 0
    shares.join()
    assert shares.fetch() == (0, [(0, 3, 1)])
    assert shares.fetch((0, 3))[1] == [(4, 7, 1)]
    assert shares.beat(-1).error_code == 0
    for number, offset in enumerate((2, 8)):
        assert shares.alter({topic: {0: offset}}) == (0, {topic: {0: 0}})
        error, acquired = shares.fetch((6, 7))
        # The fetch by which a leader learns of the alteration may still deliver from the former offsets.
        acquired = shares.fetch()[1] if error == NOT_LEADER else acquired + shares.fetch()[1]
        # Stock Kafka gives both alterations the group's epoch, so that its leader overwrites the second one.
        if broker.kind != KAFKA or number == 0:
            assert error in (NOT_LEADER, UNKNOWN_TOPIC, NO_SESSION)
            assert acquired[0][0] == offset
            assert shares.describe(None)[1][topic][0][0] == offset


def test_fetches_of_several_partitions_deliver_all_of_them_in_the_end(shares: Shares) -> None:
    """Which partitions the first response has is not promised. The limit of records is for all partitions."""
    for partition in (0, 1):
        for _ in range(4):
            assert send_batch(shares, shares.topic, batch([b"a", b"b"]), partition=partition).error_code == 0
    shares.join()
    found: set[tuple[int, int]] = set()

    def has_all() -> bool:
        first = [FetchTopic(shares.topic_id, [FetchPartition(0, []), FetchPartition(1, [])])]
        request = ShareFetchRequest(shares.group, shares.member_id, shares.session_epoch, 300, 1, 1 << 20, 4, 4)
        request.topics = [] if shares.session_epoch else first
        response = shares.send_message(request, 1)
        assert response.error_code == 0, response.error_message
        shares.session_epoch += 1
        rows = [row for topic in response.responses for row in topic.partitions]
        ranges = [(row.partition_index, each) for row in rows for each in row.acquired_records]
        got = {(index, offset) for index, each in ranges for offset in range(each.first_offset, each.last_offset + 1)}
        assert len(got) <= 4
        assert not got & found
        found.update(got)
        return len(found) == 16

    wait_until(has_all, "the records of both partitions")


def test_record_limit_splits_batches_and_batch_optimized_does_not(shares: Shares) -> None:
    for _ in range(4):
        assert send_batch(shares, shares.topic, batch([b"a"] * 5)).error_code == 0
    shares.join()
    limited, optimized = 1, 0
    assert shares.fetch_as(limited, 3) == [(0, 2, 1)]
    found = [shares.fetch_as(*each) for each in ((limited, 3), (limited, 7), (optimized, 1), (optimized, 1))]
    assert found == [[(3, 4, 1), (5, 5, 1)], [(6, 9, 1), (10, 12, 1)], [(13, 14, 1)], [(15, 19, 1)]]
    assert shares.accept((0, 19)) == (0, [0])


def test_renewals_are_sent_alone_and_extend_the_lock(shares: Shares) -> None:
    config = AlterableConfig(name="share.record.lock.duration.ms", config_operation=0, value="3000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=shares.group, configs=[config])
    shares.send_message(IncrementalAlterConfigsRequest([resource]), 1)
    assert send_batch(shares, shares.topic, batch([b"a", b"b"])).error_code == 0
    shares.join()
    assert shares.fetch() == (0, [(0, 1, 1)])
    rows = [AcknowledgementBatch(0, 0, [RENEW])]
    topics = [FetchTopic(shares.topic_id, [FetchPartition(0, rows)])]

    def renew(**limits: int) -> Any:
        request = ShareFetchRequest(shares.group, shares.member_id, shares.session_epoch, topics=topics, **limits)
        request.is_renew_ack = True
        return shares.send_message(request, 2)

    assert renew(max_bytes=1, max_records=1).error_code == INVALID_REQUEST
    started = time.monotonic()
    while time.monotonic() < started + 5:
        response = renew(max_bytes=0)
        assert response.error_code == 0, response.error_message
        (row,) = response.responses[0].partitions
        assert (row.acknowledge_error_code, row.acquired_records) == (0, [])
        assert response.acquisition_lock_timeout_ms == 3000
        shares.session_epoch += 1
        time.sleep(0.5)
    assert shares.accept((1, 1)) == (0, [INVALID_RECORD_STATE])
    assert shares.accept((0, 0)) == (0, [0])


def test_member_that_left_the_group_can_acknowledge_what_it_acquired(shares: Shares) -> None:
    """Its last acknowledgements and its leave go to different brokers, so either may be first."""
    for _ in range(5):
        assert send_batch(shares, shares.topic, batch([b"a", b"b"])).error_code == 0
    shares.join()
    assert shares.fetch() == (0, [(0, 3, 1)])
    assert shares.beat(-1).error_code == 0
    assert shares.accept((0, 1)) == (0, [0])
    assert shares.accept((2, 3), epoch=-1) == (0, [0])
    assert shares.accept((2, 3), epoch=-1) == (NO_SESSION, [])
    wait_until(lambda: shares.describe(None)[1][shares.topic][0][1] == 6, "the lag without what was accepted")


# -- requests that no sound member sends -----------------------------------------------------------------------------


def test_records_that_were_not_acquired_cannot_be_acknowledged(broker: RunningBroker, shares: Shares) -> None:
    for _ in range(5):
        assert send_batch(shares, shares.topic, batch([b"a", b"b"])).error_code == 0
    shares.join()
    assert shares.accept((0, 3), epoch=1) == (NO_SESSION, [])
    assert shares.fetch() == (0, [(0, 3, 1)])
    for ranges in ([(6, 7)], [(0, 7)], [(100, 200)], [(3, 0)], [(2, 3), (0, 1)]):
        assert shares.accept(*ranges) == (0, [INVALID_REQUEST])
    assert shares.accept((0, 2), (2, 3)) == (0, [INVALID_RECORD_STATE])
    for epoch in (0, shares.session_epoch + 5):
        assert shares.accept((0, 3), epoch=epoch) == (INVALID_SESSION_EPOCH, [])
    with Shares(broker.bootstrap, shares.topic) as forger:
        forger.group = shares.group
        assert forger.fetch() == (0, [(4, 7, 1)])
        assert forger.accept((0, 3)) == (0, [INVALID_RECORD_STATE])
    assert shares.accept((1, 3)) == (0, [0])
    assert shares.accept((1, 3)) == (0, [INVALID_RECORD_STATE])
    assert shares.accept((0, 0)) == (0, [0])
