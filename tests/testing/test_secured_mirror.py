"""A mirror logs in to its source as a client does, and its password is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.admin import Admin, ConfigResource, ResourceType


@pytest.mark.parametrize("security", ["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def test_mirror_copies_from_a_secured_source(ottla_broker: Any, security: str) -> None:
    source = ottla_broker(security=security, users=["mirror"])
    target = ottla_broker()
    source.produce(source.topic("orders"), "one", "two")
    login = {name: text for name, text in source.settings(user="mirror").items() if name != "bootstrap.servers"}
    mirror = ConfigResource(ResourceType.MIRROR, "dr")
    with Admin(target.bootstrap) as admin:
        admin.alter_config(mirror, {"bootstrap.servers": source.bootstrap, "topics": "orders", **login})
        target.wait_until(lambda: "orders" in {topic.name for topic in admin.list_topics()})
        assert [record.value for record in target.consume("orders", 2)] == [b"one", b"two"]
        described = admin.describe_config(mirror)
        shown = {entry.value for name, entry in described.items() if name != "status"}
        assert described["security.protocol"].value == security
        assert login.get("sasl.password", "no password") not in shown
