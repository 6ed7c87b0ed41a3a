"""The authorizer of a node: its creation from settings, its audit log, and how it follows the metadata."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import loggers
from ottla.broker.acl_view import AclView
from ottla.broker.authorization import (
    FILTERED,
    SILENT,
    Audit,
    allowed,
    allowed_by_type,
    allowed_names,
    allowed_on_cluster,
    audit_logger,
)
from ottla.broker.authorizers import ForeignAuthorizer, create_authorizer
from ottla.broker.context import RequestContext
from ottla.broker.security import Security, create_authorization
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import BrokerConfig
from ottla.config.authorization import STANDARD, AuthorizerSettings
from ottla.metadata.acls import record_of
from ottla.metadata.image import MetadataImage
from ottla.protocol.metadata_records import AccessControlEntryRecord
from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from ottla.security.authorizer import Rules, StandardAuthorizer

FETCH = 1
READ, TOPIC = Operation.READ, ResourceType.TOPIC
RULE = Acl(Pattern(TOPIC, "orders"), "User:bob", "*", READ, PermissionType.ALLOW)


def request_of(principal: str) -> RequestContext:
    connection = SimpleNamespace(principal=principal, remote_host="10.0.0.7", listener="PLAINTEXT")
    return RequestContext(cast("Any", connection), FETCH, 13, 1, "client")


def broker_with(authorizer: Any) -> Any:
    return SimpleNamespace(security=Security(authorizer))


def standard(*rules: Acl) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(Rules(frozenset({"User:admin"})))
    for rule in rules:
        authorizer.add(rule)
    authorizer.finish_loading()
    return authorizer


class Shell:
    """The metadata of a node, without a log."""

    def __init__(self, *rules: Acl, is_active_controller: bool = False) -> None:
        self.image = MetadataImage(acls=records(*rules))
        self.is_active_controller = is_active_controller
        self.node_id = 1
        self.listeners: list[Any] = []

    def subscribe(self, listener: Any) -> None:
        self.listeners.append(listener)
        listener(None, self.image)

    def commit(self, *rules: Acl) -> None:
        old, self.image = self.image, MetadataImage(acls=records(*rules))
        for listener in self.listeners:
            listener(old, self.image)


def shell(*rules: Acl, **options: bool) -> Any:
    return Shell(*rules, **options)


def records(*rules: Acl) -> dict[bytes, AccessControlEntryRecord]:
    return {bytes([number]) * 16: record_of(bytes([number]) * 16, rule) for number, rule in enumerate(rules)}


# -- the audit log -------------------------------------------------------------------------------------------------


def test_audit_log_has_kafkas_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, audit_logger.name)
    broker = broker_with(standard(RULE))
    assert allowed(broker, request_of("User:bob"), READ, TOPIC, "orders", Audit(references=3))
    assert not allowed(broker, request_of("User:eve"), READ, TOPIC, "orders")
    assert not allowed_on_cluster(broker, request_of("User:bob"), Operation.ALTER)
    start = "Principal = User:bob is Allowed operation = READ from host = 10.0.0.7 on resource = Topic:LITERAL:orders"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", f"{start} for request = Fetch with resourceRefCount = 3 based on rule MatchingAcl(acl={RULE})"),
        (
            "INFO",
            (
                "Principal = User:eve is Denied operation = READ from host = 10.0.0.7 on resource ="
                " Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
            ),
        ),
        (
            "INFO",
            (
                "Principal = User:bob is Denied operation = ALTER from host = 10.0.0.7 on resource ="
                " Cluster:LITERAL:kafka-cluster for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
            ),
        ),
    ]


def test_filters_of_listings_are_logged_at_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, audit_logger.name)
    broker, bob = broker_with(standard(RULE)), request_of("User:bob")
    names = ["orders", "other", "orders"]
    assert allowed_names(broker, bob, READ, TOPIC, names, FILTERED) == {"orders"}
    assert not allowed(broker, bob, READ, TOPIC, "other", SILENT)
    [line] = [record.getMessage() for record in caplog.records]
    assert "orders for request" in line
    assert "resourceRefCount = 2" in line
    caplog.set_level(loggers.TRACE, audit_logger.name)
    assert not allowed(broker, bob, READ, TOPIC, "other", SILENT)
    assert caplog.records[-1].levelno == loggers.TRACE


def test_level_of_the_audit_log_can_be_changed() -> None:
    assert "kafka.authorizer.logger" in loggers.levels()
    try:
        loggers.alter(1, "1", [loggers.Change(audit_logger.name, loggers.SET, "debug")], apply=True)
        assert audit_logger.isEnabledFor(logging.DEBUG)
    finally:
        audit_logger.setLevel(logging.NOTSET)


def test_everything_is_allowed_without_an_authorizer() -> None:
    broker, anyone = broker_with(None), request_of("User:ANONYMOUS")
    assert allowed(broker, anyone, READ, TOPIC, "orders")
    assert allowed_on_cluster(broker, anyone, Operation.ALTER)
    assert allowed_by_type(broker, anyone, Operation.WRITE, TOPIC)
    assert allowed_names(broker, anyone, READ, TOPIC, ["a", "b"]) == {"a", "b"}


# -- following the metadata ----------------------------------------------------------------------------------------


def test_authorizer_follows_the_difference_of_images() -> None:
    authorizer = standard()
    view = AclView(authorizer)
    other = RULE._replace(principal="User:eve")
    first = records(RULE, other)
    view.publish({}, first)
    assert authorizer._acls == {RULE, other}
    second = {acl_id: record for acl_id, record in first.items() if record.principal != "User:eve"}
    view.publish(first, second)
    assert authorizer._acls == {RULE}
    assert not authorizer.authorize("User:eve", "10.0.0.7", READ, TOPIC, "orders")


def test_rule_of_two_records_ends_with_the_last_of_them() -> None:
    authorizer = standard()
    view = AclView(authorizer)
    twice = records(RULE, RULE)
    view.publish({}, twice)
    once = dict(list(twice.items())[:1])
    view.publish(twice, once)
    assert authorizer._acls == {RULE}
    replaced = records(RULE._replace(operation=Operation.WRITE))
    view.publish(once, replaced)
    assert [acl.operation for acl in authorizer._acls] == [Operation.WRITE]
    view.publish(replaced, {})
    assert not authorizer._acls


@pytest.mark.parametrize("leads", [True, False])
def test_only_super_users_are_allowed_until_a_commit_is_known(leads: bool) -> None:
    """A node that does not lead the quorum has only the records of its own log at first."""
    authorizer = StandardAuthorizer(Rules(frozenset({"User:admin"})))
    metadata = shell(RULE, is_active_controller=leads)
    AclView(authorizer).follow(metadata)
    assert authorizer.authorize("User:bob", "10.0.0.7", READ, TOPIC, "orders") == leads
    assert authorizer.authorize("User:admin", "10.0.0.7", READ, TOPIC, "orders")
    metadata.commit(RULE, RULE._replace(principal="User:eve"))
    assert authorizer.authorize("User:bob", "10.0.0.7", READ, TOPIC, "orders")
    assert authorizer.authorize("User:eve", "10.0.0.7", READ, TOPIC, "orders")
    metadata.commit(RULE)
    assert not authorizer.authorize("User:eve", "10.0.0.7", READ, TOPIC, "orders")


def test_changes_of_rules_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    metadata = shell(RULE)
    AclView(standard()).follow(metadata)
    caplog.set_level(logging.INFO, "ottla.broker.acl_view")
    caplog.clear()
    metadata.commit(RULE, RULE._replace(principal="User:eve"))
    metadata.commit(*(RULE._replace(host=f"10.0.0.{number}") for number in range(150)))
    added, *others = [line.removeprefix("[QuorumController id=1] Replayed ") for line in caplog.messages]
    assert added.startswith(
        "AccessControlEntryRecord for AQEBAQEBAQEBAQEBAQEBAQ, setting StandardAcl[resourceType=TOPIC"
    )
    assert "principal=User:eve" in added
    assert sum(line.startswith("AccessControlEntryRecord") for line in others) == 100
    assert sum(line.startswith("RemoveAccessControlEntryRecord for") for line in others) == 2
    assert others[-1] == "50 more records of type AccessControlEntryRecord."


def test_waiters_are_notified_when_their_rules_are_published() -> None:
    view = AclView(standard())
    known, unknown = view.when(lambda rules: RULE in rules), view.when(lambda rules: RULE not in rules)
    assert (known.done, unknown.done) == (False, True)
    given_up = view.when(lambda rules: False)
    given_up.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    view.publish({}, records(RULE))
    assert known.done
    assert not view._waiting


# -- settings ------------------------------------------------------------------------------------------------------


def test_standard_authorizer_has_its_settings() -> None:
    config = BrokerConfig(
        {
            "authorizer.class.name": STANDARD,
            "super.users": " User:admin ; User:CN=broker,O=a:b;",
            "allow.everyone.if.no.acl.found": "TRUE",
        }
    )
    assert not config.warnings
    authorizer, view = create_authorization(config, shell())
    assert isinstance(authorizer, StandardAuthorizer)
    assert authorizer.rules == Rules(frozenset({"User:admin", "User:CN=broker,O=a:b"}), allow_without_acl=True)
    assert view is not None
    assert create_authorization(BrokerConfig({}), shell()) == (None, None)


class OnlyOwnTopics:
    """Allows each user the topics that begin with its name."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def authorize(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Any:
        if name == "broken":
            raise ValueError(name)
        if name == "truthy":
            return "yes"
        return kind is ResourceType.TOPIC and name.startswith(principal.removeprefix("User:"))


class OwnRules(StandardAuthorizer):
    """A subclass of the standard authorizer, which is created with the settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(Rules(frozenset({settings["own.users"]})))


def test_object_in_python_decides(caplog: pytest.LogCaptureFixture) -> None:
    static = {"authorizer.class.name": f"{__name__}:OnlyOwnTopics", "super.users": "User:admin"}
    settings = BrokerConfig(static).authorizer
    assert settings is not None
    authorizer = create_authorizer(settings, static)
    assert isinstance(authorizer, ForeignAuthorizer)
    assert authorizer._wrapped.settings == static
    for principal, name, is_allowed in (
        ("User:bob", "bob-orders", True),
        ("User:bob", "orders", False),
        ("User:bob", "broken", False),
        ("User:bob", "truthy", False),
        ("User:admin", "broken", True),
    ):
        assert authorizer.authorize(principal, "10.0.0.7", READ, TOPIC, name) == is_allowed, name
    assert "The authorizer raised; the request is denied" in caplog.text
    assert not authorizer.authorize_by_resource_type("User:bob", "10.0.0.7", READ, TOPIC)
    assert authorizer.authorize_by_resource_type("User:admin", "10.0.0.7", READ, TOPIC)


def test_subclass_of_the_standard_authorizer_follows_the_rules() -> None:
    config = BrokerConfig({"authorizer.class.name": f"{__name__}:OwnRules", "own.users": "User:me"})
    authorizer, view = create_authorization(config, shell())
    assert isinstance(authorizer, OwnRules)
    assert view is not None
    view.publish({}, records(RULE))
    view.finish_loading()
    assert authorizer.authorize("User:bob", "10.0.0.7", READ, TOPIC, "orders")
    assert authorizer.authorize("User:me", "10.0.0.7", READ, TOPIC, "payments")


@pytest.mark.parametrize("name", ["no_such_module:x", f"{__name__}:missing", "no-such-entry-point", "builtins:dict"])
def test_authorizer_that_cannot_be_loaded_stops_the_start(name: str) -> None:
    with pytest.raises(KafkaError, match=r"authorizer\.class\.name=") as caught:
        create_authorizer(AuthorizerSettings(name, frozenset(), allow_without_acl=False), {})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert name in str(caught.value)


def test_prefix_pattern_of_a_record_is_not_a_literal_one() -> None:
    authorizer = standard()
    view = AclView(authorizer)
    prefix = RULE._replace(pattern=Pattern(TOPIC, "ord", PatternType.PREFIXED))
    view.publish({}, records(prefix))
    assert authorizer.authorize("User:bob", "10.0.0.7", READ, TOPIC, "orders")
