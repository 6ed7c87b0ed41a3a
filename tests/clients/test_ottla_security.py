"""Ottla's clients against a stock Kafka with authentication: every mechanism, and the errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import (
    Admin,
    AuthenticationFailed,
    BrokerUnavailable,
    ClientError,
    ClusterAuthorizationFailed,
    ConnectionLost,
    Consumer,
    GroupAuthorizationFailed,
    Producer,
    Record,
    TlsFailed,
    TopicAuthorizationFailed,
    TopicPartition,
    UnsupportedMechanism,
)
from ottla.clients.admin import Acl, AclOperation, AclResource
from ottla.security.oauthbearer import OAuthToken, unsecured_jws
from tests.peers.secured import MECHANISMS, SESSION_MS, SecuredKafka, password_of

from .secured import sasl, tls
from .support import WAIT_S, unique, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka")]

CLAIMS = 'unsecuredLoginStringClaim_sub="{u}" unsecuredLoginListClaim_scope=",a,b" extension_traceId="42"'
PAGE = Path(__file__).parents[2] / "docs" / "clients-security.md"
SOON_MS = {"default.api.timeout.ms": 2_000, "request.timeout.ms": 2_000}


def round_trip(settings: dict[str, object]) -> None:
    """Create a topic, write to it, read it in a group, delete it."""
    topic = unique("secured")
    with Admin(settings) as admin:
        admin.create_topic(topic, partitions=1)
        with Producer(settings) as producer:
            for offset in range(5):  # wait for each record: single records take a faster path without the event loop
                assert producer.send(topic, b"value", key=b"key").result(WAIT_S).offset == offset
        group: dict[str, object] = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with Consumer(settings | group) as consumer:
            consumer.subscribe([topic])
            deadline = time.monotonic() + WAIT_S
            records: list[Record] = []
            while len(records) < 5:
                records += consumer.poll(0.5)
                assert time.monotonic() < deadline
            assert [(record.key, record.value) for record in records] == [(b"key", b"value")] * 5
            consumer.commit()
        assert admin.list_group_offsets(topic)[TopicPartition(topic, 0)].offset == 5
        admin.delete_topic(topic)


# -- logging in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_clients_authenticate_with_every_mechanism(secured: SecuredKafka, mechanism: str, listener: str) -> None:
    round_trip(sasl(secured, mechanism, listener=listener))


def test_all_clients_use_tls_without_sasl(secured: SecuredKafka) -> None:
    round_trip(tls(secured))


@pytest.mark.parametrize("way", ["one file", "two files", "text", "librdkafka's names"])
def test_client_certificate_is_accepted_in_every_form(secured: SecuredKafka, way: str) -> None:
    files = secured.certificates
    settings: dict[str, object] = {
        "one file": {"ssl.keystore.location": str(files.client)},
        "two files": {
            "ssl.certificate.location": str(files.directory / "client.crt"),
            "ssl.key.location": str(files.directory / "client.key"),
        },
        "text": {
            "ssl.keystore.certificate.chain": files.text("client.crt"),
            "ssl.keystore.key": files.text("client.key"),
        },
        "librdkafka's names": {
            "ssl.certificate.pem": files.text("client.crt"),
            "ssl.key.pem": files.text("client.key"),
        },
    }[way]  # type: ignore[assignment]
    trust: dict[str, object] = {"ssl.ca.pem": files.text("ca.pem")}
    base = {"bootstrap.servers": secured.address("MTLS"), "security.protocol": "ssl"}
    with Admin({**base, **trust, **settings}) as admin:
        assert admin.describe_cluster().brokers[0].port == int(secured.address("MTLS").rpartition(":")[2])


@pytest.mark.parametrize(
    ("mechanism", "line"),
    [
        (
            "SCRAM-SHA-512",
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="{u}" password="{p}";',
        ),
        (None, "org.apache.kafka.common.security.plain.PlainLoginModule required username='{u}' password={p};"),
        (None, f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {CLAIMS};"),
    ],
    ids=["scram", "plain", "oauthbearer"],
)
def test_sasl_jaas_config_of_java_clients_is_understood(
    secured: SecuredKafka, mechanism: str | None, line: str
) -> None:
    settings = {
        "bootstrap.servers": secured.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": line.format(u="admin", p=password_of("admin")),
    }
    with Admin(settings) as admin:
        assert admin.describe_cluster().cluster_id == secured.cluster_id


def test_session_is_renewed_on_the_same_connection_while_producing(secured: SecuredKafka) -> None:
    topic = unique("renewed")
    settings = sasl(secured, "SCRAM-SHA-512", listener="SHORT")
    with Admin(settings) as admin, Producer(settings, linger_ms=0) as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"0").result(WAIT_S)
        connection = producer._sender.cluster.connected(1)
        assert connection is not None
        began = time.monotonic()
        deliveries = []
        while time.monotonic() < began + SESSION_MS / 1000 * 2.5:
            deliveries.append(producer.send(topic, b"x"))
            time.sleep(0.002)
        offsets = [delivery.result(WAIT_S).offset for delivery in deliveries]
        assert offsets == list(range(1, len(deliveries) + 1))
        assert producer._sender.cluster.connected(1) is connection


def test_token_is_replaced_before_it_expires(secured: SecuredKafka) -> None:
    asked: list[float] = []

    def provider() -> OAuthToken:
        asked.append(time.time())
        return unsecured_jws("admin", now_s=time.time(), lifetime_s=2.5)

    settings = sasl(secured, "OAUTHBEARER", settings={"sasl.oauth.token.provider": provider})
    with Admin(settings) as admin:
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            admin.describe_cluster()
            time.sleep(0.05)
    assert 2 <= len(asked) <= 4


# -- failures --------------------------------------------------------------------------------------------------


def poll_for(consumer: Consumer, seconds: float) -> None:
    """Poll for some seconds and drop the records."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        consumer.poll(0.5)


def clients_of(settings: dict[str, object]) -> list[Callable[[], object]]:
    """Return a first call of each client."""

    def produce() -> object:
        with Producer(settings, max_block_ms=5_000) as producer:
            return producer.send("t", b"x").result(5)

    def consume() -> None:
        with Consumer(settings, group_id="g") as consumer:
            consumer.subscribe(["t"])
            poll_for(consumer, 5)

    def manage() -> object:
        with Admin(settings) as admin:
            return admin.describe_cluster()

    return [manage, produce, consume]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["admin", "producer", "consumer"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_password_is_raised_immediately_without_retries(
    secured: SecuredKafka, mechanism: str, which: int
) -> None:
    wrong: dict[str, object] = (
        {"sasl.oauth.token.provider": lambda: "no.such.token"} if mechanism == "OAUTHBEARER" else {"sasl.password": "x"}
    )
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=mechanism) as caught:
        clients_of(sasl(secured, mechanism, settings=wrong))[which]()
    assert not caught.value.retriable
    assert time.monotonic() - began < 20, "retries would take default.api.timeout.ms: 60 s"
    assert "\n" not in str(caught.value)


def test_unsupported_mechanism_error_lists_the_brokers_mechanisms(secured: SecuredKafka) -> None:
    with (
        pytest.raises(UnsupportedMechanism, match=r"offers .*SCRAM-SHA-512.*set sasl\.mechanism"),
        Admin(sasl(secured, "SCRAM-SHA-256", listener="SHORT")),
    ):
        pass


def wrong_settings(kafka: SecuredKafka) -> dict[str, tuple[dict[str, object], type[ClientError], str]]:
    """Return invalid settings with the exception and message that they raise."""
    files, plaintext = kafka.certificates, {"bootstrap.servers": kafka.bootstrap}
    other = {"ssl.truststore.location": str(files.other_ca)}
    return {
        "wrong authority": (tls(kafka, settings=other), TlsFailed, r"not trusted .*ssl\.truststore\.location"),
        "wrong host": (tls(kafka, "WRONG_HOST"), TlsFailed, "for another host"),
        "expired": (tls(kafka, "EXPIRED"), TlsFailed, "has expired"),
        "no client certificate": (tls(kafka, "MTLS"), TlsFailed, r"wants a certificate .*ssl\.keystore\.location"),
        "wrong client certificate": (
            tls(kafka, "MTLS", {"ssl.keystore.location": str(files.other_client)}),
            TlsFailed,
            "does not take this client's certificate",
        ),
        "TLS to plaintext": (tls(kafka) | plaintext, BrokerUnavailable, r"speak TLS \(security\.protocol\)"),
        "plaintext to TLS": ({"bootstrap.servers": kafka.address("SSL")}, TlsFailed, r"security\.protocol to SSL"),
        "no SASL to SASL": (
            {"bootstrap.servers": kafka.address("SASL_PLAINTEXT")},
            ConnectionLost,
            r"want SASL \(security\.protocol\)",
        ),
        "SASL to no SASL": (sasl(kafka, "PLAIN") | plaintext, AuthenticationFailed, "does not use SASL"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "wrong authority",
        "wrong host",
        "expired",
        "no client certificate",
        "wrong client certificate",
        "TLS to plaintext",
        "plaintext to TLS",
        "no SASL to SASL",
        "SASL to no SASL",
    ],
)
def test_connection_error_is_one_line_with_advice(secured: SecuredKafka, what: str) -> None:
    settings, kind, message = wrong_settings(secured)[what]
    admin = Admin(settings | SOON_MS)
    with pytest.raises(kind, match=message) as caught:
        admin.start()
    admin.close()
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_certificate_and_host_name_checks_can_be_disabled(secured: SecuredKafka) -> None:
    with Admin(tls(secured, "WRONG_HOST"), ssl_endpoint_identification_algorithm="") as admin:
        assert admin.describe_cluster().brokers
    with Admin(tls(secured, "EXPIRED"), enable_ssl_certificate_verification=False) as admin:
        assert admin.describe_cluster().brokers


# -- permissions -----------------------------------------------------------------------------------------------


@pytest.fixture
def topic_of_admin(secured: SecuredKafka) -> str:
    """A topic that only super users can access."""
    topic = unique("private")
    with Admin(bootstrap_servers=secured.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
        wait_until(lambda: admin.describe_topic(topic).partitions[0].leader is not None, "a leader")
    return topic


def test_missing_permission_raises_its_own_exception(secured: SecuredKafka, topic_of_admin: str) -> None:
    settings: dict[str, Any] = sasl(secured, "PLAIN", "reader")
    with (
        Producer(settings, max_block_ms=5_000) as producer,
        pytest.raises(TopicAuthorizationFailed, match=topic_of_admin),
    ):
        producer.send(topic_of_admin, b"x").result(WAIT_S)
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic_of_admin, 0)])
        with pytest.raises(TopicAuthorizationFailed, match=topic_of_admin):
            poll_for(consumer, 5)
    seen = unique("seen")
    with Admin(bootstrap_servers=secured.bootstrap) as admin:
        admin.create_topic(seen, partitions=1)
        # Otherwise the topic is rejected too, sometimes before the group.
        rule = Acl(AclResource.topic(seen), "User:reader", AclOperation.DESCRIBE)
        admin.create_acls([rule])
        wait_until(lambda: rule in admin.describe_acls(), "the rule is known")
    with Consumer(settings, group_id="not-mine") as consumer:
        consumer.subscribe([seen])
        with pytest.raises(GroupAuthorizationFailed):
            poll_for(consumer, 5)
    with Admin(bootstrap_servers=secured.bootstrap) as admin:
        admin.delete_acls([rule])
    with Admin(settings) as admin:
        with pytest.raises(TopicAuthorizationFailed):
            admin.create_topic(unique("not-mine"))
        with pytest.raises(ClusterAuthorizationFailed):
            admin.describe_acls()


# -- the page --------------------------------------------------------------------------------------------------


def test_examples_of_the_security_page_run(secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 6
    monkeypatch.chdir(secured.certificates.directory)
    names: dict[str, Any] = {}
    for example in examples:
        here = example.replace("kafka.example.com:9093", secured.address("SASL_SSL"))
        here = here.replace("kafka.example.com:9094", secured.address("MTLS"))
        exec(compile(here, PAGE.name, "exec"), names)
