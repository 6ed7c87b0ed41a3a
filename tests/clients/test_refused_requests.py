"""Requests of security and metrics to a broker without them, and requests of fenced producers.

Stock Kafka without an authorizer and on a listener without authentication defines the errors.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol import registry
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    end_txn,
    expire_delegation_token,
    find_coordinator,
    get_telemetry_subscriptions,
    init_producer_id,
    produce,
    push_telemetry,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    txn_offset_commit,
)
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import unique, wait_until
from .test_answers_in_detail import Asking

ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION, INVALID_REQUEST, INVALID_PRODUCER_EPOCH = 34, 35, 42, 47
SECURITY_DISABLED, TOKEN_REQUEST_NOT_ALLOWED, PRODUCER_FENCED = 54, 64, 90
ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
TRANSACTIONAL_ID = 1

RULE = create_acls.AclCreation(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW)
FILTER = delete_acls.DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
NO_AUTHORIZER = (SECURITY_DISABLED, "No Authorizer is configured.")


def every_version(key: int) -> range:
    info = registry.API[key]
    return range(info.min_version, info.max_version + 1)


def ask_all(broker: RunningBroker, request: Message) -> list[Any]:
    """The responses to all versions of a request, on one connection."""
    with Asking(broker.bootstrap) as connection:
        return [connection.send_message(request, version) for version in every_version(request.API_KEY)]


@pytest.mark.both
def test_access_rules_are_refused_as_without_an_authorizer(broker: RunningBroker) -> None:
    for described in ask_all(broker, describe_acls.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)):
        found = described.error_code, described.error_message, described.resources
        assert found == (SECURITY_DISABLED, "No Authorizer is configured on the broker", [])
    for created in ask_all(broker, create_acls.CreateAclsRequest([RULE, RULE])):
        assert [(each.error_code, each.error_message) for each in created.results] == [NO_AUTHORIZER] * 2
    for deleted in ask_all(broker, delete_acls.DeleteAclsRequest([FILTER, FILTER])):
        assert [(each.error_code, each.error_message) for each in deleted.filter_results] == [NO_AUTHORIZER] * 2


@pytest.mark.both
def test_sasl_and_delegation_tokens_are_refused_without_authentication(broker: RunningBroker) -> None:
    for shaken in ask_all(broker, sasl_handshake.SaslHandshakeRequest("PLAIN")):
        assert (shaken.error_code, shaken.mechanisms) == (ILLEGAL_SASL_STATE, [])
    text = "SaslAuthenticate request received after successful authentication"
    for answer in ask_all(broker, sasl_authenticate.SaslAuthenticateRequest(b"\0a\0b")):
        assert (answer.error_code, answer.error_message) == (ILLEGAL_SASL_STATE, text)
    for created in ask_all(broker, create_delegation_token.CreateDelegationTokenRequest()):
        principal = created.principal_type, created.principal_name
        assert (created.error_code, principal) == (TOKEN_REQUEST_NOT_ALLOWED, ("User", "ANONYMOUS"))
        assert (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms) == (-1, -1, -1)
    for request in (
        renew_delegation_token.RenewDelegationTokenRequest(b"x", 1),
        expire_delegation_token.ExpireDelegationTokenRequest(b"x", 1),
    ):
        for changed in ask_all(broker, request):
            assert (changed.error_code, changed.expiry_timestamp_ms) == (TOKEN_REQUEST_NOT_ALLOWED, -1)
    for described in ask_all(broker, describe_delegation_token.DescribeDelegationTokenRequest(None)):
        assert (described.error_code, described.tokens) == (TOKEN_REQUEST_NOT_ALLOWED, [])


@pytest.mark.both
def test_security_is_advertised_without_it(broker: RunningBroker) -> None:
    with Asking(broker.bootstrap) as connection:
        advertised = connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 4).api_keys
    versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in advertised}
    for key in (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51):
        assert versions[key] == every_version(key)
    assert not {71, 72} & versions.keys()


def test_what_is_missing_is_refused_with_an_error_and_not_advertised(broker: RunningBroker) -> None:
    """A client that does not ask for versions must not lose its connection."""
    (subscribed,) = ask_all(broker, get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest())
    (pushed,) = ask_all(broker, push_telemetry.PushTelemetryRequest())
    assert subscribed.error_code == pushed.error_code == UNSUPPORTED_VERSION
    with Asking(broker.bootstrap) as connection:
        advertised = connection.send_message(api_versions.ApiVersionsRequest("a", "1"), 4).api_keys
    assert not {71, 72} & {each.api_key for each in advertised}


@pytest.mark.both
def test_transactional_id_must_not_be_empty(broker: RunningBroker) -> None:
    for ended in ask_all(broker, end_txn.EndTxnRequest("", 1, 0, True)):
        assert ended.error_code == INVALID_REQUEST
    for added in ask_all(broker, add_offsets_to_txn.AddOffsetsToTxnRequest("", 1, 0, "g")):
        assert added.error_code == INVALID_REQUEST


@pytest.mark.both
def test_fenced_producer_gets_kafkas_errors(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, name = make_topic(2), unique("fenced")
    with Asking(broker.bootstrap) as connection:
        _find_coordinators(connection, name)
        old, new = _init(connection, name), _init(connection, name)
        assert (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch + 1)
        producer = old.producer_id, old.producer_epoch

        def written(version: int, partition: int) -> tuple[int, str | None]:
            batch = encode_batch([(0, None, b"x", [])], producer=BatchProducer(*producer, 0), attributes=TRANSACTIONAL)
            rows = [
                produce.TopicProduceData(name=topic, partition_data=[produce.PartitionProduceData(partition, batch)])
            ]
            request = produce.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5_000, topic_data=rows)
            (answer,) = connection.send_message(request, version).responses[0].partition_responses
            return answer.error_code, answer.error_message

        # The message is null: clients show the text of the error code, "attempted to produce with an old epoch".
        for version in (8, 11, 12):
            assert written(version, 1) == (INVALID_PRODUCER_EPOCH, None)
        added = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic, [0])]
        for version, code in ((0, INVALID_PRODUCER_EPOCH), (2, PRODUCER_FENCED), (3, PRODUCER_FENCED)):
            request = add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=added,
            )
            (row,) = connection.send_message(request, version).results_by_topic_v3_and_below
            assert row.results_by_partition[0].partition_error_code == code
        offset = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1, -1, "")
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(topic, [offset])]
        for version in (0, 3, 5):
            commit = txn_offset_commit.TxnOffsetCommitRequest(name, name, *producer, topics=topics)
            (row,) = connection.send_message(commit, version).topics
            assert row.partitions[0].error_code == INVALID_PRODUCER_EPOCH
        for version, code in ((0, INVALID_PRODUCER_EPOCH), (1, INVALID_PRODUCER_EPOCH), (2, PRODUCER_FENCED)):
            request_offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(name, *producer, name)
            assert connection.send_message(request_offsets, version).error_code == code
            assert connection.send_message(end_txn.EndTxnRequest(name, *producer, True), version).error_code == code


def _find_coordinators(connection: Asking, name: str) -> None:
    for kind in (TRANSACTIONAL_ID, 0):
        request = find_coordinator.FindCoordinatorRequest(key=name, key_type=kind)
        wait_until(lambda: connection.send_message(request, 2).error_code == 0, "the coordinator is known")  # noqa: B023


def _init(connection: Asking, name: str) -> Any:
    answers: list[Any] = []
    request = init_producer_id.InitProducerIdRequest(name, 60_000)

    def is_done() -> bool:
        answers.append(connection.send_message(request, 4))
        return bool(answers[-1].error_code == 0)

    wait_until(is_done, "the coordinator is loaded")
    return answers[-1]
