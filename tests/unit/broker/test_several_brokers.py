"""The information that a broker of a cluster gives clients about other brokers, partitions and controllers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.config import Listener
from ottla.controller import Outcome
from ottla.metadata.image import BrokerImage
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.controller_registration import Listener as ControllerListener
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.unit.controller.support import registration

from .harness import BrokerHarness


@pytest.fixture
def cluster(harness: BrokerHarness) -> BrokerHarness:
    """Brokers 1 to 3 with t-0 on 2, 3 and 1; broker 3 has another listener than clients use."""
    metadata = harness.broker.metadata
    for broker_id in (2, 3):
        request = registration(broker_id)
        if broker_id == 3:
            request.listeners[0].name = "INTERNAL"
        epoch = metadata.submit(lambda c, r=request: c.register_broker(r)).result().broker_epoch  # type: ignore[misc]
        beat = BrokerHeartbeatRequest(broker_id, epoch, 10_000)
        metadata.submit(lambda c, b=beat: c.heartbeat(b, 0)).result()  # type: ignore[misc]
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [2, 3, 1])])
    assert not harness.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    return harness


def broker_image(cluster: BrokerHarness, broker_id: int) -> BrokerImage:
    return cluster.broker.metadata.image.brokers[broker_id]


def apply(cluster: BrokerHarness, *records: Any) -> None:
    cluster.broker.metadata.submit(lambda _: Outcome(list(records), None)).result()


def lead(cluster: BrokerHarness, leader: int) -> None:
    topic_id = cluster.broker.metadata.image.topics_by_name["t"].topic_id
    assert topic_id is not None
    apply(cluster, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))


def fence(cluster: BrokerHarness, broker_id: int) -> None:
    change = BrokerRegistrationChangeRecord(broker_id, broker_image(cluster, broker_id).epoch, fenced=1)
    apply(cluster, change)


def partition(cluster: BrokerHarness, version: int = 12) -> Any:
    answer = cluster.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    return answer.topics[0].partitions[0]


def test_brokers_of_the_listener_and_the_leader_are_listed(cluster: BrokerHarness) -> None:
    answer = cluster.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    assert answer.controller_id == 1
    found = partition(cluster)
    assert (found.error_code, found.leader_id, found.offline_replicas) == (0, 2, [3])
    assert (found.replica_nodes, found.isr_nodes) == ([2, 3, 1], [2, 3, 1])


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND), (12, 72)]
)
def test_leader_without_the_listener_of_the_client(cluster: BrokerHarness, version: int, code: int) -> None:
    lead(cluster, 3)
    found = partition(cluster, version)
    assert (found.error_code, found.leader_id) == (code, -1)


def test_partition_without_a_leader(cluster: BrokerHarness) -> None:
    lead(cluster, -1)
    for found in (
        partition(cluster),
        cluster.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest("t")])).topics[0].partitions[0],
    ):
        assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_clients_of_version_0_get_only_replicas_with_an_address(cluster: BrokerHarness) -> None:
    found = partition(cluster, 0)
    assert (found.error_code, found.replica_nodes, found.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [2, 1], [2, 1])


def test_replica_in_a_failed_directory_is_offline(cluster: BrokerHarness) -> None:
    change = BrokerRegistrationChangeRecord(2, broker_image(cluster, 2).epoch, log_dirs=[b"another directory"[:16]])
    apply(cluster, change)
    assert partition(cluster).offline_replicas == [2, 3]


def test_fenced_broker_is_neither_listed_nor_the_controller(cluster: BrokerHarness) -> None:
    fence(cluster, 1)
    cluster.loop.advance(2_001)
    answer = cluster.ask(MetadataRequest(topics=[]), 12)
    assert ([broker.node_id for broker in answer.brokers], answer.controller_id) == ([2], 2)
    fence(cluster, 2)
    assert cluster.ask(MetadataRequest(topics=[]), 12).controller_id == -1


def test_fenced_brokers_are_described_on_request(cluster: BrokerHarness) -> None:
    fence(cluster, 2)
    answer = cluster.ask(DescribeClusterRequest())
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [(1, False)]
    answer = cluster.ask(DescribeClusterRequest(include_fenced_brokers=True))
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [(1, False), (2, True)]
    assert answer.controller_id == 1


def test_controllers_are_described_on_their_listener(cluster: BrokerHarness) -> None:
    cluster.broker.endpoints.controllers = [Listener("CONTROLLER", "here", 9093)]
    request = ControllerRegistrationRequest(7, b"i" * 16, False, [ControllerListener("CONTROLLER", "there", 9094, 0)])
    cluster.broker.metadata.submit(lambda c: c.register_controller(request)).result()
    cluster.client.listener = "CONTROLLER"
    answer = cluster.ask(DescribeClusterRequest(endpoint_type=2))
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [
        (1, "here", 9093),
        (7, "there", 9094),
    ]
    assert answer.controller_id == 1


# -- a leader whose process just ended: see `LostBrokers` --------------------------------------------------------------


def ask_for_leader(cluster: BrokerHarness, name: str = "t") -> Any:
    """The response, or a completion of it."""
    return cluster.start(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)


def leader_of(response: Any) -> int:
    return response.topics[0].partitions[0].leader_id  # type: ignore[no-any-return]


def test_response_waits_until_the_lost_leader_is_replaced(cluster: BrokerHarness) -> None:
    assert leader_of(ask_for_leader(cluster)) == 2
    cluster.broker.endpoints.lost_brokers.lost(2)
    waiting = [ask_for_leader(cluster), cluster.start(MetadataRequest(topics=None), 12)]
    lead(cluster, 1)
    assert not any(each.done for each in waiting)
    fence(cluster, 2)
    assert [leader_of(each.result()) for each in waiting] == [1, 1]


def test_response_without_the_lost_leader_does_not_wait(cluster: BrokerHarness) -> None:
    lead(cluster, 1)
    cluster.broker.endpoints.lost_brokers.lost(2)
    assert leader_of(ask_for_leader(cluster)) == 1
    assert cluster.ask(MetadataRequest(topics=[]), 12).topics == []


def test_response_waits_for_two_seconds_at_most(cluster: BrokerHarness) -> None:
    """The leader may be alive: the controller decides."""
    cluster.broker.endpoints.lost_brokers.lost(2)
    waiting = ask_for_leader(cluster)
    cluster.loop.advance(1_999)
    cluster.broker.endpoints.lost_brokers.lost(2)
    assert not waiting.done
    cluster.loop.advance(1)
    assert leader_of(waiting.result()) == 2
    cluster.broker.endpoints.lost_brokers.lost(2)  # another attempt to connect failed
    assert leader_of(ask_for_leader(cluster)) == 2


def test_leader_that_answers_again_is_named(cluster: BrokerHarness) -> None:
    for _ in range(2):
        cluster.broker.endpoints.lost_brokers.lost(2)
        waiting = ask_for_leader(cluster)
        assert not waiting.done
        cluster.broker.endpoints.lost_brokers.answered(2)
        assert leader_of(waiting.result()) == 2
        assert leader_of(ask_for_leader(cluster)) == 2


def test_broker_that_was_fenced_before_is_not_waited_for(cluster: BrokerHarness) -> None:
    fence(cluster, 2)
    cluster.broker.endpoints.lost_brokers.lost(2)
    cluster.broker.endpoints.lost_brokers.lost(77)
    assert not cluster.broker.endpoints.lost_brokers


def test_broker_is_listed_for_two_seconds_after_it_was_fenced(cluster: BrokerHarness) -> None:
    def listed() -> list[int]:
        return [broker.node_id for broker in cluster.ask(MetadataRequest(topics=[]), 12).brokers]

    lead(cluster, 1)
    fence(cluster, 2)
    found = partition(cluster)
    assert (found.leader_id, found.offline_replicas) == (1, [2, 3])
    assert listed() == [1, 2]
    cluster.loop.advance(1_999)
    assert listed() == [1, 2]
    cluster.loop.advance(1)
    assert listed() == [1]
