"""Access rules that a mirror copies: the rules of its topics, by the names that these have here, and of groups."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors import acls as module
from ottla.broker.mirrors.acls import INTERVAL_MS, AclCopier, AclPorts, creation_of, rules_here
from ottla.broker.mirrors.source import Source
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.slices import finish
from ottla.metadata.acls import acl_of
from ottla.metadata.mirrors import MIRRORING, STOPPED, TopicNames
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from tests.storage.helpers import ManualClock
from tests.unit.controller.support import Cluster

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
PREFIXED = PatternType.PREFIXED
DENY, ALLOW = PermissionType.DENY, PermissionType.ALLOW


def rule(
    name: str,
    kind: ResourceType = TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    operation: Operation = Operation.READ,
    permission: PermissionType = ALLOW,
) -> Acl:
    return Acl(Pattern(kind, name, pattern), "User:alice", "*", operation, permission)


def names(prefix: str, *rules: Acl, groups: str | None = None) -> list[str]:
    pattern = None if groups is None else re.compile(groups)
    found = list(rules_here(rules, ["apples", "orders", "orders.eu", "payments"], pattern, TopicNames(prefix)))
    assert all(
        each.pattern.pattern_type is PatternType.LITERAL for each in found if each.pattern.resource_type is TOPIC
    )
    return [each.pattern.name for each in found]


def test_rules_that_apply_to_copied_topics_become_literal_rules_for_their_names_here() -> None:
    assert names("us.", rule("orders"), rule("other")) == ["us.orders"]
    assert names("us.", rule("ord", pattern=PREFIXED)) == ["us.orders", "us.orders.eu"]
    assert names("", rule("z", pattern=PREFIXED), rule("apples", pattern=PREFIXED)) == ["apples"]
    assert names("", rule("*")) == ["apples", "orders", "orders.eu", "payments"]
    assert names("", rule("*", pattern=PREFIXED)) == []


def test_rules_of_groups_are_copied_by_the_pattern_and_no_other_rules() -> None:
    transactional = rule("orders", ResourceType.TRANSACTIONAL_ID)
    assert names("us.", rule("billing", GROUP), rule("audit", GROUP), transactional, groups="bill.*") == ["billing"]
    assert names("us.", rule("billing", GROUP)) == []


class Target:
    """A controller, and the rules of a source."""

    def __init__(self, *rules: Acl) -> None:
        self.cluster, self.clock = Cluster(), ManualClock()
        self.rules = list(rules)
        self.asked = 0
        self.created: list[list[PermissionType]] = []
        self.error = ErrorCode.NONE
        source = SimpleNamespace(ask=self._ask)
        node = SimpleNamespace(clock=self.clock, metadata=self)
        self.copier = AclCopier(cast("AclPorts", node), cast("Source", source), re.compile(".*"), TopicNames("us."))

    async def _ask(self, request: DescribeAclsRequest) -> DescribeAclsResponse:
        self.asked += 1
        rows = [each for each in self.rules if each.pattern.resource_type == request.resource_type_filter]
        resources = [
            DescribeAclsResource(
                int(each.pattern.resource_type),
                each.pattern.name,
                int(each.pattern.pattern_type),
                [AclDescription(each.principal, each.host, int(each.operation), int(each.permission))],
            )
            for each in rows
        ]
        return DescribeAclsResponse(error_code=self.error, error_message="no", resources=resources)

    def submit(self, decide: Any) -> Completion[Any]:
        outcome = finish(decide(self.cluster.controller))
        self.created.append([PermissionType(record.permission_type) for record in outcome.records])
        return Completion.of(self.cluster.do(outcome))

    def copy(self, **states: str) -> set[tuple[str, Operation]]:
        """The rules of this cluster after one copy."""
        asyncio.run(self.copier.copy({name.replace("_", "."): state for name, state in states.items()}))
        found = map(acl_of, self.cluster.controller.image.acls.values())
        return {(each.pattern.name, each.operation) for each in found}


def test_all_operations_are_copied_for_the_promotion() -> None:
    target = Target(rule("orders", operation=Operation.WRITE), rule("orders", operation=Operation.ALL))
    assert target.copy(us_orders=MIRRORING) == {("us.orders", Operation.WRITE), ("us.orders", Operation.ALL)}
    assert target.copier.problem == ""


def test_rules_that_deny_are_created_first() -> None:
    target = Target(rule("*"), rule("*", permission=DENY, operation=Operation.WRITE))
    target.copy(us_orders=MIRRORING, us_payments=MIRRORING)
    assert target.created == [[DENY, DENY, ALLOW, ALLOW]]


def test_rules_are_read_every_minute_and_for_new_topics() -> None:
    target = Target(rule("*"))
    assert len(target.copy(us_orders=MIRRORING)) == 1
    asked = target.asked
    target.copy(us_orders=MIRRORING)
    assert target.asked == asked
    assert len(target.copy(us_orders=MIRRORING, us_payments=MIRRORING)) == 2
    target.clock.now += INTERVAL_MS
    # A rule that the source has no more stays: it may be one of this cluster.
    target.rules = [rule("orders", operation=Operation.DESCRIBE)]
    assert len(target.copy(us_orders=MIRRORING, us_payments=MIRRORING)) == 3


def test_promoted_topics_have_rules_of_their_own() -> None:
    target = Target(rule("*"))
    assert target.copy(us_orders=STOPPED) == set()
    assert target.asked == 0


def test_source_without_rules_and_too_many_rules_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(rule("*"))
    target.error = ErrorCode.SECURITY_DISABLED
    assert target.copy(us_orders=MIRRORING) == set()
    assert "SECURITY_DISABLED" in target.copier.problem
    target.error = ErrorCode.NONE
    monkeypatch.setattr(module, "MOST_RULES", 1)
    assert target.copy(us_orders=MIRRORING, us_payments=MIRRORING) == set()
    assert "more than 1" in target.copier.problem


def test_rule_that_the_controller_refuses_is_a_problem_and_others_are_created() -> None:
    target = Target(rule("orders", operation=Operation.UNKNOWN), rule("orders"))
    assert target.copy(us_orders=MIRRORING) == {("us.orders", Operation.READ)}
    assert "Invalid operation" in target.copier.problem


def test_created_rules_are_equal_to_the_sources() -> None:
    cluster = Cluster()
    wanted = rule("orders", operation=Operation.DESCRIBE_CONFIGS, permission=DENY)
    cluster.do(cluster.controller.create_acls(CreateAclsRequest(creations=[creation_of(wanted)])))
    assert [acl_of(record) for record in cluster.controller.image.acls.values()] == [wanted]
