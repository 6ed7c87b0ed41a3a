"""The requests of streams groups on one broker, from the first heartbeat to the deletion of the group. KIP-1071."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.streams_topics import StreamsTopics
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.group.streams.topics import InternalTopic, Status
from ottla.protocol.messages import streams_group_heartbeat as h
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing.clock import MovableClock
from tests.drivers.streams_members import word_count

from .harness import BrokerHarness, open_harness

GROUP_OPERATIONS_UNKNOWN = -(2**31)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(tmp_path, {"group.streams.initial.rebalance.delay.ms": "0"}) as harness:
        harness.create("in", partitions=2)
        found = harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["app"]))
        assert found.coordinators[0].error_code == 0
        harness.loop.advance(1_000)
        yield harness


def beat(harness: BrokerHarness, epoch: int = 0, **fields: Any) -> h.StreamsGroupHeartbeatResponse:
    request = h.StreamsGroupHeartbeatRequest(group_id="app", member_id="m", member_epoch=epoch)
    if not epoch:
        request.rebalance_timeout_ms, request.process_id, request.topology = 45_000, "p", word_count()
        request.active_tasks = request.standby_tasks = request.warmup_tasks = []
    for name, value in fields.items():
        setattr(request, name, value)
    answer = harness.ask(request)
    assert isinstance(answer, h.StreamsGroupHeartbeatResponse)
    return answer


def test_internal_topics_are_created_with_their_settings(streams: BrokerHarness) -> None:
    first = beat(streams)
    assert [row.status_code for row in first.status or ()] == [Status.MISSING_INTERNAL_TOPICS]
    streams.loop.advance(2_000)
    image = streams.broker.metadata.image
    assert [len(image.topics_by_name[name].partitions) for name in ("words", "counts")] == [2, 2]
    assert image.config(2, "counts") == {"cleanup.policy": "compact"}
    second = beat(streams, first.member_epoch)
    assert second.status == []
    assert [(row.subtopology_id, row.partitions) for row in second.active_tasks or ()] == [("0", [0, 1]), ("1", [0, 1])]
    (listed,) = streams.ask(ListGroupsRequest(types_filter=["streams"])).groups
    assert (listed.group_id, listed.group_state, listed.protocol_type) == ("app", "Stable", "streams")
    (row,) = streams.ask(StreamsGroupDescribeRequest(group_ids=["app"], include_authorized_operations=True)).groups
    assert (row.error_code, row.group_state, len(row.members)) == (0, "Stable", 1)
    assert row.authorized_operations != GROUP_OPERATIONS_UNKNOWN
    assert beat(streams, -1).error_code == 0
    assert streams.ask(DeleteGroupsRequest(groups_names=["app"])).results[0].error_code == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is pro",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
def test_topologies_with_invalid_topics_are_refused(streams: BrokerHarness, source: str, message: str) -> None:
    answer = beat(streams, topology=word_count(source=source))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (answer.error_message or "").startswith(message)


def test_nothing_is_served_without_the_feature(streams: BrokerHarness) -> None:
    update = FeatureUpdateKey("streams.version", 0, False, 2)
    assert streams.ask(UpdateFeaturesRequest(feature_updates=[update])).error_code == 0
    assert beat(streams).error_code == ErrorCode.UNSUPPORTED_VERSION
    rows = streams.ask(StreamsGroupDescribeRequest(group_ids=["a", "b", "a"])).groups
    assert [(row.group_id, row.error_code) for row in rows] == [
        (name, ErrorCode.UNSUPPORTED_VERSION) for name in ("a", "b", "a")
    ]


def test_nothing_is_served_without_the_protocol(tmp_path: Path) -> None:
    with open_harness(tmp_path, {"group.coordinator.rebalance.protocols": "classic,consumer"}) as harness:
        assert beat(harness).error_code == ErrorCode.UNSUPPORTED_VERSION


TOPIC = InternalTopic("words", 2, 0, (("retention.ms", "-1"),))


class Controller:
    """Answers when a test tells it to."""

    def __init__(self) -> None:
        self.requests: list[CreateTopicsRequest] = []
        self.answers: list[Completion[CreateTopicsResponse]] = []

    def send(self, request: CreateTopicsRequest) -> Completion[CreateTopicsResponse]:
        self.requests.append(request)
        self.answers.append(Completion())
        return self.answers[-1]


def test_creation_in_flight_is_not_requested_again_and_failures_are_reported_for_a_while() -> None:
    controller, clock = Controller(), MovableClock()
    topics = StreamsTopics(controller.send)
    assert topics.create([TOPIC], 60_000, clock) == {}
    assert topics.create([TOPIC], 60_000, clock) == {}
    (request,) = controller.requests
    (row,) = request.topics
    assert (row.name, row.num_partitions, row.replication_factor) == ("words", 2, -1)
    assert [(config.name, config.value) for config in row.configs] == [("retention.ms", "-1")]
    failed = CreatableTopicResult(name="words", error_code=ErrorCode.POLICY_VIOLATION, error_message="not here")
    controller.answers[0].complete(CreateTopicsResponse(topics=[failed]))
    assert topics.create([TOPIC], 60_000, clock) == {"words": "not here"}
    assert len(controller.requests) == 2, "it is tried again"
    clock.steady_ahead_ms += 60_000
    assert topics.create([TOPIC], 60_000, clock) == {}
    controller.answers[1].fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert topics.create([TOPIC], 60_000, clock) == {"words": "REQUEST_TIMED_OUT"}
    exists = CreatableTopicResult(name="words", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    controller.answers[2].complete(CreateTopicsResponse(topics=[exists]))
    assert topics.create([TOPIC], 60_000, clock) == {}
