"""A secured directory of stock Kafka with access control lists, opened by Ottla with its own settings, and back.

`alice` does the same on both brokers: the outcomes, the rules and the lines of the audit log must be equal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.admin import Acl, AclFilter, AclOperation, AclPermission, AclResource, ConfigResource, ResourceType
from ottla.clients.errors import ClientError
from tests.clients.secured import sasl
from tests.clients.support import WAIT_S
from tests.conftest import TEST_PROPERTIES
from tests.peers.secured import SecuredKafka

from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
# Without this setting, Ottla requires signed tokens.
SETTINGS = TEST_PROPERTIES | {
    f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": UNSECURED
    for listener in ("sasl_plaintext", "sasl_ssl", "short")
}
AUDIT = "kafka.authorizer.logger"
TOPICS = ("orders-1", "orders-secret", "other")
ALICE, WRITE, DENY = "User:alice", AclOperation.WRITE, AclPermission.DENY
RULES = [
    Acl(AclResource.topic("orders-", prefixed=True), ALICE, AclOperation.ALL),
    Acl(AclResource.topic("orders-secret"), "User:*", WRITE, DENY),
    Acl(AclResource.topic("other"), ALICE, WRITE, host="10.0.0.7"),
    Acl(AclResource.group("*"), "User:*", AclOperation.READ),
    Acl(AclResource.cluster(), ALICE, AclOperation.IDEMPOTENT_WRITE),
]
ON_OTTLA = Acl(AclResource.topic("other"), ALICE, WRITE, host="127.0.0.1")


def outcome(action: Any) -> str:
    try:
        action()
    except ClientError as error:
        return type(error).__name__
    return "done"


def what_alice_may_do(kafka: SecuredKafka) -> dict[str, str]:
    """The outcome of each action of alice, on the broker that listens at stock Kafka's addresses."""
    settings = sasl(kafka, "PLAIN", "alice", settings={"default.api.timeout.ms": 20_000})
    found = {}
    with Admin(settings) as admin:
        found["list"] = ",".join(sorted(topic.name for topic in admin.list_topics()))
        found["rules"] = outcome(admin.describe_acls)
        found["create"] = outcome(lambda: admin.create_acls(RULES[:1]))
    for topic in TOPICS:
        with Producer(sasl(kafka, "PLAIN", "alice")) as producer:
            found[topic] = outcome(lambda: producer.send(topic, b"x").result(WAIT_S))  # noqa: B023 - called at once
    return found


def audit_lines(text: str) -> set[str]:
    """The lines about alice, without the time."""
    lines = re.findall(r"Principal = User:alice is Denied .*", text)
    return {line.removesuffix(f" ({AUDIT})") for line in lines}


def test_rules_of_a_stock_directory_are_in_force_and_go_back(tmp_path: Path) -> None:
    stock = SecuredKafka(tmp_path / "stock", SETTINGS)
    with stock:
        with Admin(stock.bootstrap) as admin:
            admin.alter_config(ConfigResource(ResourceType.BROKER_LOGGER, "1"), {AUDIT: "INFO"})
            for topic in TOPICS:
                admin.create_topic(topic, partitions=1)
            admin.create_acls(RULES)
        on_stock = what_alice_may_do(stock)
    assert on_stock["orders-1"] == "done"
    assert on_stock["orders-secret"] == on_stock["other"] == "TopicAuthorizationFailed"
    changed = on_stock | {"orders-secret": "done", "other": "done", "list": "orders-1,orders-secret,other"}
    server_log = (stock.directory / "node-1" / "server.log").read_text()

    ottla = OttlaOnStock(tmp_path / "ottla", stock.directory / "node-1" / "server.properties")
    with ottla:
        assert what_alice_may_do(stock) == on_stock
        with Admin(stock.bootstrap) as admin:
            assert set(admin.describe_acls()) == set(RULES)
            admin.create_acls([ON_OTTLA])
            admin.delete_acls([AclFilter.exactly(RULES[1])])
        assert what_alice_may_do(stock) == changed
    ottla.assert_no_traceback()
    lines = audit_lines(server_log)
    assert lines
    assert audit_lines(ottla.log_path.read_text()) == lines

    with stock:
        assert what_alice_may_do(stock) == changed
        with Admin(stock.bootstrap) as admin:
            assert set(admin.describe_acls()) == {*RULES, ON_OTTLA} - {RULES[1]}
