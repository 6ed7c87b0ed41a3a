"""DescribeAcls, CreateAcls and DeleteAcls on a broker: who may send them, and their effect on the next request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.config.authorization import STANDARD
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acl import Operation, PatternType, PermissionType, ResourceType

from .harness import BrokerHarness, open_harness

ADMIN, ALICE = "User:admin", "User:alice"
SETTINGS = {"authorizer.class.name": STANDARD, "super.users": ADMIN}
EVERYTHING = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
ALL = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(tmp_path, SETTINGS) as harness:
        yield harness


def ask(harness: BrokerHarness, principal: str, request: Any) -> Any:
    harness.client.principal = principal
    return harness.ask(request)


def rule(operation: Operation, principal: str = ALICE) -> AclCreation:
    cluster = (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    return AclCreation(*cluster, principal, "*", operation, PermissionType.ALLOW)


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in getattr(answer, "results", None) or answer.filter_results]


def test_rights_to_see_and_change_rules_are_rules_themselves(harness: BrokerHarness) -> None:
    assert ask(harness, ALICE, EVERYTHING).error_code == DENIED
    assert codes(ask(harness, ALICE, CreateAclsRequest([rule(Operation.ALTER)]))) == [DENIED]
    assert codes(ask(harness, ALICE, DeleteAclsRequest([ALL, ALL]))) == [DENIED] * 2
    assert codes(ask(harness, ADMIN, CreateAclsRequest([rule(Operation.ALTER)]))) == [0]
    assert ask(harness, ALICE, EVERYTHING).error_code == 0  # ALTER implies DESCRIBE
    assert codes(ask(harness, ALICE, DeleteAclsRequest([ALL]))) == [0]
    assert ask(harness, ALICE, EVERYTHING).error_code == DENIED


def test_changes_of_rules_need_alter_on_the_cluster(harness: BrokerHarness) -> None:
    assert codes(ask(harness, ADMIN, CreateAclsRequest([rule(Operation.DESCRIBE)]))) == [0]
    assert ask(harness, ALICE, EVERYTHING).error_code == 0
    assert codes(ask(harness, ALICE, CreateAclsRequest([rule(Operation.ALL)]))) == [DENIED]
    assert codes(ask(harness, ALICE, DeleteAclsRequest([ALL]))) == [DENIED]


def test_rules_are_listed_by_pattern(harness: BrokerHarness) -> None:
    ask(
        harness,
        ADMIN,
        CreateAclsRequest([rule(Operation.ALTER), rule(Operation.CREATE), rule(Operation.ALTER, "User:b")]),
    )
    [resource] = ask(harness, ADMIN, EVERYTHING).resources
    assert (resource.resource_type, resource.resource_name) == (ResourceType.CLUSTER, "kafka-cluster")
    assert [(acl.principal, acl.operation) for acl in resource.acls] == [
        (ALICE, Operation.ALTER),
        (ALICE, Operation.CREATE),
        ("User:b", Operation.ALTER),
    ]
