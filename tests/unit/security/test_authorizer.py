"""Decisions by access control lists, compared with a naive reading of KIP-11 and KIP-290."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import MAX_CACHED_DECISIONS, Rules, StandardAuthorizer

HOST = "10.0.0.7"
ALICE = "User:alice"
NAMES = ("*", "a", "ab", "abc", "b", "hardcode", "h", "kafka-cluster")
# Many rules of an example match its questions, or no rule would contradict another one.
PRINCIPALS = (ALICE, ALICE, ALICE, "User:*", "User:*", "User:bob", "Group:alice", "User:ANONYMOUS")
HOSTS = ("*", "*", HOST, HOST, "10.0.0.8")
TYPES = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP)
READING = (Operation.READ, Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE, Operation.ALL)
OTHERS = (Operation.WRITE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.CREATE)
OPERATIONS = READING + OTHERS

patterns = st.builds(
    Pattern,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
acls = st.builds(
    Acl,
    patterns,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from((PermissionType.DENY, PermissionType.ALLOW)),
)
questions = st.tuples(
    st.sampled_from((ALICE, ALICE, ALICE, "User:bob", "User:admin")),
    st.sampled_from((HOST, HOST, "10.0.0.9")),
    st.sampled_from([each for each in OPERATIONS if each != Operation.ALL]),
    st.sampled_from(TYPES),
    st.sampled_from(("a", "ab", "abc", "abcd", "b", "c", "hardcode")),
)
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def rule(
    name: str,
    operation: Operation = Operation.READ,
    permission: PermissionType = PermissionType.ALLOW,
    principal: str = ALICE,
    host: str = "*",
    pattern_type: PatternType = PatternType.LITERAL,
    resource_type: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(Pattern(resource_type, name, pattern_type), principal, host, operation, permission)


def authorizer_of(rules: Iterable[Acl], **options: bool) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(Rules(frozenset({"User:admin"}), **options))
    for each in rules:
        authorizer.add(each)
    authorizer.finish_loading()
    return authorizer


def reads(authorizer: StandardAuthorizer, name: str, principal: str = ALICE, host: str = HOST) -> bool:
    return authorizer.authorize(principal, host, Operation.READ, ResourceType.TOPIC, name)


def by_the_rules(
    rules: Iterable[Acl], default: bool, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool:
    """Decide without an index: each rule is compared in each field."""
    if principal == "User:admin":
        return True
    on_resource = [each for each in rules if each.pattern.matches(kind, name)]
    if not on_resource:
        return default
    mine = [each for each in on_resource if each.principal in (principal, "User:*") and each.host in (host, "*")]
    if any(r.permission == PermissionType.DENY and r.operation in (operation, Operation.ALL) for r in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLYING.get(operation, set())
    return any(each.permission == PermissionType.ALLOW and each.operation in enough for each in mine)


@settings(max_examples=200)
@given(
    st.lists(acls, min_size=1, max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
    st.lists(questions, min_size=3, max_size=12),
    st.booleans(),
)
def test_decisions_follow_the_rules(
    rules: list[Acl], removed: list[int], asked: list[tuple[str, str, Operation, ResourceType, str]], default: bool
) -> None:
    authorizer = authorizer_of(rules, allow_without_acl=default)
    left = dict.fromkeys(rules)
    for position in (None, *removed):
        if position is not None and position < len(rules):
            authorizer.remove(rules[position])
            left.pop(rules[position], None)
        for question in asked:
            expected = by_the_rules(left, default, *question)
            decision = authorizer.decide(*question)
            assert decision.is_allowed == expected
            assert authorizer.decide(*question) == decision
            if decision.acl is not None:
                assert decision.acl in left
    assert len(authorizer) == len(left)


@settings(max_examples=200)
@given(st.lists(acls, min_size=1, max_size=8), questions)
def test_some_resource_of_a_type_is_allowed(
    rules: list[Acl], question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    principal, host, operation, kind, _ = question
    # Operations that no other operation implies: Kafka ignores implied operations here.
    operation = Operation.WRITE if operation in IMPLYING else operation
    authorizer = authorizer_of(rules)
    probes = {f"{each}{end}" for each in NAMES for end in ("", "x", "bx")} - {"*"}
    allowed = any(by_the_rules(rules, False, principal, host, operation, kind, name) for name in probes)
    assert authorizer.authorize_by_resource_type(principal, host, operation, kind) == allowed


def test_denied_prefix_denies_longer_patterns_of_the_type() -> None:
    allowed = [rule("abc"), rule("abd", pattern_type=PatternType.PREFIXED)]
    denied = rule("ab", permission=PermissionType.DENY, pattern_type=PatternType.PREFIXED)
    question = (ALICE, HOST, Operation.READ, ResourceType.TOPIC)
    assert authorizer_of(allowed).authorize_by_resource_type(*question)
    assert not authorizer_of([*allowed, denied]).authorize_by_resource_type(*question)
    assert authorizer_of([*allowed, denied, rule("a", pattern_type=PatternType.PREFIXED)]).authorize_by_resource_type(
        *question
    )


def test_before_the_rules_are_loaded_only_super_users_are_allowed() -> None:
    authorizer = StandardAuthorizer(Rules(frozenset({"User:admin"}), allow_without_acl=True))
    authorizer.add(rule("orders"))
    assert reads(authorizer, "orders", "User:admin")
    assert not reads(authorizer, "orders")
    assert not authorizer.authorize_by_resource_type(ALICE, HOST, Operation.READ, ResourceType.TOPIC)
    authorizer.finish_loading()
    assert reads(authorizer, "orders")


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1"])
@pytest.mark.parametrize("principal", [ALICE, "User:*"])
def test_ipv6_host_of_a_rule_may_have_the_form_of_java(written: str, principal: str) -> None:
    denied = rule("orders", permission=PermissionType.DENY, host=written, principal=principal)
    authorizer = authorizer_of([rule("*"), denied])
    assert not reads(authorizer, "orders", host="::1")
    assert reads(authorizer, "orders", host="::2")
    assert reads(authorizer, "other", host="::1")


def test_pattern_of_a_later_version_is_not_the_wildcard() -> None:
    assert not reads(authorizer_of([rule("*", pattern_type=PatternType.UNKNOWN)]), "orders")


def test_a_change_takes_effect_at_the_next_decision() -> None:
    authorizer = authorizer_of([rule("orders")])
    assert reads(authorizer, "orders")
    authorizer.remove(rule("orders"))
    assert not reads(authorizer, "orders")
    authorizer.add(rule("ord", pattern_type=PatternType.PREFIXED))
    assert reads(authorizer, "orders")
    authorizer.add(rule("*", permission=PermissionType.DENY, host=HOST))
    assert not reads(authorizer, "orders")
    assert reads(authorizer, "orders", host="10.0.0.8")


def test_cached_decisions_have_an_upper_bound() -> None:
    authorizer = authorizer_of([rule("*")])
    for number in range(MAX_CACHED_DECISIONS + 10):
        assert reads(authorizer, str(number))
    assert len(authorizer._decisions) <= MAX_CACHED_DECISIONS
    before = len(authorizer._decisions)
    assert reads(authorizer, "x" * 30_000)
    assert len(authorizer._decisions) == before


def test_text_of_a_decision_is_kafkas() -> None:
    authorizer = authorizer_of([rule("orders")])
    decision = authorizer.decide(ALICE, HOST, Operation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert str(decision) == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=LITERAL,"
        " principal=User:alice, host=*, operation=READ, permissionType=ALLOW])"
    )
    texts = [
        str(authorizer.decide(principal, HOST, Operation.WRITE, ResourceType.TOPIC, "orders"))
        for principal in ("User:admin", ALICE)
    ]
    assert texts == ["SuperUser", "DefaultDeny"]
