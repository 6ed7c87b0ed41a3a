"""Requests and results of admin calls: settings at the right brokers, ACLs, SCRAM credentials, client quotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.clients.admin import access, configs
from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    AclResourceType,
    PatternType,
    QuotaEntity,
    QuotaName,
    ScramDeletion,
    ScramUpsertion,
)
from ottla.clients.admin.core import Call, Outcome, PartialFailure, Plan, Route, several
from ottla.clients.admin.model import (
    Append,
    ConfigResource,
    ConfigSource,
    ConfigType,
    GroupState,
    GroupType,
    ResourceType,
    Subtract,
)
from ottla.clients.errors import BrokerError, ClientError, ConfigurationError, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)


def run(plan: Plan[Any], *responses: Any) -> tuple[list[Call[Any, Any]], Any]:
    """Run a plan with one response or error for each of its calls; return the calls and the plan's result."""
    calls = []
    left = list(responses)
    try:
        call = next(plan)
        while True:
            calls.append(call)
            call = plan.send(outcome_of(call, left.pop(0)))
    except StopIteration as stop:
        assert not left, "the plan makes fewer calls"
        return calls, stop.value


def outcome_of(call: Call[Any, Any], response: Any) -> Outcome[Any, Any]:
    keys = list(call.keys or ())
    if isinstance(response, ClientError):
        return Outcome({}, dict.fromkeys(keys, response))
    outcome: Outcome[Any, Any] = Outcome({}, {})
    for key, value in call.read(response, keys):
        (outcome.errors if isinstance(value, ClientError) else outcome.results)[key] = value
    return outcome


# -- settings --------------------------------------------------------------------------------------------------------

TOPIC, DEFAULTS, BROKER_1, BROKER_2 = (
    ConfigResource.topic("t"),
    ConfigResource.broker(),
    ConfigResource.broker(1),
    ConfigResource.broker(2),
)
LOGGER_1 = ConfigResource(ResourceType.BROKER_LOGGER, "1")


def altered(*resources: ConfigResource, code: int = 0) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    rows = [
        incremental_alter_configs.AlterConfigsResourceResponse(code, None, each.type, each.name) for each in resources
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=rows)


def test_settings_of_a_broker_change_at_that_broker_and_all_others_at_the_controller() -> None:
    changes = {each: {"a": 1} for each in (TOPIC, BROKER_2, DEFAULTS, BROKER_1, LOGGER_1)}
    calls, outcome = run(configs.alter(changes, False), altered(TOPIC, DEFAULTS), altered(BROKER_2, BROKER_1, LOGGER_1))
    assert [(call.route, call.keys) for call in calls] == [
        (Route.CONTROLLER, [TOPIC, DEFAULTS]),
        (Route.BROKERS, [2, 1]),
    ]
    rows = [(row.resource_type, row.resource_name) for row in calls[1].request([1]).resources]  # type: ignore[attr-defined]
    assert rows == [(ResourceType.BROKER, "1"), (ResourceType.BROKER_LOGGER, "1")]
    assert outcome == Outcome(dict.fromkeys(changes), {})


def test_broker_that_cannot_be_reached_fails_only_its_own_settings() -> None:
    changes = {each: {"a": 1} for each in (TOPIC, BROKER_1, LOGGER_1)}
    error = error_for(ErrorCode.REQUEST_TIMED_OUT)
    _, outcome = run(configs.alter(changes, False), altered(TOPIC), error)
    assert outcome.results == {TOPIC: None}
    assert outcome.errors == {BROKER_1: error, LOGGER_1: error}


def test_resource_that_a_broker_rejects_does_not_fail_the_others_of_that_broker() -> None:
    response = altered(BROKER_1)
    response.responses += altered(LOGGER_1, code=ErrorCode.INVALID_CONFIG).responses
    _, outcome = run(configs.alter({BROKER_1: {"a": 1}, LOGGER_1: {"a": 1}}, False), response)
    assert list(outcome.results) == [BROKER_1]
    assert outcome.errors[LOGGER_1].code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("value", "operation", "text"),
    [
        (None, configs.DELETE, None),
        (Append("compact"), configs.APPEND, "compact"),
        (Subtract("compact"), configs.SUBTRACT, "compact"),
        (True, configs.SET, "true"),
        (7, configs.SET, "7"),
        (0.5, configs.SET, "0.5"),
        ("", configs.SET, ""),
    ],
)
def test_change_of_a_setting_is_its_operation_and_text(value: object, operation: int, text: str | None) -> None:
    [call], _ = run(configs.alter({TOPIC: {"a.b": value}}, True), altered(TOPIC))
    request = call.request([TOPIC])
    assert isinstance(request, incremental_alter_configs.IncrementalAlterConfigsRequest)
    [row] = request.resources[0].configs
    assert (row.name, row.config_operation, row.value, request.validate_only) == ("a.b", operation, text, True)


def test_described_settings_are_sorted_and_unknown_numbers_do_not_fail() -> None:
    rows = [
        describe_configs.DescribeConfigsResourceResult(name=name, value="1", config_source=99, config_type=99)
        for name in ("b", "a")
    ]
    result = describe_configs.DescribeConfigsResult(0, None, ResourceType.TOPIC, "t", rows)
    [call], outcome = run(
        configs.describe([TOPIC, TOPIC], True, False), describe_configs.DescribeConfigsResponse(results=[result])
    )
    assert call.keys == [TOPIC]
    assert list(outcome.results[TOPIC]) == ["a", "b"]
    entry = outcome.results[TOPIC]["a"]
    assert (entry.source, entry.type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)


def test_listed_resources_are_in_order() -> None:
    module = list_config_resources
    rows = [module.ConfigResource("b", 2), module.ConfigResource("1", 4), module.ConfigResource("a", 2)]
    response = module.ListConfigResourcesResponse(error_code=0, config_resources=rows)
    _, found = run(configs.list_resources([]), response)
    assert [str(each) for each in found] == ["topic a", "topic b", "broker 1"]
    refused = module.ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError) as error:
        run(configs.list_resources([]), refused)
    assert error.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# -- ACLs ------------------------------------------------------------------------------------------------------------

READ = Acl(AclResource.topic("t"), "User:a", AclOperation.READ)
DENY = Acl(AclResource.group("g", prefixed=True), "User:*", AclOperation.ALL, AclPermission.DENY, "10.0.0.1")


def test_created_acls_have_results_in_the_order_of_the_request() -> None:
    call = access.create([READ, DENY, READ])
    request = call.request(call.keys or [])
    assert isinstance(request, create_acls.CreateAclsRequest)
    assert [(row.resource_name, row.resource_pattern_type, row.host) for row in request.creations] == [
        ("t", PatternType.LITERAL, "*"),
        ("g", PatternType.PREFIXED, "10.0.0.1"),
    ]
    results = [create_acls.AclCreationResult(0), create_acls.AclCreationResult(ErrorCode.SECURITY_DISABLED, "no")]
    outcome = outcome_of(call, create_acls.CreateAclsResponse(results=results))
    assert outcome.results == {READ: None}
    [error] = outcome.errors.values()
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.SECURITY_DISABLED
    assert list(outcome.errors) == [DENY]


@pytest.mark.parametrize("acl", [READ, DENY, Acl(AclResource.cluster(), "User:b", AclOperation.ALTER)])
def test_deletion_of_an_acl_matches_exactly_this_one_and_returns_it(acl: Acl) -> None:
    call = access.delete([acl, AclFilter.exactly(acl)])
    request = call.request(call.keys or [])
    assert isinstance(request, delete_acls.DeleteAclsRequest)
    [row] = request.filters
    match = delete_acls.DeleteAclsMatchingAcl(
        0, None, row.resource_type_filter, row.resource_name_filter or "", row.pattern_type_filter,
        row.principal_filter or "", row.host_filter or "", row.operation, row.permission_type,
    )  # fmt: skip
    response = delete_acls.DeleteAclsResponse(filter_results=[delete_acls.DeleteAclsFilterResult(0, None, [match])])
    assert outcome_of(call, response).results == {AclFilter.exactly(acl): (acl,)}


def test_acl_that_could_not_be_deleted_fails_its_filter() -> None:
    call = access.delete([READ])
    match = delete_acls.DeleteAclsMatchingAcl(ErrorCode.SECURITY_DISABLED, "no")
    response = delete_acls.DeleteAclsResponse(filter_results=[delete_acls.DeleteAclsFilterResult(0, None, [match])])
    [error] = outcome_of(call, response).errors.values()
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.SECURITY_DISABLED


def test_numbers_of_newer_brokers_are_unknown_values() -> None:
    assert AclResourceType(99) is AclResourceType.UNKNOWN
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert GroupState("Sleeping") is GroupState.UNKNOWN
    assert (GroupType("Consumer"), GroupType("classic"), GroupType("new")) == (
        GroupType.CONSUMER,
        GroupType.CLASSIC,
        GroupType.UNKNOWN,
    )


# -- SCRAM -----------------------------------------------------------------------------------------------------------


def scram_response(*rows: tuple[str, int]) -> alter_user_scram_credentials.AlterUserScramCredentialsResponse:
    module = alter_user_scram_credentials
    results = [module.AlterUserScramCredentialsResult(user, code, None) for user, code in rows]
    return module.AlterUserScramCredentialsResponse(results=results)


def test_several_changes_of_a_user_need_several_requests_and_stop_at_an_error() -> None:
    changes: list[ScramUpsertion | ScramDeletion] = [
        ScramDeletion("a", "SCRAM-SHA-256"),
        ScramUpsertion("a", "pw", "SCRAM-SHA-512", 4096, b"salt"),
        ScramDeletion("b", "SCRAM-SHA-256"),
        ScramDeletion("b", "SCRAM-SHA-512"),
        ScramDeletion("b", "SCRAM-SHA-256"),
    ]
    calls, outcome = run(
        access.alter_scram(changes, iter(())),
        scram_response(("a", 0), ("b", 0)),
        scram_response(("a", 0), ("b", ErrorCode.RESOURCE_NOT_FOUND)),
    )
    assert [call.keys for call in calls] == [["a", "b"], ["a", "b"]]
    second = calls[1].request(["a", "b"])
    assert isinstance(second, alter_user_scram_credentials.AlterUserScramCredentialsRequest)
    assert [row.mechanism for row in second.deletions] == [2]
    [upsertion] = second.upsertions
    assert (upsertion.name, upsertion.salt, upsertion.iterations) == ("a", b"salt", 4096)
    assert b"pw" not in upsertion.salted_password
    assert (set(outcome.results), set(outcome.errors)) == ({"a"}, {"b"})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (ScramDeletion("a", "PLAIN"), "'PLAIN' is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        (ScramUpsertion("a", "pw", iterations=4095), "4095 iterations: brokers take 4096 to 16384"),
        (ScramUpsertion("a", "pw", iterations=16385), "16385 iterations"),
    ],
)
def test_wrong_credential_is_rejected_before_a_request(change: ScramUpsertion | ScramDeletion, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        run(access.alter_scram([change], iter(())))


def test_password_is_not_in_the_text_of_a_change() -> None:
    assert "secret" not in repr(ScramUpsertion("a", "secret", salt=b"secret"))


# -- quotas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "rows"),
    [
        (QuotaEntity(user="u"), [("user", 0, "u")]),
        (QuotaEntity(user=QuotaName.DEFAULT, client_id="c"), [("user", 1, None), ("client-id", 0, "c")]),
        (QuotaEntity(ip=QuotaName.ANY), [("ip", 2, None)]),
        (QuotaEntity(), []),
    ],
)
def test_filter_of_quotas_names_the_fields_that_apply(entity: QuotaEntity, rows: list[tuple[str, int, Any]]) -> None:
    request = access.describe_quotas(entity, True).request([entity])
    assert isinstance(request, describe_client_quotas.DescribeClientQuotasRequest)
    assert [(row.entity_type, row.match_type, row.match) for row in request.components] == rows
    assert request.strict


ENTITIES = [QuotaEntity("u"), QuotaEntity(QuotaName.DEFAULT, "c"), QuotaEntity(ip="10.0.0.1")]


@pytest.mark.parametrize("entity", ENTITIES)
def test_changed_quota_has_the_result_of_its_entity(entity: QuotaEntity) -> None:
    call = access.alter_quotas({entity: {"producer_byte_rate": 5, "request_percentage": None}}, False)
    request = call.request([entity])
    assert isinstance(request, alter_client_quotas.AlterClientQuotasRequest)
    [entry] = request.entries
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 5, False),
        ("request_percentage", 0.0, True),
    ]
    rows = [alter_client_quotas.ResponseEntityData(row.entity_type, row.entity_name) for row in entry.entity]
    response = alter_client_quotas.AlterClientQuotasResponse(
        entries=[alter_client_quotas.ResponseEntryData(0, None, rows)]
    )
    assert outcome_of(call, response).results == {entity: None}


@pytest.mark.parametrize("entity", [QuotaEntity(), QuotaEntity(user=QuotaName.ANY), QuotaEntity("u", QuotaName.ANY)])
def test_quota_without_a_definite_owner_cannot_change(entity: QuotaEntity) -> None:
    with pytest.raises(ConfigurationError, match="does not name a user"):
        access.alter_quotas({entity: {"producer_byte_rate": 5}}, False)


# -- outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["topic", b"topic", TopicPartition("t", 0), TOPIC, 7])
def test_single_item_in_place_of_a_list_is_a_type_error(given: Any) -> None:
    assert several("topics", iter([given])) == [given]
    with pytest.raises(TypeError, match="topics must be a list or another iterable"):
        several("topics", given)


@pytest.mark.parametrize("codes", [[7], [7, 3], [7, 7, 36]])
def test_partial_failure_is_retriable_if_all_its_errors_are(codes: Iterable[int]) -> None:
    errors = {f"t{index}": error_for(code) for index, code in enumerate(codes)}
    with pytest.raises(PartialFailure) as caught:
        Outcome({"ok": 1}, dict(errors)).all()
    assert caught.value.retriable == all(error.retriable for error in errors.values())
    assert caught.value.results == {"ok": 1}
    assert f"{len(errors)} of {len(errors) + 1} failed" in str(caught.value)


def test_error_of_the_only_key_names_it_once() -> None:
    for _ in range(2):
        error = error_for(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")
        with pytest.raises(BrokerError, match=r"^orders: it exists"):
            Outcome({}, {"orders": error}).one()
    with pytest.raises(BrokerError, match=r"^Topic 'orders' exists"):
        Outcome({}, {"orders": error_for(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' exists")}).one()
