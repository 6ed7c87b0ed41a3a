"""Unauthorized requests change nothing, and changed rights affect sessions, waiting requests and caches."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.dispatch import Dispatcher
from ottla.broker.envelope import encode_principal
from ottla.broker.operations import NOT_REQUESTED
from ottla.broker.served import CONTROLLER_ANSWERED, CONTROLLER_HANDLERS
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.config import Listener
from ottla.metadata.image import MIRROR
from ottla.protocol import frames
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.records import BatchProducer
from ottla.records.batch import TRANSACTIONAL
from ottla.security.acl import CLUSTER_NAME, Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import Rules, StandardAuthorizer
from tests.authorization_cases import STREAMS, build, errors_of, streams_member

from .harness import LONG, BrokerHarness, Connection, batch, produce_request, records_of

TOPIC_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE, DESCRIBE, CREATE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


class Secured:
    """A broker with an authorizer, topics `a` and `b`, and requests of named users."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.ids = {name: harness.create(name) for name in ("a", "b")}
        self.authorizer = StandardAuthorizer(Rules(super_users=frozenset({"User:admin"})))
        self.authorizer.finish_loading()
        harness.broker.security.authorizer = self.authorizer

    def allow(self, user: str, operation: Operation, kind: ResourceType, name: str) -> Acl:
        acl = Acl(Pattern(kind, name), f"User:{user}", "*", operation, PermissionType.ALLOW)
        self.authorizer.add(acl)
        return acl

    def start(self, user: str, request: Any, version: int | None = None) -> Any:
        client = Connection()
        client.principal = f"User:{user}"
        self.client = client
        answer = self.harness.start(request, version, client)
        self.harness.loop.run()
        return answer

    def ask(self, user: str, request: Any, version: int | None = None) -> Any:
        answer = self.start(user, request, version)
        if not isinstance(answer, Completion):
            return answer
        assert answer.done, "the response is not complete"
        return answer.result()


@pytest.fixture
def secured(harness: BrokerHarness) -> Secured:
    return Secured(harness)


def fetch(*names: str, session: tuple[int, int] = (0, 0), min_bytes: int = 0, **options: Any) -> FetchRequest:
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(0, partition_max_bytes=1_000)]) for name in names]
    return FetchRequest(
        max_wait_ms=LONG if min_bytes else 0,
        min_bytes=min_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        **options,
    )


def rows(response: Any) -> dict[str, tuple[int, int]]:
    """Error and number of records, by topic."""
    return {
        topic.topic: (topic.partitions[0].error_code, len(records_of(topic.partitions[0].records)))
        for topic in response.responses
    }


def test_each_fetch_of_a_session_is_authorized_again(secured: Secured) -> None:
    for name in ("a", "b"):
        secured.harness.append(name, b"v")
    rule = secured.allow("alice", READ, TOPIC, "a")
    secured.allow("alice", READ, TOPIC, "b")
    opened = secured.ask("alice", fetch("a", "b"), 12)
    assert rows(opened) == {"a": (0, 1), "b": (0, 1)}
    session = opened.session_id
    secured.authorizer.remove(rule)
    assert rows(secured.ask("alice", fetch(session=(session, 1)), 12)) == {"a": (TOPIC_FORBIDDEN, 0), "b": (0, 1)}
    # A client that knows the id of the session does not get the rights of the client that opened it.
    other = secured.ask("bob", fetch(session=(session, 2)), 12)
    assert rows(other) == {"a": (TOPIC_FORBIDDEN, 0), "b": (TOPIC_FORBIDDEN, 0)}
    assert {topic.partitions[0].high_watermark for topic in other.responses} == {-1}
    secured.allow("alice", READ, TOPIC, "a")
    assert rows(secured.ask("alice", fetch(session=(session, 3)), 12)) == {"a": (0, 1), "b": (0, 1)}


def test_idle_partition_of_a_session_is_refused_too(secured: Secured) -> None:
    rule = secured.allow("alice", READ, TOPIC, "a")
    session = secured.ask("alice", fetch("a"), 12).session_id
    assert rows(secured.ask("alice", fetch(session=(session, 1)), 12)) == {}
    secured.authorizer.remove(rule)
    assert rows(secured.ask("alice", fetch(session=(session, 2), min_bytes=1), 12)) == {"a": (TOPIC_FORBIDDEN, 0)}


def test_waiting_fetch_keeps_the_rights_of_its_arrival(secured: Secured) -> None:
    rule = secured.allow("alice", READ, TOPIC, "a")
    waiting = secured.start("alice", fetch("a", min_bytes=1), 12)
    assert not waiting.done
    secured.authorizer.remove(rule)
    secured.harness.append("a", b"v")
    secured.harness.loop.advance(10)
    assert rows(waiting.result()) == {"a": (0, 1)}


def test_consumer_that_claims_to_be_a_replica_reads_nothing(secured: Secured) -> None:
    secured.harness.append("a", b"v")
    secured.allow("alice", READ, TOPIC, "a")
    for version, options in ((12, {"replica_id": 2}), (16, {"replica_state": ReplicaState(2, -1)})):
        request = fetch("a", **options)
        request.topics[0].topic_id = secured.ids["a"]
        answer = secured.ask("alice", request, version)
        partition = answer.responses[0].partitions[0]
        assert (partition.error_code, partition.high_watermark) == (TOPIC_FORBIDDEN, -1)
        assert not partition.records


def test_authorized_part_of_a_produce_request_is_written(secured: Secured) -> None:
    secured.allow("alice", WRITE, TOPIC, "a")
    request = produce_request(("a", {0: batch(b"v")}), ("b", {0: batch(b"v")}))
    answer = secured.ask("alice", request, 12)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"a": 0, "b": TOPIC_FORBIDDEN}
    assert [secured.harness.partition(name).log.log_end_offset for name in ("a", "b")] == [1, 0]


def test_transaction_of_another_client_is_not_written(secured: Secured) -> None:
    secured.allow("alice", WRITE, TOPIC, "a")
    data = batch(b"v", producer=BatchProducer(1, 0, 0), attributes=TRANSACTIONAL)
    for transactional_id in ("x", None):
        request = produce_request(("a", {0: data}))
        request.transactional_id = transactional_id
        answer = secured.ask("alice", request, 12)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    request.acks = 0
    assert secured.ask("alice", request, 12) is None
    assert secured.client.closed
    assert secured.harness.partition("a").log.log_end_offset == 0


def metadata(*names: str, **options: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False, **options})


def seen(response: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_cached_metadata_does_not_show_topics_to_other_clients(secured: Secured) -> None:
    rule = secured.allow("alice", DESCRIBE, TOPIC, "a")
    secured.allow("bob", DESCRIBE, TOPIC, "b")
    secured.allow("carol", DESCRIBE, TOPIC, "a")
    for _ in range(2):
        assert seen(secured.ask("alice", metadata())) == [("a", 0)]
        assert seen(secured.ask("bob", metadata())) == [("b", 0)]
        assert seen(secured.ask("carol", metadata("a", "b"))) == [("a", 0), ("b", TOPIC_FORBIDDEN)]
        assert seen(secured.ask("bob", metadata("a", "b"))) == [("a", TOPIC_FORBIDDEN), ("b", 0)]
    entries = len(secured.harness.broker.response_cache)
    assert seen(secured.ask("carol", metadata())) == [("a", 0)]
    assert len(secured.harness.broker.response_cache) == entries, "clients that see the same topics share a response"
    secured.authorizer.remove(rule)
    assert seen(secured.ask("alice", metadata())) == []
    assert seen(secured.ask("admin", metadata())) == [("a", 0), ("b", 0)]


def test_hidden_topic_and_absent_topic_look_the_same(secured: Secured) -> None:
    hidden, absent = secured.ask("alice", metadata("a", "absent"), 12).topics
    hidden.name = absent.name = ""
    assert hidden == absent
    assert absent.error_code == TOPIC_FORBIDDEN


def test_topic_id_shows_no_name(secured: Secured) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=secured.ids["a"], name=None)])
    topic = secured.ask("alice", request, 12).topics[0]
    assert (topic.name, topic.error_code, topic.partitions) == (None, TOPIC_FORBIDDEN, [])
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=secured.ids["a"])])
    deleted = secured.ask("alice", deletion).responses[0]
    assert (deleted.name, deleted.error_code) == (None, TOPIC_FORBIDDEN)
    secured.allow("alice", DESCRIBE, TOPIC, "a")
    assert secured.ask("alice", deletion).responses[0].name == "a"
    assert "a" in secured.harness.broker.metadata.image.topics_by_name


@pytest.mark.parametrize(("kind", "name"), [(None, ""), (TOPIC, "new"), (CLUSTER, CLUSTER_NAME)])
def test_metadata_creates_topics_only_for_clients_that_may(
    secured: Secured, kind: ResourceType | None, name: str
) -> None:
    secured.allow("alice", DESCRIBE, TOPIC, "new")
    if kind is not None:
        secured.allow("alice", CREATE, kind, name)
    answer = secured.ask("alice", metadata("new", "hidden", allow_auto_topic_creation=True))
    expected = TOPIC_FORBIDDEN if kind is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert seen(answer) == [("new", expected), ("hidden", TOPIC_FORBIDDEN)]
    secured.harness.loop.advance(100)
    names = secured.harness.broker.metadata.image.topics_by_name
    assert ("new" in names, "hidden" in names) == (kind is not None, False)


def test_only_topics_that_a_client_may_delete_are_deleted(secured: Secured) -> None:
    secured.allow("alice", Operation.DELETE, TOPIC, "a")
    states = [DeleteTopicState(name=name) for name in ("a", "b", "absent")]
    answer = secured.ask("alice", DeleteTopicsRequest(topics=states))
    codes = {topic.name: topic.error_code for topic in answer.responses}
    assert codes == {"a": 0, "b": TOPIC_FORBIDDEN, "absent": TOPIC_FORBIDDEN}
    assert list(secured.harness.broker.metadata.image.topics_by_name) == ["b"]


def test_authorized_operations_belong_to_the_client(secured: Secured) -> None:
    secured.allow("alice", READ, TOPIC, "a")
    request = metadata("a", "b", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    answer = secured.ask("alice", request, 10)
    bits = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert bits == {"a": 1 << READ | 1 << DESCRIBE, "b": NOT_REQUESTED}
    assert answer.cluster_authorized_operations == 0
    secured.allow("alice", DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert secured.ask("alice", request, 10).cluster_authorized_operations == 1 << DESCRIBE


def test_forwarded_request_has_the_rights_of_its_client(secured: Secured) -> None:
    harness = secured.harness
    harness.broker.endpoints.controllers = [Listener("CONTROLLER", "127.0.0.1", 1)]
    harness.dispatch = Dispatcher(harness.broker, CONTROLLER_ANSWERED, CONTROLLER_HANDLERS)
    secured.allow("broker", Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    secured.allow("broker", CREATE, CLUSTER, CLUSTER_NAME)
    secured.allow("alice", CREATE, TOPIC, "c")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("c", "d")]
    data = b"".join(frames.encode_request(CreateTopicsRequest(topics=topics), 7, 5, "test"))[4:]
    request = EnvelopeRequest(data, encode_principal("User:alice"), bytes(4))
    assert secured.ask("alice", request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = secured.ask("broker", request)
    _, position = frames.decode_response_header(answer.response_data, 19, 7)
    response = CreateTopicsResponse.decode(memoryview(answer.response_data)[position:], 7)
    assert {topic.name: topic.error_code for topic in response.topics} == {"c": 0, "d": TOPIC_FORBIDDEN}


def create_internal_topics(harness: BrokerHarness) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        harness.broker.controller.create_internal_topic(name)
        harness.loop.advance(500)


def test_regular_expression_matches_only_topics_that_the_member_may_describe(secured: Secured) -> None:
    create_internal_topics(secured.harness)
    secured.allow("alice", READ, ResourceType.GROUP, "g")
    secured.allow("alice", DESCRIBE, TOPIC, "a")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=60_000, subscribed_topic_regex=".*", topic_partitions=[]
    )
    pytest.importorskip("re2")
    answer = secured.ask("alice", request)
    for _ in range(3):
        assert not answer.error_code
        secured.harness.loop.advance(1_000)
        epoch = answer.member_epoch
        answer = secured.ask("alice", ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch))
    described = secured.ask("admin", ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0]
    topics = [each.topic_name for each in described.members[0].target_assignment.topic_partitions]
    assert topics == ["a"]


def test_streams_member_that_may_not_create_topics_reports_it(secured: Secured) -> None:
    create_internal_topics(secured.harness)
    for operation, kind, name in ((READ, ResourceType.GROUP, STREAMS), (DESCRIBE, TOPIC, "t"), (DESCRIBE, TOPIC, "s")):
        prefix = Acl(Pattern(kind, name, PatternType.PREFIXED), "User:alice", "*", operation, PermissionType.ALLOW)
        secured.authorizer.add(prefix)
    secured.harness.create("t")
    request = build(StreamsGroupHeartbeatRequest, streams_member(internal=True))
    status = secured.ask("alice", request).status
    assert [each.status_detail for each in status if "Unauthorized" in each.status_detail] == [
        "Internal topics are missing: s-changelog; Unauthorized to CREATE on topics s-changelog."
    ]
    secured.harness.loop.advance(100)
    topics = secured.harness.broker.metadata.image.topics_by_name
    assert "s-changelog" not in topics
    secured.allow("alice", CREATE, TOPIC, "s-changelog")
    secured.ask("alice", request)
    secured.harness.loop.advance(100)
    assert "s-changelog" in secured.harness.broker.metadata.image.topics_by_name


def test_description_of_a_transaction_omits_hidden_topics(secured: Secured) -> None:
    create_internal_topics(secured.harness)
    begun = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    answer = secured.start("admin", begun, 5)
    secured.harness.loop.advance(1_000)
    producer = answer.result() if isinstance(answer, Completion) else answer
    added = build(
        AddPartitionsToTxnRequest,
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.producer_epoch,
            "v3_and_below_topics": [{"name": "a", "partitions": [0]}, {"name": "b", "partitions": [0]}],
        },
    )
    assert errors_of(secured.ask("admin", added, 3)) == {0}
    secured.allow("alice", DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x")
    secured.allow("alice", DESCRIBE, TOPIC, "b")
    state = secured.ask("alice", DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states[0]
    assert [topic.topic for topic in state.topics] == ["b"]


def test_topic_that_a_client_may_not_write_is_not_added_to_its_transaction(secured: Secured) -> None:
    create_internal_topics(secured.harness)
    answer = secured.start("admin", InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)
    secured.harness.loop.advance(1_000)
    producer = answer.result() if isinstance(answer, Completion) else answer
    secured.allow("alice", WRITE, ResourceType.TRANSACTIONAL_ID, "x")
    secured.allow("alice", WRITE, TOPIC, "a")
    data = batch(b"v", producer=BatchProducer(producer.producer_id, 0, 0), attributes=TRANSACTIONAL)
    request = produce_request(("a", {0: data}), ("b", {0: data}))
    request.transactional_id = "x"
    written = secured.start("alice", request, 12)
    secured.harness.loop.advance(1_000)
    response = written.result() if isinstance(written, Completion) else written
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {"a": 0, "b": TOPIC_FORBIDDEN}
    state = secured.ask("admin", DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states[0]
    assert [topic.topic for topic in state.topics] == ["a"]


def test_stranger_causes_no_creation_of_the_topics_of_coordinators(secured: Secured) -> None:
    for kind, key in ((0, "g"), (1, "x"), (2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0")):
        for version in (3, 6):
            request = FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=kind)
            assert errors_of(secured.ask("alice", request, version)) - {0}
    secured.harness.loop.advance(1_000)
    assert list(secured.harness.broker.metadata.image.topics_by_name) == ["a", "b"]


def test_refused_deletion_of_records_writes_no_checkpoint(secured: Secured) -> None:
    secured.harness.append("a", b"v")
    secured.harness.threads.held = True
    partition = {"partition_index": 0, "offset": 1}
    request = build(DeleteRecordsRequest, {"topics": [{"name": "a", "partitions": [partition]}]})
    assert errors_of(secured.ask("alice", request)) == {TOPIC_FORBIDDEN}
    assert secured.harness.partition("a").log.log_start_offset == 0


def test_mirror_of_a_topic_needs_the_right_on_the_cluster(secured: Secured) -> None:
    secured.allow("alice", Operation.ALTER_CONFIGS, TOPIC, "a")

    def change(**settings: str) -> int:
        rows = [incremental.AlterableConfig(f"ottla.{name}", 0, value) for name, value in settings.items()]
        request = incremental.IncrementalAlterConfigsRequest([incremental.AlterConfigsResource(2, "a", rows)])
        code: int = secured.ask("alice", request).responses[0].error_code
        return code

    def replace(**settings: str) -> int:
        rows = [legacy.AlterableConfig(name.replace("_", "."), value) for name, value in settings.items()]
        request = legacy.AlterConfigsRequest(resources=[legacy.AlterConfigsResource(2, "a", rows)])
        code: int = secured.ask("alice", request).responses[0].error_code
        return code

    forbidden = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert replace(retention_ms="5") == 0
    assert change(**{"mirror": "dr", "mirror.state": "FAILBACK"}) == forbidden
    assert replace(ottla_mirror="dr", ottla_mirror_state="FAILBACK") == forbidden
    rule = secured.allow("alice", Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)
    assert change(**{"mirror": "dr", "mirror.state": "FAILBACK"}) == ErrorCode.INVALID_CONFIG, "there is no mirror"
    secured.authorizer.remove(rule)
    assert change(mirror="dr") == forbidden


def test_mirror_of_rules_needs_the_right_to_create_them(secured: Secured) -> None:
    secured.allow("alice", Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)

    def change(**settings: str | None) -> int:
        rows = [
            incremental.AlterableConfig(name.replace("_", "."), int(value is None), value)
            for name, value in settings.items()
        ]
        resource = incremental.AlterConfigsResource(MIRROR, "dr", rows)
        code: int = secured.ask("alice", incremental.IncrementalAlterConfigsRequest([resource])).responses[0].error_code
        return code

    forbidden = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert change(bootstrap_servers="a:1", topics="a") == 0
    assert change(copy="acls") == forbidden
    rule = secured.allow("alice", Operation.ALTER, CLUSTER, CLUSTER_NAME)
    assert change(copy="acls") == 0
    secured.authorizer.remove(rule)
    assert change(bootstrap_servers="another:1") == forbidden, "another source has other rules"
    assert change(copy=None) == 0
    assert change(bootstrap_servers="another:1") == 0
