"""Users' own credentials at a secured broker: log-ins, rights, anonymous requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclResource, ScramUpsertion
from tests.clients.secured_ottla import SecuredOttla
from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider

from .conftest import JSON, RunningProxy, StartProxy

HEADERS = {"content-type": JSON}
ONE = {"records": [{"value": 1}]}


@pytest.fixture
def secured(ottla_broker: Any) -> Any:
    """A broker where `test` is a super user, and `ann` and `bob` have no rights yet."""
    return ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:test",
            "connection.failed.authentication.delay.ms": "0",
        },
        security="SASL_PLAINTEXT",
        users=["test", "ann", "bob"],
    )


@pytest.fixture
def guarded(secured: Any, start_proxy: StartProxy) -> RunningProxy:
    return start_proxy({"bootstrap.servers": secured.bootstrap, "client.security.protocol": "SASL_PLAINTEXT"})


def password(secured: Any, user: str) -> str:
    return str(secured.settings("ottla", user=user)["sasl.password"])


def client(secured: Any, proxy: RunningProxy, user: str) -> httpx.Client:
    return proxy.as_user(user, password(secured, user))


def test_rights_of_the_user_apply(secured: Any, guarded: RunningProxy) -> None:
    secured.topic("ann-topic")
    with Admin(secured.settings("ottla", user="test")) as admin:
        topic = AclResource.topic("ann-topic")
        admin.create_acls([Acl(topic, "User:ann", each) for each in (AclOperation.READ, AclOperation.WRITE)])
    with client(secured, guarded, "ann") as ann, client(secured, guarded, "bob") as bob:
        assert ann.post("/topics/ann-topic", json=ONE, headers=HEADERS).status_code == 200
        assert "ann-topic" in ann.get("/topics").json()
        answer = bob.post("/topics/ann-topic", json=ONE, headers=HEADERS)
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
        assert bob.get("/topics").json() == []
        answer = bob.get("/topics/ann-topic")
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
    assert len(secured.records("ann-topic")) == 1


def test_wrong_credentials_are_401(secured: Any, guarded: RunningProxy) -> None:
    for user, word in (("ann", "wrong"), ("eve", "x")):
        with guarded.as_user(user, word) as http:
            for _ in range(2):
                answer = http.get("/topics")
                assert (answer.status_code, answer.json()["error_code"]) == (401, 40101)
                assert answer.headers["www-authenticate"].startswith("Basic")
    with client(secured, guarded, "ann") as ann:
        assert ann.get("/topics").status_code == 200


def test_requests_without_credentials_are_401(guarded: RunningProxy) -> None:
    assert guarded.http.get("/topics").status_code == 401
    for header in ("Basic", "Basic !!", "Digest x", "Bearer"):
        assert guarded.http.get("/topics", headers={"authorization": header}).status_code == 401


def test_anonymous_as_proxy_is_an_explicit_choice(secured: Any, start_proxy: StartProxy) -> None:
    proxy = start_proxy(
        {
            "bootstrap.servers": secured.bootstrap,
            "client.security.protocol": "SASL_PLAINTEXT",
            "client.sasl.mechanism": "PLAIN",
            "client.sasl.username": "test",
            "client.sasl.password": password(secured, "test"),
            "anonymous.as.proxy": "true",
        }
    )
    secured.topic("open")
    assert "open" in proxy.http.get("/topics").json()
    with client(secured, proxy, "bob") as bob:
        assert bob.get("/topics").json() == []


def test_proxys_credentials_are_not_for_requests_without_credentials(secured: Any, start_proxy: StartProxy) -> None:
    proxy = start_proxy(
        {
            "bootstrap.servers": secured.bootstrap,
            "client.security.protocol": "SASL_PLAINTEXT",
            "client.sasl.mechanism": "PLAIN",
            "client.sasl.username": "test",
            "client.sasl.password": password(secured, "test"),
        }
    )
    assert proxy.http.get("/topics").status_code == 401
    with client(secured, proxy, "bob") as bob:
        assert bob.get("/topics").json() == []


def test_password_is_checked_while_its_user_is_logged_in(secured: Any, guarded: RunningProxy) -> None:
    with client(secured, guarded, "ann") as ann:
        assert ann.get("/topics").status_code == 200
        with guarded.as_user("ann", "wrong") as other:
            assert other.get("/topics").status_code == 401
        assert ann.get("/topics").status_code == 200


def test_wrong_credentials_are_refused_from_memory(secured: Any, start_proxy: StartProxy) -> None:
    settings = {"client.security.protocol": "SASL_PLAINTEXT", "client.sasl.mechanism": "SCRAM-SHA-256"}
    for memory_ms, expected in ((60_000, 401), (0, 200)):
        user = f"dora-{memory_ms}"
        proxy = start_proxy({"bootstrap.servers": secured.bootstrap, "login.failure.ms": memory_ms, **settings})
        with proxy.as_user(user, "word") as http, Admin(secured.settings("ottla", user="test")) as admin:
            assert http.get("/topics").status_code == 401
            admin.alter_scram_credentials([ScramUpsertion(user, "word", "SCRAM-SHA-256", 4096)])
            assert http.get("/topics").status_code == expected


def test_changed_password_takes_effect(secured: Any, start_proxy: StartProxy) -> None:
    with Admin(secured.settings("ottla", user="test")) as admin:
        admin.alter_scram_credentials([ScramUpsertion("carl", "first", "SCRAM-SHA-256", 4096)])
        proxy = start_proxy(
            {
                "bootstrap.servers": secured.bootstrap,
                "client.security.protocol": "SASL_PLAINTEXT",
                "client.sasl.mechanism": "SCRAM-SHA-256",
                "users.login.ms": 200,
            }
        )
        with proxy.as_user("carl", "first") as http:
            assert http.get("/topics").status_code == 200
            admin.alter_scram_credentials([ScramUpsertion("carl", "second", "SCRAM-SHA-256", 4096)])
            secured.wait_until(lambda: http.get("/topics").status_code == 401, timeout_s=20)
        with proxy.as_user("carl", "second") as http:
            assert http.get("/topics").status_code == 200


def test_instance_of_another_user_does_not_exist(secured: Any, guarded: RunningProxy) -> None:
    with client(secured, guarded, "ann") as ann, client(secured, guarded, "bob") as bob:
        created = ann.post("/consumers/group", json={"name": "mine"}).json()
        assert bob.get(f"{created['base_uri']}/subscription").json()["error_code"] == 40403
        assert bob.delete(created["base_uri"]).json()["error_code"] == 40403
        assert bob.post("/consumers/group", json={"name": "mine"}).status_code == 200
        assert ann.get(f"{created['base_uri']}/subscription").status_code == 200


def test_reads_need_the_rights_of_topic_and_group(secured: Any, guarded: RunningProxy) -> None:
    secured.topic("ann-topic")
    secured.produce("ann-topic", "1")
    with Admin(secured.settings("ottla", user="test")) as admin:
        topic, group = AclResource.topic("ann-topic"), AclResource.group("ann-group")
        admin.create_acls([Acl(each, "User:ann", AclOperation.READ) for each in (topic, group)])
    for user, expected in (("ann", 200), ("bob", 403)):
        with client(secured, guarded, user) as http:
            created = http.post("/consumers/ann-group", json={"auto.offset.reset": "earliest", "fetch.min.bytes": 0})
            url = created.json()["base_uri"]
            assert http.post(f"{url}/subscription", json={"topics": ["ann-topic"]}).status_code == 204
            statuses = {http.get(f"{url}/records").status_code for _ in range(3)}
            assert expected in statuses
            assert statuses <= {200, expected}
            answer = http.get("/topics/ann-topic/events", params={"from": "beginning"}) if user == "bob" else None
            assert answer is None or (answer.status_code, answer.json()["error_code"]) == (403, 40301)


def test_bearer_tokens_reach_the_broker(tmp_path: Path, start_proxy: StartProxy) -> None:
    with IdentityProvider() as provider:
        broker = SecuredOttla(
            tmp_path,
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": ISSUER,
            },
        )
        broker.start()
        try:
            settings = {"client.security.protocol": "SASL_PLAINTEXT", "client.sasl.mechanism": "OAUTHBEARER"}
            proxy = start_proxy({"bootstrap.servers": broker.address("SASL_PLAINTEXT"), **settings})
            for token, expected in ((provider.token(), 200), ("nonsense", 401), (provider.token(aud="other"), 401)):
                answer = proxy.http.get("/topics", headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == expected, answer.text
            created = proxy.http.post(
                "/consumers/g", json={"name": "mine"}, headers={"authorization": f"Bearer {provider.token()}"}
            ).json()
            renewed = {"authorization": f"Bearer {provider.token(jti='another')}"}
            assert proxy.http.get(f"{created['base_uri']}/subscription", headers=renewed).status_code == 200
        finally:
            broker.stop()
