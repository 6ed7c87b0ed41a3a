"""Authentication with the broker's users, and rights by subject, over real HTTP and TLS."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from ottla.clients import Admin
from ottla.clients.admin import Acl, AclOperation, AclResource, AclResourceType
from ottla.security.certificate import distinguished_name
from ottla.testing import BrokerError, Ottla, RegistryThread
from ottla.tools.secured_files import AUTHORIZER
from tests.clients.secured_ottla import SecuredOttla
from tests.clients.test_oauthbearer import oauth_settings
from tests.identity_provider import IdentityProvider
from tests.peers.secured import USERS, Certificates, password_of
from tests.registry.registrations import register, schema_text

MakeBroker = Callable[..., Ottla]
RULES = {
    "permissions": [
        {"username": "ann", "operation": "Write", "resource": "Subject:orders.*"},
        {"username": "bob", "operation": "Read", "resource": "Subject:.*"},
    ]
}


def store(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"kafkastore.{name}": value for name, value in settings.items() if name != "bootstrap.servers"}


@pytest.fixture
def kafka(ottla_broker: MakeBroker) -> Ottla:
    return ottla_broker(security="SASL_PLAINTEXT", users=["registry", "ann", "bob"])


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES))
    return path


@pytest.fixture
def registry(kafka: Ottla, rules: Path) -> Iterator[RegistryThread]:
    given = {
        **store(kafka.settings(user="registry")),
        "authentication.method": "BASIC",
        "authentication.skip.paths": "/",
        "super.users": "User:registry",
        "ottla.rules.file": str(rules),
    }
    with RegistryThread(kafka.bootstrap, given) as running:
        yield running


def common_name(store: Path) -> str:
    """The name in the first certificate of a file."""
    certificate = store.read_text().partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END")[0]
    return distinguished_name(base64.b64decode(certificate)).partition("CN=")[2].partition(",")[0]


def client(kafka: Ottla, user: str, password: str | None = None) -> httpx.Client:
    secret = password if password is not None else kafka.settings(user=user)["sasl.password"]
    return httpx.Client(auth=(user, secret), trust_env=False)


def test_users_of_the_broker_have_the_rights_of_their_rules(kafka: Ottla, registry: RegistryThread) -> None:
    with client(kafka, "ann") as ann, client(kafka, "bob") as bob, client(kafka, "registry") as admin:
        schema_id = register(ann, registry.url, "orders-value", schema_text("A"))
        register(admin, registry.url, "payments-value", schema_text("B"))
        denied = ann.post(f"{registry.url}/subjects/payments-value/versions", json={"schema": schema_text("C")})
        assert (denied.status_code, denied.json()["error_code"]) == (403, 40301)
        assert bob.delete(f"{registry.url}/subjects/orders-value").status_code == 403
        assert ann.get(f"{registry.url}/subjects").json() == ["orders-value"]
        assert bob.get(f"{registry.url}/subjects").json() == ["orders-value", "payments-value"]
        assert ann.get(f"{registry.url}/schemas/ids/{schema_id}").status_code == 200
        assert ann.get(f"{registry.url}/schemas/ids/{schema_id + 1}").status_code == 403
        assert ann.get(f"{registry.url}/schemas/ids/{schema_id + 9}").status_code == 404
        assert ann.put(f"{registry.url}/config", json={"compatibility": "NONE"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Basic YW5uOndyb25n"}, {"Authorization": "Bearer a.b.c"}, {"Authorization": "Basic ?"}],
)
def test_wrong_credentials_are_refused(registry: RegistryThread, headers: dict[str, str]) -> None:
    response = httpx.get(f"{registry.url}/subjects", headers=headers)
    assert (response.status_code, response.json()) == (401, {"error_code": 401, "message": "Unauthorized"})
    assert response.headers["WWW-Authenticate"] == 'Basic realm="Ottla"'
    assert httpx.get(f"{registry.url}/", headers=headers).status_code == 200  # authentication.skip.paths


def test_credentials_are_cached_without_the_password(kafka: Ottla, registry: RegistryThread) -> None:
    with client(kafka, "ann") as ann:
        for _ in range(20):
            assert ann.get(f"{registry.url}/subjects").status_code == 200
    assert kafka.requests.count("SaslAuthenticate") <= 10


def test_broker_that_is_down_is_not_a_refusal(tmp_path: Path) -> None:
    with SecuredOttla(tmp_path) as kafka:
        given = {
            "authentication.method": "BASIC",
            "ottla.login.bootstrap.servers": kafka.address("SASL_PLAINTEXT"),
            "ottla.login.security.protocol": "SASL_PLAINTEXT",
            "ottla.login.sasl.mechanism": "PLAIN",
        }
        user = (USERS[0], password_of(USERS[0]))
        with RegistryThread(kafka.address("PLAINTEXT"), given) as registry, httpx.Client(auth=user) as client:
            kafka.stop()
            response = client.get(f"{registry.url}/subjects", timeout=30)
            assert (response.status_code, response.json()["error_code"]) == (503, 50301)
            kafka.start()
            assert client.get(f"{registry.url}/subjects", timeout=30).status_code == 200


def test_users_need_a_listener_with_sasl(ottla: Ottla) -> None:
    with pytest.raises(BrokerError, match="users log in at the broker with SASL"):
        RegistryThread(ottla.bootstrap, {"authentication.method": "BASIC"}).start()


def test_certificate_of_a_client_is_its_principal(ottla: Ottla, rules: Path, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    given = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.authentication": "REQUIRED",
        "ssl.principal.mapping.rules": "RULE:^.*$/ann/",
        "ottla.rules.file": str(rules),
    }
    with RegistryThread(ottla.bootstrap, given) as registry:
        trusted = ssl.create_default_context(cafile=str(certificates.ca))
        with httpx.Client(verify=trusted) as without, pytest.raises(httpx.TransportError):
            without.get(f"{registry.url}/subjects")
        trusted.load_cert_chain(certificates.directory / "client.pem")
        with httpx.Client(verify=trusted) as ann:
            register(ann, registry.url, "orders", schema_text("A"))
            assert ann.get(f"{registry.url}/subjects/other/versions").status_code == 403


def test_bearer_token_is_presented_to_the_broker(tmp_path: Path, rules: Path) -> None:
    with IdentityProvider("ann") as provider, SecuredOttla(tmp_path, oauth_settings(provider)) as kafka:
        given = {
            "authentication.method": "BEARER",
            "ottla.login.bootstrap.servers": kafka.address("SASL_PLAINTEXT"),
            "ottla.login.security.protocol": "SASL_PLAINTEXT",
            "ottla.rules.file": str(rules),
        }
        with RegistryThread(kafka.address("PLAINTEXT"), given) as registry, httpx.Client() as user:
            for token, status in ((provider.token(sub="ann"), 200), (provider.token(exp=1), 401), ("a.b.c", 401)):
                headers = {"Authorization": f"Bearer {token}"}
                assert user.get(f"{registry.url}/subjects", headers=headers).status_code == status
            user.headers["Authorization"] = f"Bearer {provider.token(sub='ann')}"
            register(user, registry.url, "orders", schema_text("A"))
            assert user.get(f"{registry.url}/subjects/other/versions").status_code == 403


def test_rights_that_the_page_names_are_enough_for_the_registry(ottla_broker: MakeBroker) -> None:
    authorizer = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin;User:ANONYMOUS"}
    kafka = ottla_broker(authorizer, security="SASL_PLAINTEXT", users=["admin", "registry"])
    topic = AclResource.topic("_schemas")
    group = AclResource.group("schema-registry")
    transactional = AclResource(AclResourceType.TRANSACTIONAL_ID, "schema-registry-_schemas")
    needed = {
        topic: (
            AclOperation.CREATE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.READ,
            AclOperation.WRITE,
        ),
        group: (AclOperation.READ,),
        transactional: (AclOperation.DESCRIBE, AclOperation.WRITE),
    }
    with Admin(kafka.settings(user="admin")) as admin:
        admin.create_acls([Acl(each, "User:registry", op) for each, ops in needed.items() for op in ops])
    with (
        RegistryThread(kafka.bootstrap, store(kafka.settings(user="registry"))) as registry,
        httpx.Client() as client,
    ):
        assert register(client, registry.url, "a", schema_text("A")) == 1


def test_nodes_forward_over_tls_with_their_certificates(ottla: Ottla, rules: Path, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    given = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.authentication": "REQUIRED",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/",
        "ottla.rules.file": str(rules),
    }
    owners = (certificates.server, certificates.directory / "client.pem")
    given["super.users"] = ";".join(f"User:{common_name(each)}" for each in owners)
    trusted = ssl.create_default_context(cafile=str(certificates.ca))
    trusted.load_cert_chain(certificates.directory / "client.pem")
    with RegistryThread(ottla.bootstrap, given) as first, RegistryThread(ottla.bootstrap, given) as second:
        with httpx.Client(verify=trusted) as client:
            ids = [register(client, each.url, "a", schema_text(name)) for each, name in ((first, "A"), (second, "B"))]
        assert ids == [1, 2]
