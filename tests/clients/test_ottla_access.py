"""ACLs, SCRAM credentials and quotas with Ottla's admin client, against stock Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.clients import (
    Admin,
    AsyncAdmin,
    AuthenticationFailed,
    ConfigurationError,
    Producer,
    ResourceNotFound,
    TopicAuthorizationFailed,
)
from ottla.clients.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    AclResourceType,
    PartialFailure,
    PatternType,
    QuotaEntity,
    QuotaName,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from tests.peers.secured import SecuredKafka

from .secured import sasl
from .support import WAIT_S, unique, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka")]


@pytest.fixture
def admin(secured: SecuredKafka) -> Iterator[Admin]:
    """An admin client of a super user."""
    with Admin(sasl(secured, "SCRAM-SHA-256")) as admin:
        yield admin


def test_user_without_access_may_write_when_an_acl_allows_it(secured: SecuredKafka, admin: Admin) -> None:
    topic = unique("acl")
    admin.create_topic(topic, partitions=1)
    rule = Acl(AclResource.topic(topic), "User:alice", AclOperation.WRITE)
    settings = sasl(secured, "PLAIN", "alice")
    with Producer(settings) as producer, pytest.raises(TopicAuthorizationFailed):
        producer.send(topic, b"x").result(WAIT_S)
    admin.create_acls([rule])
    wait_until(lambda: rule in admin.describe_acls(), "the rule is known")
    with Producer(settings) as producer:
        producer.send(topic, b"x").result(WAIT_S)
    assert admin.delete_acls([rule]) == {AclFilter.exactly(rule): (rule,)}
    wait_until(lambda: rule not in admin.describe_acls(), "the rule is deleted")


def test_acls_are_described_and_deleted_by_filter(admin: Admin) -> None:
    prefix = unique("p")
    rules = [
        Acl(AclResource.topic(prefix, prefixed=True), "User:alice", AclOperation.READ),
        Acl(AclResource.topic(f"{prefix}-1"), "User:alice", AclOperation.ALL, AclPermission.DENY, "10.0.0.1"),
        Acl(AclResource.group(f"{prefix}-1"), "User:*", AclOperation.READ),
        Acl(AclResource.transactional_id(prefix), "User:reader", AclOperation.WRITE),
    ]
    admin.create_acls(rules)
    wait_until(lambda: set(rules) <= set(admin.describe_acls()), "all rules are known")
    match = AclFilter(AclResourceType.TOPIC, f"{prefix}-1", PatternType.MATCH)
    assert set(admin.describe_acls(match)) == set(rules[:2])
    assert admin.describe_acls(AclFilter(principal="User:reader", operation=AclOperation.WRITE)) == [rules[3]]
    assert admin.describe_acls(AclFilter(host="10.0.0.1", permission=AclPermission.DENY)) == [rules[1]]
    removed = admin.delete_acls([*rules[2:], match])
    assert set(removed[match]) == set(rules[:2])
    wait_until(lambda: not set(rules) & set(admin.describe_acls()), "all rules are deleted")


def test_invalid_acl_is_reported(admin: Admin) -> None:
    good = Acl(AclResource.topic(unique("t")), "User:alice", AclOperation.READ)
    bad = Acl(AclResource.topic(""), "User:alice", AclOperation.READ)
    with pytest.raises(PartialFailure) as caught:
        admin.create_acls([good, bad])
    assert list(caught.value.errors) == [bad]
    assert list(caught.value.results) == [good]
    admin.delete_acls([good])


def test_scram_credentials_are_created_and_deleted(secured: SecuredKafka, admin: Admin) -> None:
    user, password = unique("user"), "tästä=,\u00a0on"
    admin.alter_scram_credentials(
        [ScramUpsertion(user, password), ScramUpsertion(user, password, "SCRAM-SHA-256", iterations=4096)]
    )
    expected = (ScramCredential("SCRAM-SHA-256", 4096), ScramCredential("SCRAM-SHA-512", 8192))
    wait_until(lambda: admin.describe_scram_credentials().get(user) == expected, "both credentials are known")
    assert admin.describe_scram_credentials([user]) == {user: expected}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        settings = sasl(secured, mechanism, user, settings={"sasl.password": password})
        with Admin(settings) as theirs:
            assert theirs.describe_cluster().cluster_id == secured.cluster_id
    admin.alter_scram_credentials([ScramDeletion(user, "SCRAM-SHA-256")])
    wait_until(lambda: admin.describe_scram_credentials().get(user) == expected[1:], "one is left")
    with (
        pytest.raises(AuthenticationFailed),
        Admin(sasl(secured, "SCRAM-SHA-256", user, settings={"sasl.password": password})),
    ):
        pass
    admin.alter_scram_credentials([ScramDeletion(user, "SCRAM-SHA-512")])


def test_invalid_scram_credentials_are_rejected(admin: Admin) -> None:
    with pytest.raises(PartialFailure) as caught:
        admin.describe_scram_credentials(["alice", "stranger"])
    assert isinstance(caught.value.errors["stranger"], ResourceNotFound)
    assert "alice" in caught.value.results
    with pytest.raises(PartialFailure, match="stranger"):
        admin.alter_scram_credentials([ScramDeletion("stranger", "SCRAM-SHA-512")])
    with pytest.raises(ConfigurationError, match="4096 to 16384"):
        admin.alter_scram_credentials([ScramUpsertion("alice", "x", iterations=100)])
    with pytest.raises(ConfigurationError, match="not one of SCRAM-SHA-256"):
        admin.alter_scram_credentials([ScramUpsertion("alice", "x", "PLAIN")])
    assert "hush" not in repr(ScramUpsertion("alice", "hush"))


def test_quotas_are_set_described_and_deleted(admin: Admin) -> None:
    user = unique("user")
    both = QuotaEntity(user=user, client_id="c")
    everyone = QuotaEntity(user=QuotaName.DEFAULT)
    admin.alter_client_quotas(
        {
            QuotaEntity(user=user): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000},
            both: {"request_percentage": 12.5},
            everyone: {"producer_byte_rate": 9e6},
        }
    )
    expected = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    wait_until(lambda: everyone in admin.describe_client_quotas(), "the quotas are known")
    assert admin.describe_client_quotas(QuotaEntity(user=user), strict=True) == {QuotaEntity(user=user): expected}
    assert set(admin.describe_client_quotas(QuotaEntity(user=user))) == {QuotaEntity(user=user), both}
    assert admin.describe_client_quotas(everyone) == {everyone: {"producer_byte_rate": 9e6}}
    any_client = QuotaEntity(user=user, client_id=QuotaName.ANY)
    assert admin.describe_client_quotas(any_client) == {both: {"request_percentage": 12.5}}
    admin.alter_client_quotas({QuotaEntity(user=user): {"producer_byte_rate": 5.0}}, validate_only=True)
    deletions: dict[QuotaEntity, dict[str, float | None]] = {
        QuotaEntity(user=user): {"producer_byte_rate": None, "consumer_byte_rate": None},
        both: {"request_percentage": None},
        everyone: {"producer_byte_rate": None},
    }
    admin.alter_client_quotas(deletions)
    wait_until(lambda: admin.describe_client_quotas() == {}, "the quotas are deleted")


def test_invalid_quotas_are_rejected(admin: Admin) -> None:
    with pytest.raises(PartialFailure, match="no_such_rate"):
        admin.alter_client_quotas({QuotaEntity(user="alice"): {"no_such_rate": 1.0}})
    for entity in (QuotaEntity(), QuotaEntity(user=QuotaName.ANY)):
        with pytest.raises(ConfigurationError, match="quota"):
            admin.alter_client_quotas({entity: {"producer_byte_rate": 1.0}})


def test_async_admin_creates_and_deletes_acls(secured: SecuredKafka) -> None:
    async def story() -> None:
        async with AsyncAdmin(sasl(secured, "SCRAM-SHA-512", listener="SASL_SSL")) as admin:
            rule = Acl(AclResource.cluster(), "User:reader", AclOperation.DESCRIBE)
            await admin.create_acls([rule])
            assert await admin.delete_acls([rule]) == {AclFilter.exactly(rule): (rule,)}
            assert "alice" in await admin.describe_scram_credentials()
            assert await admin.describe_client_quotas(QuotaEntity(ip="10.0.0.1")) == {}

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
