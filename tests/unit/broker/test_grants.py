"""The rights that a connection remembers: what ends them, what they hide from the audit log, and their bound."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.authorization import audit_logger
from ottla.broker.authorizers import ForeignAuthorizer
from ottla.common.errors import ErrorCode
from ottla.config.authorization import AuthorizerSettings
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.security import grants
from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import Decision, Rules, StandardAuthorizer

from .harness import BrokerHarness, Connection, batch

TOPIC_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TRANSACTION_FORBIDDEN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
READ, WRITE = Operation.READ, Operation.WRITE
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
BY_NAME, BY_ID = 12, 13
VERSIONS = pytest.mark.parametrize("version", [BY_NAME, BY_ID])


class Counting(StandardAuthorizer):
    """Counts the decisions, but decides and remembers as its base class does."""

    def __init__(self) -> None:
        super().__init__(Rules())
        self._remembers = True
        self.decided = 0

    def decide(self, *question: Any) -> Decision:
        self.decided += 1
        return super().decide(*question)


class OneClient:
    """A broker with topics, and one connection that produces and fetches."""

    def __init__(self, harness: BrokerHarness, authorizer: Any) -> None:
        self.harness = harness
        self.ids = {name: harness.create(name) for name in ("a", "b")}
        harness.broker.security.authorizer = self.authorizer = authorizer
        self.client = Connection()
        self.client.principal = "User:alice"

    def rule(self, operation: Operation, name: str = "a", permission: PermissionType = ALLOW, **other: Any) -> Acl:
        acl = Acl(Pattern(ResourceType.TOPIC, name, **other), "User:alice", "*", operation, permission)
        self.authorizer.add(acl)
        return acl

    def produce(self, version: int = BY_NAME, *names: str, records: Any = None) -> list[int]:
        data = [PartitionProduceData(0, batch(b"v") if records is None else records)]
        keys = [{"topic_id": self.ids[name]} if version >= BY_ID else {"name": name} for name in names or ("a",)]
        topics = [TopicProduceData(partition_data=data, **key) for key in keys]  # type: ignore[arg-type]
        request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
        answer = self.harness.start(request, version, self.client)
        return [topic.partition_responses[0].error_code for topic in answer.responses]

    def fetch(self, version: int = BY_NAME, *names: str, session: tuple[int, int] = (0, -1)) -> Any:
        keys = [{"topic_id": self.ids[name]} if version >= BY_ID else {"topic": name} for name in names]
        partitions = [FetchPartition(0, partition_max_bytes=1_000)]
        topics = [FetchTopic(partitions=partitions, **key) for key in keys]  # type: ignore[arg-type]
        request = FetchRequest(session_id=session[0], session_epoch=session[1], topics=topics)
        return self.harness.start(request, version, self.client)

    def fetched(self, version: int = BY_NAME, *names: str) -> list[int]:
        return [topic.partitions[0].error_code for topic in self.fetch(version, *names or ("a",)).responses]


def loaded(authorizer: StandardAuthorizer) -> StandardAuthorizer:
    authorizer.finish_loading()
    return authorizer


@pytest.fixture
def alice(harness: BrokerHarness) -> OneClient:
    return OneClient(harness, loaded(StandardAuthorizer(Rules(frozenset({"User:ANONYMOUS"})))))


@pytest.fixture
def counted(harness: BrokerHarness) -> OneClient:
    return OneClient(harness, loaded(Counting()))


@VERSIONS
def test_repeated_requests_are_decided_once(counted: OneClient, version: int) -> None:
    counted.rule(READ)
    counted.rule(WRITE)
    for _ in range(3):
        assert counted.produce(version) == [0]
        assert counted.fetched(version) == [0]
    assert counted.authorizer.decided == 2


def test_further_topics_of_a_session_are_decided(counted: OneClient) -> None:
    counted.rule(READ, "a")
    opened = counted.fetch(BY_NAME, "a", session=(0, 0))
    assert not counted.fetch(BY_NAME, session=(opened.session_id, 1)).responses
    assert counted.authorizer.decided == 1
    [refused] = counted.fetch(BY_NAME, "b", session=(opened.session_id, 2)).responses
    assert (refused.topic, refused.partitions[0].error_code) == ("b", TOPIC_FORBIDDEN)
    assert counted.produce(BY_NAME, "a") == [TOPIC_FORBIDDEN]


@VERSIONS
def test_right_that_is_revoked_is_not_remembered(alice: OneClient, version: int) -> None:
    reads, writes = alice.rule(READ), alice.rule(WRITE)
    assert (alice.produce(version), alice.fetched(version)) == ([0], [0])
    alice.authorizer.remove(writes)
    assert (alice.produce(version), alice.fetched(version)) == ([TOPIC_FORBIDDEN], [0])
    alice.authorizer.remove(reads)
    assert alice.fetched(version) == [TOPIC_FORBIDDEN]
    alice.rule(WRITE)
    assert alice.produce(version) == [0]


def test_rule_that_denies_ends_a_remembered_right(alice: OneClient) -> None:
    alice.rule(Operation.ALL)
    assert (alice.produce(), alice.fetched()) == ([0], [0])
    alice.rule(Operation.ALL, "", DENY, pattern_type=PatternType.PREFIXED)
    assert (alice.produce(), alice.fetched()) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])


def test_denied_topic_is_denied_beside_remembered_ones(alice: OneClient) -> None:
    alice.rule(Operation.ALL)
    assert (alice.produce(), alice.fetched()) == ([0], [0])
    assert alice.produce(BY_NAME, "a", "b") == [0, TOPIC_FORBIDDEN]
    assert alice.fetched(BY_NAME, "a", "b") == [0, TOPIC_FORBIDDEN]


def test_connection_with_another_principal_has_its_own_rights(alice: OneClient) -> None:
    alice.rule(Operation.ALL)
    assert (alice.produce(), alice.fetched()) == ([0], [0])
    alice.client.principal = "User:bob"
    assert (alice.produce(), alice.fetched()) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])
    alice.client.principal = "User:alice"
    assert (alice.produce(), alice.fetched()) == ([0], [0])


def test_rights_for_a_topic_end_with_its_rule_also_if_it_is_recreated(alice: OneClient) -> None:
    rule = alice.rule(Operation.ALL)
    assert (alice.produce(BY_ID), alice.fetched(BY_ID)) == ([0], [0])
    alice.harness.delete("a")
    assert alice.produce(BY_ID) == alice.fetched(BY_ID) == [ErrorCode.UNKNOWN_TOPIC_ID]
    alice.ids["a"] = alice.harness.create("a")
    assert (alice.produce(BY_ID), alice.fetched(BY_ID)) == ([0], [0])
    alice.authorizer.remove(rule)
    assert (alice.produce(BY_ID), alice.fetched(BY_ID)) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])


def test_audit_log_at_debug_has_each_allowed_request(alice: OneClient, caplog: pytest.LogCaptureFixture) -> None:
    alice.rule(Operation.ALL)
    caplog.set_level(logging.INFO, audit_logger.name)
    assert (alice.produce(), alice.fetched()) == ([0], [0])
    assert not caplog.records
    caplog.set_level(logging.DEBUG, audit_logger.name)
    for _ in range(2):
        assert (alice.produce(), alice.fetched()) == ([0], [0])
    assert [" Allowed operation = WRITE " in line for line in caplog.messages] == [True, False, True, False]
    caplog.clear()
    caplog.set_level(logging.INFO, audit_logger.name)
    assert (alice.produce(), alice.fetched()) == ([0], [0])
    assert not caplog.records


def test_each_denied_request_is_in_the_audit_log(alice: OneClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, audit_logger.name)
    for _ in range(2):
        assert (alice.produce(), alice.fetched()) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])
    assert len(caplog.records) == 4


def test_transactional_batch_is_checked_for_topics_that_are_remembered(alice: OneClient) -> None:
    alice.rule(Operation.ALL)
    assert alice.produce() == [0]
    transactional = bytearray(batch(b"v"))
    transactional[22] |= 0x10
    assert alice.produce(records=transactional) == [TRANSACTION_FORBIDDEN]
    # Bytes that are too short for a batch are no transactional batch.
    assert alice.produce(records=bytes(transactional[:40])) != [TRANSACTION_FORBIDDEN]
    assert alice.produce(records=b"") != [TRANSACTION_FORBIDDEN]


def test_transactional_batch_is_checked_beside_another_one_of_its_topic(alice: OneClient) -> None:
    alice.rule(Operation.ALL)
    assert alice.produce() == [0]
    transactional = bytearray(batch(b"v"))
    transactional[22] |= 0x10
    rows = [PartitionProduceData(0, batch(b"v")), PartitionProduceData(0, memoryview(transactional))]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="a", partition_data=rows)])
    [topic] = alice.harness.start(request, BY_NAME, alice.client).responses
    assert [row.error_code for row in topic.partition_responses] == [TRANSACTION_FORBIDDEN] * 2


def test_object_in_python_is_asked_for_each_request(harness: BrokerHarness) -> None:
    class Fickle:
        allows = True

        def authorize(self, *_: object) -> bool:
            return self.allows

    wrapped = Fickle()
    authorizer = ForeignAuthorizer(wrapped, AuthorizerSettings("fickle", frozenset(), allow_without_acl=False))
    client = OneClient(harness, authorizer)
    assert (client.produce(), client.fetched()) == ([0], [0])
    wrapped.allows = False
    assert (client.produce(), client.fetched()) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])


def test_subclass_of_the_standard_authorizer_is_asked_for_each_request(harness: BrokerHarness) -> None:
    class Fickle(StandardAuthorizer):
        allows = True

        def decide(self, *_: object) -> Decision:
            return Decision(is_allowed=self.allows)

    authorizer = Fickle(Rules())
    client = OneClient(harness, authorizer)
    assert (client.produce(), client.fetched()) == ([0], [0])
    authorizer.allows = False
    assert (client.produce(), client.fetched()) == ([TOPIC_FORBIDDEN], [TOPIC_FORBIDDEN])


def test_remembered_rights_have_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_GRANTS", 3)
    authorizer = StandardAuthorizer(Rules())
    known = [grants.Grants(f"User:{number}") for number in range(4)]
    for each in known:
        for number in range(2):
            authorizer.remember(each.readable, f"topic{number}")
            assert sum(len(other.readable) for other in known) <= 3
    authorizer.remember(known[0].writable, "n" * 1_000)
    assert not known[0].writable
    authorizer.add(Acl(Pattern(ResourceType.TOPIC, "x"), "User:0", "*", READ, ALLOW))
    assert not any(each.readable for each in known)
