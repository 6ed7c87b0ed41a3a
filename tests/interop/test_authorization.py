"""Each API of Ottla and of stock Kafka with the same rights: the same errors, and the same contents of refusals.

Both brokers authenticate clients with SASL/PLAIN and have StandardAuthorizer with the same rules. The cases of
tests/authorization_cases.py run in the same order on both, so that both have the same state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.authorization_cases import (
    ADMIN,
    CASES,
    CONSUMERS,
    GROUP,
    SHARE_OFFSETS,
    SHARERS,
    STRANGER,
    TOPIC,
    TRANSACTION,
    Case,
    build,
    errors_of,
    rights_of,
    streams_member,
    user_with,
    user_without,
    users,
)
from tests.clients.support import wait_until
from tests.clients.test_answers_in_detail import Asking
from tests.clients.wire import ConnectionClosed
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

PASSWORD = "secret"
CLOSED = "the connection was closed"
_NAMES = [ADMIN, STRANGER, *users()]
_JAAS = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{ADMIN}" password="{PASSWORD}" '
    + " ".join(f'user_{name}="{PASSWORD}"' for name in _NAMES)
    + ";"
)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "listener.name.controller.plain.sasl.jaas.config": _JAAS,
}
OTTLA_SETTINGS = SETTINGS | {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}
# What differs between two brokers, or between two requests.
_VOLATILE = {
    "throttle_time_ms", "host", "port", "cluster_id", "controller_id", "producer_id", "log_dir", "total_bytes",
    "usable_bytes", "leader_epoch", "member_id", "acquisition_lock_timeout_ms", "heartbeat_interval_ms",
    "current_leader",
}  # fmt: skip


# Kafka's response has the id of a topic that the client may not read: only the errors are compared.
_SHOWS_IDS = "alter share offsets"


class Client:
    """The connections of all users to one broker; the `World` of the cases."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._stack = stack
        self._addresses = {False: address}
        self._connections: dict[tuple[str, bool], Asking] = {}
        self._names: dict[bytes, str] = {}
        self._numbers = count()

    def ask(self, user: str, request: Message, version: int | None = None, *, on_controller: bool = False) -> Any:
        """The response, or CLOSED."""
        key = user, on_controller
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = self._log_in(*key)
        try:
            return connection.send_message(request, request.MAX_VERSION if version is None else version)
        except ConnectionClosed:
            del self._connections[key]
            return CLOSED

    def _log_in(self, user: str, on_controller: bool) -> Asking:
        connection = self._stack.enter_context(Asking(self._addresses[on_controller]))
        assert not connection.send_message(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = connection.send_message(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert not answer.error_code, answer
        return connection

    def find_controller(self) -> None:
        """Learn the address of the controller's listener."""
        partition = {"partition_index": 0}
        topic = {"topic_name": "__cluster_metadata", "partitions": [partition]}
        quorum = self.ask(ADMIN, build(DescribeQuorumRequest, {"topics": [topic]}))
        listener = quorum.nodes[0].listeners[0]
        self._addresses[True] = f"{listener.host}:{listener.port}"

    def topic_id(self, name: str) -> bytes:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found: list[bytes] = []

        def is_known() -> bool:
            topic = self.ask(ADMIN, wanted).topics[0]
            found[:] = [topic.topic_id] if not topic.error_code and topic.partitions[0].leader_id >= 0 else []
            return bool(found)

        wait_until(is_known, f"the topic {name}")
        self._names[found[0]] = name
        return found[0]

    def fresh_topic(self) -> str:
        name = f"fresh-{next(self._numbers)}"
        self.create(name)
        self.topic_id(name)
        return name

    def absent_topic(self) -> str:
        return f"absent-{next(self._numbers)}"

    def create(self, name: str) -> None:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        assert errors_of(self.ask(ADMIN, request)) == {0}

    def open_share_session(self, member_id: str) -> None:
        partition = {"topic_id": self.topic_id(TOPIC), "partitions": [{"partition_index": 0}]}
        fields = {"group_id": SHARERS, "member_id": member_id, "share_session_epoch": 0, "topics": [partition]}
        self.until_done(build(ShareFetchRequest, fields))

    def until_done(self, request: Message, version: int | None = None) -> Any:
        """Repeat a request until it succeeds."""
        answers: list[Any] = []

        def is_done() -> bool:
            answers[:] = [self.ask(ADMIN, request, version)]
            return errors_of(answers[0]) == {0}

        wait_until(is_done, f"an answer to {request}")
        return answers[0]

    def name_of(self, topic_id: bytes) -> str:
        return self._names.get(bytes(topic_id), "an id")


def prepare(client: Client) -> None:
    """Create the rules, a topic with a record, and groups of each type."""
    creations = [
        AclCreation(
            resource_type=acl.pattern.resource_type,
            resource_name=acl.pattern.name,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for user in users()
        for acl in rights_of(user)
    ]
    assert errors_of(client.ask(ADMIN, CreateAclsRequest(creations=creations))) == {0}
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    def are_known() -> bool:
        return sum(len(row.acls) for row in client.ask(ADMIN, everything).resources) == len(set(map(repr, creations)))

    wait_until(are_known, "the rules")
    client.create(TOPIC)
    for kind, key in ((0, GROUP), (1, TRANSACTION)):
        client.until_done(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind))
    client.until_done(InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=5_000), 5)
    produce = next(case for case in CASES if case.name == "produce")
    client.until_done(produce.request(client))
    assert isinstance(produce.request(client), ProduceRequest)
    partition = {"partition_index": 0, "committed_offset": 1}
    topic = {"topic_id": client.topic_id(TOPIC), "partitions": [partition]}
    client.until_done(build(OffsetCommitRequest, {"group_id": GROUP, "topics": [topic]}))
    client.until_done(build(StreamsGroupHeartbeatRequest, streams_member()))
    for request in (ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest):
        _join(client, request)
    client.until_done(build(AlterShareGroupOffsetsRequest, SHARE_OFFSETS))


def _join(client: Client, kind: type[Any]) -> None:
    """Add a member to a modern group, until it has its assignment."""
    is_share = kind is ShareGroupHeartbeatRequest
    member: dict[str, Any] = {"member_id": "A" * 22, "subscribed_topic_names": [TOPIC]}
    member |= {"group_id": SHARERS} if is_share else {"group_id": CONSUMERS, "rebalance_timeout_ms": 300_000}
    if not is_share:
        member["topic_partitions"] = []
    epochs = [0]

    def is_assigned() -> bool:
        answer = client.ask(ADMIN, build(kind, {**member, "member_epoch": epochs[0]}))
        if answer.error_code:
            return False
        epochs[0] = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    wait_until(is_assigned, f"the assignment of {kind.__name__}")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Ottla and stock Kafka with the same rules and contents."""
    directory = tmp_path_factory.mktemp("authorization")
    ottla = OttlaProcess(directory / "ottla", OTTLA_SETTINGS)
    ottla.start()
    try:
        with StockKafka(directory / "stock", overrides=SETTINGS) as stock, ExitStack() as stack:
            clients = Client(ottla.bootstrap, stack), Client(stock.bootstrap, stack)
            for client in clients:
                prepare(client)
                client.find_controller()
            yield clients
    finally:
        ottla.stop()
        ottla.assert_no_traceback()


def plain(client: Client, value: Any) -> Any:
    """A response as plain values without an order and without what differs between brokers."""
    if isinstance(value, list):
        return sorted((plain(client, each) for each in value), key=repr)
    if isinstance(value, bytes | memoryview):
        return client.name_of(bytes(value)) if len(value) == 16 and bytes(value) != ZERO_UUID else bytes(value)
    if not hasattr(type(value), "__annotations__") or isinstance(value, int | str):
        return value
    return {
        name: _error_message(plain(client, getattr(value, name)))
        if name == "error_message"
        else plain(client, getattr(value, name))
        for name in type(value).__annotations__
        if name not in _VOLATILE and name[0] != "_"
    }


def _error_message(text: Any) -> Any:
    """Kafka's message of a refused cluster operation has the whole request."""
    return "Cluster authorization failed." if str(text).startswith("Request Request(") else text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_and_allowed_clients_get_kafkas_answers(case: Case, both: tuple[Client, Client]) -> None:
    differences = []
    for version in case.versions:
        for user in _users_of(case):
            ottla, stock = (
                plain(each, each.ask(user, case.request(each), version, on_controller=case.on_controller))
                for each in both
            )
            if user == ADMIN or user.startswith("only-") or case.name == _SHOWS_IDS:
                ottla, stock = _codes(ottla), _codes(stock)
            if ottla != stock:
                differences.append(f"{case.name} v{version} as {user}\n  Ottla {ottla}\n  Kafka {stock}")
    assert not differences, "\n".join(differences)


def _users_of(case: Case) -> list[str]:
    found = [STRANGER, *(user_without(need) for need in case.needs)]
    if not case.only_refused:
        found += [user_with(right) for need in case.needs for right in need.any_of] + [ADMIN]
    return list(dict.fromkeys(found))


def _codes(value: Any) -> Any:
    """The error codes of a plain response."""
    if isinstance(value, list):
        return sorted({code for each in value for code in _codes(each)})
    if not isinstance(value, dict):
        return []
    found = {code for name, each in value.items() if not name.endswith("error_code") for code in _codes(each)}
    found |= {each for name, each in value.items() if name.endswith("error_code")}
    return sorted(found)
