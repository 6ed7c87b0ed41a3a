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
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, finish
from ottla.config import BrokerConfig
from ottla.controller.state import Outcome
from ottla.metadata.acls import acl_of
from ottla.metadata.image import TOPIC as TOPIC_KIND
from ottla.metadata.image import MetadataImage
from ottla.metadata.mirrors import MIRRORING, STATE_SETTING, STOPPED, TopicNames
from ottla.metadata.snapshot import snapshot_records
from ottla.network.errors import ConnectFailed
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from tests.storage.helpers import ManualClock
from tests.unit.controller.support import Cluster

CONFIG = BrokerConfig({"node.id": "1", "log.dirs": "/unused", "listeners": "PLAINTEXT://127.0.0.1:0"})
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


class FinishingWorker:
    """Finishes work at once."""

    def submit(self, work: Slices[Any]) -> Completion[Any]:
        return Completion.of(finish(work))


class Target:
    """A controller, and the rules of a source."""

    def __init__(self, *rules: Acl) -> None:
        self.cluster, self.clock = Cluster(), ManualClock()
        self.rules = list(rules)
        self.asked = 0
        self.created: list[list[PermissionType]] = []
        self.error = ErrorCode.NONE
        self.lost: int | None = None
        self.fails_after: int | None = None
        self.nodes: dict[int, list[Acl] | None] = {1: None}
        self.decides, self.leader = True, (100, None)
        self.source = SimpleNamespace(ask=self._ask, nodes=self.nodes, cluster_id="A")
        self.copier = self.start()

    def start(self, mirror: str = "us") -> AclCopier:
        """A mirror that begins now, e.g. after the failure of the active controller."""
        node = SimpleNamespace(clock=self.clock, metadata=self, node_id=1)
        node.settings, node.schedulers = SimpleNamespace(static=CONFIG), SimpleNamespace(worker=FinishingWorker())
        source = cast("Source", self.source)
        self.copier = AclCopier(cast("AclPorts", node), mirror, source, re.compile("bill.*"), TopicNames("us."))
        return self.copier

    async def _ask(self, request: DescribeAclsRequest, node_id: int | None) -> DescribeAclsResponse:
        """Node `node_id` has the rules in `nodes`, by default the rules of the source."""
        self.asked += 1
        rules = self.rules if node_id is None else self.nodes[node_id]
        if rules is None:
            rules = self.rules
        if self.lost is not None and node_id == self.lost:
            raise ConnectFailed("down")
        rows = [each for each in rules if each.pattern.resource_type == request.resource_type_filter]
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
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
        outcome = finish(decide(self.cluster.controller))
        added = (record for record in outcome.records if isinstance(record, m.AccessControlEntryRecord))
        self.created.append([PermissionType(record.permission_type) for record in added])
        done = Completion.of(self.cluster.do(outcome))
        self.watch()
        return done

    def watch(self) -> None:
        """Check an invariant of the tests after each change."""

    @property
    def image(self) -> MetadataImage:
        """The metadata of the node."""
        return self.cluster.controller.image

    def copy(self, **states: str) -> set[tuple[str, Operation]]:
        """The rules of this cluster after one copy."""
        named = {name.replace("_", "."): state for name, state in states.items()}
        settings = [
            m.ConfigRecord(resource_type=TOPIC_KIND, resource_name=name, name=STATE_SETTING, value=state)
            for name, state in named.items()
        ]
        known = self.cluster.controller.image.topics_by_name
        new = [name for name in named if name not in known]
        topics = [m.TopicRecord(name, bytes(15) + bytes([len(known) + i + 1])) for i, name in enumerate(new)]
        self.cluster.do(Outcome([*topics, *settings], None))
        asyncio.run(self.copier.copy(named, decides=self.decides))
        return {(each.pattern.name, each.operation) for each in self.here}

    def copy_later(self, **states: str) -> set[tuple[str, Operation]]:
        """The rules after a copy that is a minute later."""
        self.clock.now += INTERVAL_MS
        return self.copy(**states)

    @property
    def here(self) -> list[Acl]:
        return list(map(acl_of, self.cluster.controller.image.acls.values()))

    def create(self, acl: Acl) -> None:
        """An operator of this cluster creates a rule."""
        self.cluster.do(self.cluster.controller.create_acls(CreateAclsRequest(creations=[creation_of(acl)])))


def test_all_operations_are_copied_for_the_promotion() -> None:
    target = Target(rule("orders", operation=Operation.WRITE), rule("orders", operation=Operation.ALL))
    assert target.copy(us_orders=MIRRORING) == {("us.orders", Operation.WRITE), ("us.orders", Operation.ALL)}
    assert target.copier.problem == ""


def test_rules_that_deny_are_created_first() -> None:
    target = Target(rule("*"), rule("*", permission=DENY, operation=Operation.WRITE))
    target.copy(us_orders=MIRRORING, us_payments=MIRRORING)
    assert [created for created in target.created if created] == [[DENY, DENY], [ALLOW, ALLOW]]


def test_rules_are_read_every_minute_and_for_new_topics() -> None:
    target = Target(rule("*"))
    assert len(target.copy(us_orders=MIRRORING)) == 1
    asked = target.asked
    target.copy(us_orders=MIRRORING)
    assert target.asked == asked
    assert len(target.copy(us_orders=MIRRORING, us_payments=MIRRORING)) == 2
    target.clock.now += INTERVAL_MS
    target.rules.append(rule("orders", operation=Operation.DESCRIBE))
    assert len(target.copy(us_orders=MIRRORING, us_payments=MIRRORING)) == 3


def test_rules_that_the_source_has_deleted_are_deleted_and_rules_of_this_cluster_are_not() -> None:
    target = Target(rule("orders"), rule("*", operation=Operation.WRITE), rule("billing", GROUP))
    target.create(rule("us.orders"))
    target.create(rule("us.orders", operation=Operation.DELETE))
    copied = {("us.orders", Operation.WRITE), ("billing", Operation.READ)}
    own = {("us.orders", Operation.READ), ("us.orders", Operation.DELETE)}
    assert target.copy(us_orders=MIRRORING) == copied | own
    target.rules = [rule("billing", GROUP)]
    assert target.copy_later(us_orders=MIRRORING) == own | {("billing", Operation.READ)}
    # What was copied is in the metadata: a mirror that begins later knows it.
    target.rules = []
    target.start()
    assert target.copy(us_orders=MIRRORING) == own


def test_copied_rule_that_an_operator_creates_too_is_not_deleted() -> None:
    target = Target(rule("orders"))
    target.copy(us_orders=MIRRORING)
    target.create(rule("us.orders"))
    assert target.here == [rule("us.orders")]
    target.rules = []
    assert target.copy_later(us_orders=MIRRORING) == {("us.orders", Operation.READ)}


def test_rules_of_promoted_topics_and_of_another_source_are_not_deleted() -> None:
    target = Target(rule("orders"), rule("payments"))
    both = target.copy(us_orders=MIRRORING, us_payments=MIRRORING)
    target.rules = []
    target.source.cluster_id = "B"
    assert target.copy_later(us_orders=MIRRORING, us_payments=MIRRORING) == both
    target.source.cluster_id = "A"
    assert target.copy_later(us_orders=STOPPED, us_payments=MIRRORING) == {("us.orders", Operation.READ)}
    target.source.cluster_id = ""
    assert target.copy_later(us_orders=MIRRORING) == {("us.orders", Operation.READ)}


def test_topic_that_is_promoted_during_the_copy_keeps_its_rules() -> None:
    target = Target(rule("orders"))
    target.copy(us_orders=MIRRORING)
    acl_ids = list(target.cluster.controller.image.acls)
    opened = m.ConfigRecord(resource_type=TOPIC_KIND, resource_name="us.orders", name=STATE_SETTING, value=STOPPED)
    target.cluster.do(Outcome([opened], None))
    target.cluster.do(target.cluster.controller.withdraw_acls("us@A", acl_ids))
    assert target.here == [rule("us.orders")]


def test_group_rule_of_two_mirrors_is_deleted_with_the_last_source() -> None:
    target = Target(rule("billing", GROUP))
    target.copy(us_orders=MIRRORING)
    target.start("other")
    assert target.copy(us_orders=MIRRORING) == {("billing", Operation.READ)}
    assert len(target.here) == 1
    target.rules = []
    assert target.copy_later(us_orders=MIRRORING) == {("billing", Operation.READ)}
    target.start("us")
    assert target.copy(us_orders=MIRRORING) == set()


def test_rule_stays_while_a_node_of_the_source_has_it_or_the_source_returns_an_error() -> None:
    target = Target(rule("orders"))
    before = target.copy(us_orders=MIRRORING)
    target.rules, target.nodes[2] = [], [rule("orders")]
    assert target.copy_later(us_orders=MIRRORING) == before
    target.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    target.nodes[2] = None
    assert target.copy_later(us_orders=MIRRORING) == before
    target.error = ErrorCode.NONE
    # A node that is down does not keep a rule alive.
    target.nodes[2], target.lost = [rule("orders")], 2
    assert target.copy_later(us_orders=MIRRORING) == set()


def test_change_of_rules_never_allows_what_both_clusters_forbid_and_goes_on_after_any_failure() -> None:
    """At first alice may not write, and later she may not read; at no time she may do both."""
    allowed_first, forbidden_first = rule("orders"), rule("orders", operation=Operation.WRITE, permission=DENY)
    allowed_later = rule("orders", operation=Operation.WRITE)
    forbidden_later = rule("orders", permission=DENY)

    class Watched(Target):
        def watch(self) -> None:
            rules = {acl._replace(pattern=Pattern(TOPIC, "orders")) for acl in self.here}
            reads = allowed_first in rules and forbidden_later not in rules
            writes = allowed_later in rules and forbidden_first not in rules
            assert not (reads and writes)

    for steps in range(8):
        target = Watched(allowed_first, forbidden_first)
        target.copy(us_orders=MIRRORING)
        target.rules = [allowed_later, forbidden_later]
        target.fails_after = steps
        target.copy_later(us_orders=MIRRORING)
        target.fails_after = None
        target.start().problem = ""
        target.copy(us_orders=MIRRORING)
        names = {(acl.operation, acl.permission) for acl in target.here}
        assert names == {(Operation.WRITE, ALLOW), (Operation.READ, DENY)}


def test_promoted_topics_have_rules_of_their_own() -> None:
    target = Target(rule("*"))
    assert target.copy(us_orders=STOPPED) == set()
    assert target.asked == 0


def test_source_without_rules_and_too_many_rules_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(rule("*"))
    target.error = ErrorCode.SECURITY_DISABLED
    assert target.copy(us_orders=MIRRORING) == set()
    assert "SECURITY_DISABLED; it has no authorizer" in target.copier.problem
    target.error = ErrorCode.NONE
    monkeypatch.setattr(module, "MOST_RULES", 1)
    assert target.copy(us_orders=MIRRORING, us_payments=MIRRORING) == set()
    assert "more than 1" in target.copier.problem


def test_rule_that_the_controller_refuses_is_a_problem_and_others_are_created() -> None:
    target = Target(rule("orders", operation=Operation.UNKNOWN), rule("orders"))
    assert target.copy(us_orders=MIRRORING) == {("us.orders", Operation.READ)}
    assert "Invalid operation" in target.copier.problem


def test_stand_in_of_the_controller_changes_nothing_and_finds_the_same_problems() -> None:
    target = Target(rule("orders", operation=Operation.UNKNOWN), rule("orders"))
    target.decides = False
    assert target.copy(us_orders=MIRRORING) == set()
    assert "Invalid operation" in target.copier.problem
    target.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert target.copy_later(us_orders=MIRRORING) == set()
    assert "CLUSTER_AUTHORIZATION_FAILED" in target.copier.problem
    target.error, target.rules = ErrorCode.NONE, []
    assert target.copy_later(us_orders=MIRRORING) == set()
    assert target.copier.problem == ""


def test_stand_in_reports_rules_that_the_controller_does_not_create_or_delete() -> None:
    target = Target(rule("orders"))
    target.decides = False
    late = "node 100, has not copied all changes of access rules (1 missing)"

    def problems() -> list[bool]:
        """Whether the problem is reported in each of the next minutes."""
        found = []
        for _ in range(4):
            target.copy_later(us_orders=MIRRORING)
            found.append(late in target.copier.problem)
        return found

    assert problems() == [False, False, False, True]
    # The controller copies it.
    target.decides = True
    before = target.copy_later(us_orders=MIRRORING)
    target.decides = False
    target.rules = []
    assert problems() == [False, False, False, True], "a right that was withdrawn at the source is still here"
    assert target.copy(us_orders=MIRRORING) == before


def test_rules_that_deny_are_deleted_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHANGED_AT_ONCE", 1)
    target = Target(rule("orders"), rule("orders", permission=DENY))
    target.copy(us_orders=MIRRORING)
    target.rules, seen = [], []
    monkeypatch.setattr(target, "watch", lambda: seen.append({acl.permission for acl in target.here}))
    assert target.copy_later(us_orders=MIRRORING) == set()
    assert {ALLOW, DENY} in seen
    assert {ALLOW} not in seen


def test_created_rules_are_equal_to_the_sources() -> None:
    cluster = Cluster()
    wanted = rule("orders", operation=Operation.DESCRIBE_CONFIGS, permission=DENY)
    cluster.do(cluster.controller.create_acls(CreateAclsRequest(creations=[creation_of(wanted)])))
    assert [acl_of(record) for record in cluster.controller.image.acls.values()] == [wanted]


def test_snapshot_and_log_retain_the_mirrors_of_a_rule() -> None:
    target = Target(rule("orders"))
    target.copy(us_orders=MIRRORING)
    [record] = target.cluster.controller.image.acls.values()
    assert record.mirrors == ["us@A"]
    assert decode_metadata_record(encode_metadata_record(record, 0)) == record
    assert record in list(snapshot_records(target.cluster.controller.image))
