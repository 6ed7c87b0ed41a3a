"""`ottla security acl` and `ottla security check` on a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclPermission, AclResource, AclResourceType, PatternType
from ottla.config.authorization import STANDARD
from ottla.tools.admin import acls
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Run

SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
READ, WRITE, DESCRIBE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """A broker with an authorizer."""
    with ForkedOttla(tmp_path_factory.mktemp("guarded"), SETTINGS) as process:
        yield process
    process.assert_no_traceback()


@pytest.fixture
def ottla(plain: Run, guarded: OttlaProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", guarded.bootstrap)
    return plain


@pytest.fixture
def admin(guarded: OttlaProcess) -> Iterator[Admin]:
    """An admin client; the rules of a test are removed after it."""
    with Admin(guarded.bootstrap, default_api_timeout_ms=20_000) as admin:
        yield admin
        rules = admin.describe_acls()
        if rules:
            admin.delete_acls(rules)


def test_rules_are_added_listed_and_removed(ottla: Run, admin: Admin) -> None:
    added = ottla("security", "acl", "add", "ann", "topic:orders", "topic:bills-*", "--operation", "read,Write")
    assert added.code == 0
    assert "allow User:ann read on topic:orders: added" in added.out
    orders, bills = AclResource.topic("orders"), AclResource.topic("bills-", prefixed=True)
    assert set(admin.describe_acls()) == {
        Acl(resource, "User:ann", operation) for resource in (orders, bills) for operation in (READ, WRITE)
    }
    denied = ottla("security", "acl", "add", "*", "topic:*", "--operation", "all", "--deny", "--host", "10.0.0.7")
    assert denied.out == "deny User:* all on topic:* from 10.0.0.7: added\n"
    everything = ottla("security", "acl", "list", "--json").objects
    assert everything[0] == {
        "principal": "User:*",
        "permission": "deny",
        "operation": "all",
        "resource": "topic:*",
        "host": "10.0.0.7",
    }
    assert [row["resource"] for row in everything[1:]] == ["topic:bills-*"] * 2 + ["topic:orders"] * 2
    assert len(ottla("security", "acl", "list", "ann", "--json").objects) == 4
    found = ottla("security", "acl", "list", "--resource", "topic:bills-2026", "--json").objects
    assert {row["resource"] for row in found} == {"topic:bills-*", "topic:*"}
    removed = ottla("security", "acl", "remove", "ann", "--resource", "topic:bills-*", "--operation", "read", "--yes")
    assert removed.out == "allow User:ann read on topic:bills-*: removed\n"
    assert ottla("security", "acl", "remove", "ann", "--yes").code == 0
    assert [rule.principal for rule in admin.describe_acls()] == ["User:*"]


def test_shortcuts_add_the_rules_of_kafka_acls(ottla: Run, admin: Admin) -> None:
    assert ottla("security", "acl", "add", "p", "topic:t", "transactional-id:tx", "cluster", "--producer").code == 0
    assert ottla("security", "acl", "add", "c", "topic:t", "group:g*", "--consumer").code == 0
    topic, group = AclResource.topic("t"), AclResource.group("g", prefixed=True)
    transactional = AclResource.transactional_id("tx")
    assert set(admin.describe_acls()) == {
        *(Acl(topic, "User:p", operation) for operation in (WRITE, DESCRIBE, CREATE)),
        *(Acl(transactional, "User:p", operation) for operation in (WRITE, DESCRIBE)),
        Acl(AclResource.cluster(), "User:p", AclOperation.IDEMPOTENT_WRITE),
        *(Acl(topic, "User:c", operation) for operation in (READ, DESCRIBE)),
        Acl(group, "User:c", READ),
    }


def test_check_names_the_rule_that_decides(ottla: Run, admin: Admin) -> None:
    prefix = AclResource.topic("ord", prefixed=True)
    everyone = Acl(AclResource.topic("orders"), "User:*", READ, AclPermission.DENY, "10.0.0.7")
    admin.create_acls([Acl(prefix, "User:ann", READ), everyone])
    allowed = ottla("security", "check", "ann", "describe", "topic:orders")
    assert (allowed.code, allowed.out) == (0, "allowed by the rule: allow User:ann read on topic:ord*\n")
    here = ottla("security", "check", "ann", "read", "topic:orders", "--host", "10.0.0.7")
    assert (here.code, here.out) == (1, "denied by the rule: deny User:* read on topic:orders from 10.0.0.7\n")
    other = ottla("security", "check", "bob", "read", "topic:orders", "--json")
    assert (other.code, other.objects) == (1, [{"user": "User:bob", "allowed": False, "rule": None}])
    nothing = ottla("security", "check", "bob", "write", "topic:unknown")
    assert (nothing.code, nothing.out) == (1, "denied: the resource has no rules\n")
    assert "super.users" in nothing.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("acl add ann topic:orders", "one of --operation, --producer and --consumer"),
        ("acl add ann topics:orders --operation read", "write TYPE:NAME, where TYPE is topic, group"),
        ("acl add ann topic: --operation read", "has no name"),
        ("acl add ann cluster:mine --operation alter", "the cluster has no other name"),
        ("acl add ann topic:t --operation fly", "'fly' is not an operation"),
        ("acl add ann group:g --operation write", "no request needs write on a group"),
        ("acl add ann topic:t --consumer", "a consumer also needs a group"),
        ("acl add ann group:g --producer", "a producer uses topics and transactional ids"),
        ("acl add ann topic:t --producer --deny", "--deny needs --operation"),
        ("acl remove --yes", "name a USER or a --resource"),
        ("acl remove ghost --yes", "no rule is selected"),
        ("check ann all topic:t", "name one operation"),
        ("check ann read topic:t*", "is many resources"),
    ],
)
def test_errors_say_what_to_write(ottla: Run, words: str, problem: str) -> None:
    done = ottla("security", *words.split())
    assert done.code in (1, 2)
    assert problem in done.err


@pytest.mark.parametrize(
    "resource",
    [
        AclResource.topic("a:b"),
        AclResource.topic("*"),
        AclResource.cluster(),
        AclResource(AclResourceType.USER, "User:ann"),
        AclResource(AclResourceType.DELEGATION_TOKEN, "id"),
        AclResource.transactional_id("t", prefixed=True),
        AclResource(AclResourceType.GROUP, "g", PatternType.PREFIXED),
    ],
)
def test_words_of_a_resource_are_parsed_again(resource: AclResource) -> None:
    assert acls.resource_of(acls.resource_text(resource)) == resource


def test_commands_say_that_a_broker_has_no_authorizer(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ForkedOttla(tmp_path / "open") as process:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", process.bootstrap)
        done = plain("security", "acl", "add", "ann", "topic:t", "--operation", "read")
        assert (done.code, "No Authorizer is configured" in done.err) == (1, True)
