"""`ottla mirror create --copy acls`: the clients of the source have their rights at the copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclResource
from tests.cluster.processes import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Run

WAIT_S = 60.0
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "source", SETTINGS) as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "target", SETTINGS) as process:
        yield process


def acl(resource: AclResource, operation: AclOperation = AclOperation.READ) -> Acl:
    return Acl(resource, "User:alice", operation)


def test_rules_of_copied_topics_and_groups_are_copied_on_request(
    plain: Run, source: OttlaProcess, target: OttlaProcess
) -> None:
    words = ("--from", source.bootstrap, "--topics", "ord.*", "--groups", "bill.*", "--prefix", "us.")
    with Admin(source.bootstrap) as there, Admin(target.bootstrap) as here:
        there.create_topic("orders")
        there.create_acls(
            [
                acl(AclResource.topic("ord", prefixed=True), AclOperation.WRITE),
                acl(AclResource.topic("*")),
                acl(AclResource.topic("payments")),
                acl(AclResource.group("billing")),
                acl(AclResource.group("audit")),
            ]
        )
        refused = plain("mirror", "create", "us", *words, "--copy", "acls,users", "-b", target.bootstrap)
        assert (refused.code, "users cannot be copied" in refused.err) == (2, True)
        created = plain("mirror", "create", "us", *words, "--copy", "acls", "-b", target.bootstrap)
        assert created.code == 0, created.err
        wanted = {
            acl(AclResource.topic("us.orders"), AclOperation.WRITE),
            acl(AclResource.topic("us.orders")),
            acl(AclResource.group("billing")),
        }
        wait_until(lambda: set(here.describe_acls()) == wanted, WAIT_S)

        # What is deleted at the source is deleted here, also after a failure, and the target's own rules are not.
        own = acl(AclResource.topic("us.orders"), AclOperation.DESCRIBE)
        here.create_acls([own])
        target.kill()
        there.delete_acls([acl(AclResource.topic("*")), acl(AclResource.group("billing"))])
        target.start()
        remaining = {own, acl(AclResource.topic("us.orders"), AclOperation.WRITE)}
        wait_until(lambda: set(here.describe_acls()) == remaining, WAIT_S)
        altered = plain("mirror", "alter", "us", "--copy", "none", "-b", target.bootstrap)
        assert altered.code == 0, altered.err
