"""Requests of clients at a broker that is not the active controller: forwarded in an Envelope and answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.context import DELEGATED
from ottla.broker.dispatch import Dispatcher
from ottla.broker.envelope import FORWARDED, client_of, decode_principal, encode_principal
from ottla.broker.forwarding import Forwarding
from ottla.broker.served import CONTROLLER_SERVED, SERVED
from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import Listener
from ottla.metadata.image import BROKER, TOPIC
from ottla.protocol import frames
from ottla.protocol.message import Message
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.update_features import UpdateFeaturesRequest
from ottla.raft.values import Endpoint, Endpoints
from tests.unit.broker.harness import BrokerHarness, Connection

LEADER = 9
QUORUM = DescribeQuorumRequest(topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])])


class FollowingMetadata:
    """The metadata of a node that follows node 9. `leader` is None while the quorum has none."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.is_active_controller = False
        self.leader: tuple[int, Endpoints] | None = (LEADER, (Endpoint("CONTROLLER", "controller", 9093),))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def submit(self, operation: object) -> Completion[Any]:
        raise AssertionError("a node that follows decides nothing")


class ToController:
    """Sends requests to the controller's listener of another harness, as bytes."""

    def __init__(self, controller: BrokerHarness) -> None:
        self._controller = controller
        self._controller.broker.endpoints.controllers = [Listener("CONTROLLER", "controller", 9093)]
        self._controller.dispatch = Dispatcher(controller.broker, CONTROLLER_SERVED)
        self._controller.client.listener = "CONTROLLER"
        self.sent: list[Message] = []

    def to(self, node_id: int, host: str, port: int) -> ToController:
        assert (node_id, host, port) == (LEADER, "controller", 9093)
        return self

    def send(self, request: Message, *, timeout_s: float, version: int | None = None) -> Completion[Any]:
        self.sent.append(request)
        answer = self._controller.start(request, version)
        self._controller.loop.run()
        return answer if isinstance(answer, Completion) else Completion.of(answer)

    def close(self) -> None:
        pass


class World:
    """`node` is the broker that the client asks; `controller` the node that leads the quorum."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        for name in ("controller", "node"):
            (directory / name).mkdir()
        self.controller = BrokerHarness(str(directory / "controller"), settings)
        self.node = BrokerHarness(str(directory / "node"), settings)
        self.channels = ToController(self.controller)
        broker, loop = self.node.broker, self.node.loop
        self.following = FollowingMetadata(broker.metadata)
        broker.metadata = self.following  # type: ignore[assignment]
        channel = ControllerChannel(self.following, loop, loop.call_later, self.channels)
        broker.controller.channel, broker.controller.forwarding = channel, Forwarding(channel)

    @property
    def image(self) -> Any:
        return self.controller.broker.metadata.image


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for harness in (world.controller, world.node):
        harness.close()


def test_topics_are_created_grown_and_deleted_by_the_controller(world: World) -> None:
    for version in range(2, 8):
        name = f"t{version}"
        answer = world.node.ask(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)]), version)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name, 0)]
        assert name in world.image.topics_by_name
    grown = world.node.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic("t2", 3, None)]))
    assert grown.results[0].error_code == 0
    assert len(world.image.topics_by_name["t2"].partitions) == 3
    deleted = world.node.ask(DeleteTopicsRequest(topic_names=["t2"]), 5)
    assert deleted.responses[0].error_code == 0
    assert "t2" not in world.image.topics_by_name


def test_settings_of_topics_are_changed_by_the_controller_and_log_levels_here(world: World) -> None:
    world.controller.create("t")
    set_, logger = 0, 8
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", set_, "5000")]),
            AlterConfigsResource(logger, "1", [AlterableConfig("root", set_, "INFO")]),
            AlterConfigsResource(BROKER, "7", [AlterableConfig("log.cleaner.threads", set_, "2")]),
        ]
    )
    answer = world.node.ask(request)
    found = {(row.resource_type, row.resource_name): row.error_code for row in answer.responses}
    assert found == {(TOPIC, "t"): 0, (logger, "1"): 0, (BROKER, "7"): ErrorCode.INVALID_REQUEST}
    assert world.image.config(TOPIC, "t") == {"retention.ms": "5000"}
    assert len(world.channels.sent) == 1


def test_every_other_forwarded_api_is_answered_by_the_controller(world: World) -> None:
    requests: list[Any] = [
        ElectLeadersRequest(election_type=0, topic_partitions=None),
        AlterPartitionReassignmentsRequest(),
        ListPartitionReassignmentsRequest(),
        QUORUM,
        UpdateFeaturesRequest(),
    ]
    for request in requests:
        assert world.node.ask(request).error_code == 0
    assert world.node.ask(UnregisterBrokerRequest(5)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    voters: list[Any] = [
        AddRaftVoterRequest("cluster", voter_id=2, voter_directory_id=b"2" * 16),
        RemoveRaftVoterRequest("cluster", 2, b"2" * 16),
    ]
    refusals = [world.node.ask(request).error_code for request in voters]
    assert refusals == [ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION]
    user = [RequestEntityData("user", "a")]
    quota = AlterClientQuotasRequest([RequestEntryData(user, [OpData("producer_byte_rate", 5.0)])])
    assert [entry.error_code for entry in world.node.ask(quota).entries] == [0]
    assert world.image.client_quotas == {(("user", "a"),): {"producer_byte_rate": 5.0}}
    users = AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion("a", 1, 4096, b"s", b"p")])
    assert [result.error_code for result in world.node.ask(users).results] == [0]
    assert world.image.scram_credentials.keys() == {("a", 1)}
    keys = {request.API_KEY for request in (*requests, *voters, quota, users)} | {19, 20, 37, 64}
    assert keys == FORWARDED & SERVED.keys()
    assert len(world.channels.sent) == len(requests) + len(voters) + 3


def test_forwarded_changes_of_topics_count_for_the_client_not_for_its_broker(world: World) -> None:
    """The response of the controller has the pause; the client's broker mutes the connection. KIP-599."""
    user = [RequestEntityData("user", "ANONYMOUS")]
    quota = AlterClientQuotasRequest([RequestEntryData(user, [OpData("controller_mutation_rate", 1.0)])])
    assert [entry.error_code for entry in world.node.ask(quota).entries] == [0]
    created = world.node.ask(CreateTopicsRequest(topics=[CreatableTopic("many", 12, 1)]))
    assert (created.topics[0].error_code, created.throttle_time_ms) == (0, 0)
    refused = world.node.ask(CreateTopicsRequest(topics=[CreatableTopic("more", 1, 1)]))
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms == 1_000
    assert "more" not in world.image.topics_by_name


def test_client_gets_the_error_of_its_request_if_no_controller_answers(world: World) -> None:
    world.following.leader = None
    created = world.node.start(CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)]))
    quorum = world.node.start(
        DescribeQuorumRequest(topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])])
    )
    removed = world.node.start(RemoveRaftVoterRequest())
    world.node.loop.advance(31_000)
    assert created.result().topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert removed.result().error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "controller" in removed.result().error_message
    assert quorum.result().topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_forwarded_request_finds_the_new_controller(world: World) -> None:
    metadata = world.controller.broker.metadata
    world.controller.broker.metadata = FollowingMetadata(metadata)  # type: ignore[assignment]
    created = world.node.start(CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)]))
    assert not created.done
    world.controller.broker.metadata = metadata
    world.node.loop.advance(100)
    assert created.result().topics[0].error_code == 0


def test_missing_topic_is_created_by_the_controller(world: World) -> None:
    answer = world.node.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "t" in world.image.topics_by_name


def test_producer_ids_come_from_the_controller(world: World) -> None:
    first, second = (world.node.ask(InitProducerIdRequest(transactional_id=None), 5) for _ in range(2))
    assert (first.error_code, second.error_code) == (0, 0)
    assert second.producer_id == first.producer_id + 1
    assert world.image.producer_ids_next == first.producer_id + 1000


def test_producer_waits_for_ids_while_no_controller_answers(world: World) -> None:
    world.following.leader = None
    answer = world.node.start(InitProducerIdRequest(transactional_id=None), 5)
    world.node.loop.advance(31_000)
    assert answer.result().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- the envelope ------------------------------------------------------------------------------------------------------


def enclosed(request: Message, version: int | None = None) -> bytes:
    version = request.MAX_VERSION if version is None else version
    return b"".join(frames.encode_request(request, version, 5, "client"))[4:]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_host_address": b"123"}, ErrorCode.INVALID_REQUEST),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\x7f"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\2U\2u\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_data": b"\0\x13"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\0\x13\0\7\0\0\0\5\xff\xff\0\x7f"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": enclosed(FetchRequest())}, ErrorCode.INVALID_REQUEST),
        ({"request_data": enclosed(EnvelopeRequest(b"", b"", b""))}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_malformed_envelope_is_refused(world: World, changes: dict[str, Any], code: int) -> None:
    envelope = EnvelopeRequest(
        request_data=enclosed(CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)])),
        request_principal=encode_principal("User:ANONYMOUS"),
        client_host_address=bytes((127, 0, 0, 1)),
    )
    assert world.controller.ask(envelope).error_code == 0
    for name, value in changes.items():
        setattr(envelope, name, value)
    answer = world.controller.ask(envelope)
    assert (answer.error_code, answer.response_data) == (code, None)


def test_clients_cannot_send_envelopes(tmp_path: Path) -> None:
    harness = BrokerHarness(str(tmp_path))
    with pytest.raises(KafkaError):
        harness.start(EnvelopeRequest(b"", b"", b""), client=Connection())
    harness.close()


def test_principal_is_encoded_as_kafka_does() -> None:
    assert encode_principal("User:ANONYMOUS") == b"\0\0\5User\x0aANONYMOUS\0\0"
    assert encode_principal("User:ANONYMOUS", True) == b"\0\0\5User\x0aANONYMOUS\1\0"
    assert decode_principal(b"\0\0\5User\x0aANONYMOUS\0\0") == ("User:ANONYMOUS", False)
    assert decode_principal(b"\0\0\5User\x0aANONYMOUS\1\0") == ("User:ANONYMOUS", True)


@pytest.mark.parametrize("by_token", [False, True])
def test_controller_knows_that_a_client_has_logged_in_by_token(by_token: bool) -> None:
    request = EnvelopeRequest(b"", encode_principal("User:alice", by_token), bytes(4))
    client = client_of(request, "CONTROLLER")
    assert (client.principal, DELEGATED in client.state) == ("User:alice", by_token)


def test_delegation_tokens_are_managed_by_the_controller_for_the_client(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "delegation.token.secret.key": "secret",
    }
    world = World(tmp_path, settings)
    client = world.node.client
    client.principal, client.listener = "User:alice", "SASL"
    try:
        created = world.node.ask(CreateDelegationTokenRequest())
        assert created.error_code == 0
        [record] = world.image.delegation_tokens.values()
        assert (record.owner, record.token_id) == ("User:alice", created.token_id)
        assert not world.node.broker.metadata.image.delegation_tokens
        client.principal = "User:eve"
        refused = world.node.ask(RenewDelegationTokenRequest(created.hmac, 1))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        # The controller refuses also what a broker should not have forwarded.
        enclosed_request = enclosed(CreateDelegationTokenRequest())
        for by_token in (False, True):
            answer = world.controller.ask(
                EnvelopeRequest(enclosed_request, encode_principal("User:alice", by_token), bytes(4))
            )
            response = CreateDelegationTokenResponse.decode(memoryview(answer.response_data)[5:], 3)
            expected = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if by_token else 0
            assert response.error_code == expected
    finally:
        for harness in (world.controller, world.node):
            harness.close()
