"""No secret leaves a node: not in logs, described settings, reprs, command lines, tracebacks or errors of a start."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import ConfigResource, ScramUpsertion
from ottla.clients.errors import ClientError
from ottla.config import BROKER_SETTINGS, format_properties
from ottla.testing.ports import ReservedPort
from ottla.tools.secured_files import LOCAL_HOSTS, SecuredFiles
from tests.ottla_process import ForkedOttla

MARK = "Xq7"
MODULES = "org.apache.kafka.common.security"
ADMIN, ANN, SCRAM, KEY, TOKENS, OAUTH, NODE, DYNAMIC, WRONG = (
    f"{MARK}-{name}-secret" for name in ("admin", "ann", "scram", "key", "tokens", "oauth", "node", "dynamic", "wrong")
)
START_S = 30.0


def login(**users: str) -> str:
    words = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f'{MODULES}.plain.PlainLoginModule required username="node" password="{NODE}" {words};'


class SecretNode(ForkedOttla):
    """A node whose settings have secrets of every kind, with the most talkative log."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.port = ReservedPort()
        home = SecuredFiles(directory / "security").issue(1, LOCAL_HOSTS, 2)
        self.authority = directory / "security" / "ca.pem"
        store = home / "keystore.pem"
        locked = home / "locked.pem"
        command = ["openssl", "pkcs8", "-topk8", "-in", str(store), "-passout", f"pass:{KEY}"]
        key = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
        chain = store.read_text()[store.read_text().index("-----BEGIN CERTIFICATE") :]
        locked.write_text(key + chain)
        self.settings = {
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": f"SECRET://127.0.0.1:{self.port.number}",
            "listener.security.protocol.map": "SECRET:SASL_SSL",
            "inter.broker.listener.name": "SECRET",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(locked),
            "ssl.key.password": KEY,
            "listener.name.secret.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secret.plain.sasl.jaas.config": login(admin=ADMIN, ann=ANN),
            "sasl.oauthbearer.client.credentials.client.secret": OAUTH,
            "delegation.token.secret.key": TOKENS,
            "connection.failed.authentication.delay.ms": "1",
        }

    def command(self) -> list[str]:
        path = self.directory / "server.properties"
        path.write_text(format_properties(self.settings))
        path.chmod(0o600)
        return [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(path), "--log-level", "debug"]

    def client(self, password: str = ADMIN, user: str = "admin", mechanism: str = "PLAIN") -> dict[str, object]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port.number}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.truststore.location": str(self.authority),
            "default.api.timeout.ms": 5000,
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretNode]:
    started = SecretNode(tmp_path_factory.mktemp("secrets"))
    started.start()
    yield started
    if started.is_running:
        started.kill()


def leaks(texts: Mapping[str, str]) -> list[str]:
    """The names of texts with a secret, as it is or in base64."""
    encoded = [base64.b64encode(f"\0{user}\0{secret}".encode()).decode() for user, secret in (("admin", ADMIN),)]
    return [name for name, text in texts.items() if MARK in text or any(each in text for each in encoded)]


def failed(node: SecretNode, settings: dict[str, object]) -> str:
    """The error of a client that may not log in."""
    with pytest.raises(ClientError) as caught, Admin(settings) as admin:
        admin.list_topics()
    return f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"


def test_node_shows_no_secret_whatever_clients_do(node: SecretNode) -> None:
    shown: dict[str, str] = {}
    with Admin(node.client()) as admin:
        admin.alter_scram_credentials([ScramUpsertion("cid", SCRAM), ScramUpsertion("cid", SCRAM, "SCRAM-SHA-256")])
        broker = ConfigResource.broker(1)
        name = "listener.name.secret.ssl.key.password"
        for changes in ({name: DYNAMIC}, {"ssl.key.password": DYNAMIC}, {"num.partitions": DYNAMIC}):
            with pytest.raises(ClientError):
                admin.alter_config(broker, changes)
        # A password that is accepted: nothing uses it.
        admin.alter_config(broker, {"listener.name.secret.sasl.jaas.config": login(eve=DYNAMIC)})
        shown["described"] = repr(admin.describe_config(broker))
        shown["users"] = repr(admin.describe_scram_credentials())
        shown["admin"] = f"{admin!r} {vars(admin)!r}"
    shown["upsertion"] = repr(ScramUpsertion("cid", SCRAM))
    described = confluent_admin(node)
    assert "listener.name.secret.plain.sasl.jaas.config" in described
    assert "delegation.token.secret.key" in described
    shown["described by librdkafka"] = described
    for number, settings in enumerate(
        [
            node.client(WRONG),
            node.client(WRONG, "cid", "SCRAM-SHA-512"),
            node.client(WRONG, "unknown", "SCRAM-SHA-256"),
            node.client() | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": oauth_jaas()},
            node.client() | {"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": None},
        ]
    ):
        shown[f"client {number}"] = failed(node, {k: v for k, v in settings.items() if v is not None})
    for kind in (Producer, Consumer):
        with kind(node.client(SCRAM, "cid", "SCRAM-SHA-512")) as client:
            shown[kind.__name__] = repr(client)
    for data in (ADMIN.encode() * 100, b"\0\0\0\x20" + ANN.encode() * 10, b"\x16\x03\x01" + ANN.encode()):
        with socket.create_connection(("127.0.0.1", node.port.number), timeout=5) as raw:
            raw.sendall(data)
    shown["command line"] = Path(f"/proc/{node.pid}/cmdline").read_text()
    shown["environment"] = Path(f"/proc/{node.pid}/environ").read_text()
    shown["ps"] = subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=True, timeout=30).stdout
    shown["standard output"] = (node.directory / "stdout.log").read_text()
    node.stop()
    shown["log"] = node.log_tail(limit=50_000_000)
    assert "Traceback" not in shown["log"]
    assert "Failed authentication" in shown["log"]
    assert leaks(shown) == []


def oauth_jaas() -> str:
    return f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{WRONG}";'


def confluent_admin(node: SecretNode) -> str:
    """All settings of the broker as librdkafka describes them."""
    settings = {k: v for k, v in node.client().items() if not k.startswith(("ssl.", "default."))}
    admin = confluent_kafka.admin.AdminClient({**settings, "ssl.ca.location": str(node.authority)})
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.BROKER, "1")
    [described] = [each.result(START_S) for each in admin.describe_configs([resource]).values()]
    return "\n".join(f"{name}={entry.value} {entry.synonyms}" for name, entry in described.items())


BROKEN: dict[str, dict[str, str]] = {
    "wrong key password": {"ssl.key.password": WRONG},
    "malformed login": {"listener.name.secret.plain.sasl.jaas.config": f"required {WRONG}"},
    "login of another mechanism": {
        "listener.name.secret.plain.sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required x="{WRONG}";'
    },
    "unknown mechanism": {"listener.name.secret.sasl.enabled.mechanisms": "PLAIN,FOO"},
    "inline key without a certificate": {"ssl.keystore.location": "", "ssl.keystore.key": WRONG},
    "malformed inline key": {
        "ssl.keystore.location": "", "ssl.keystore.key": WRONG, "ssl.keystore.certificate.chain": WRONG,
    },
    "malformed trust store": {"ssl.truststore.certificates": WRONG},
    "peer without a login": {
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2",
        "controller.listener.names": "CONTROL",
        "listeners": "SECRET://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "listener.security.protocol.map": "SECRET:SASL_SSL,CONTROL:SASL_SSL",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.control.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required x="{WRONG}";',
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_start_with_wrong_settings_shows_no_secret(changes: dict[str, str], tmp_path: Path) -> None:
    broken = SecretNode(tmp_path / "broken")
    broken.settings |= changes
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        broken.command(), capture_output=True, text=True, timeout=START_S, check=False, env=environment
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert leaks({"output": done.stdout, "errors": done.stderr}) == []


def test_each_setting_with_a_secret_is_known_as_one() -> None:
    words = ("password", "secret", "jaas", "passphrase", "keystore.key", "certificate.chain", "truststore.certificates")
    harmless = {"sasl.oauthbearer.assertion.private.key.file"}
    found = {
        name
        for name, setting in BROKER_SETTINGS.items()
        if any(word in name for word in words) and not setting.sensitive and not name.startswith("log.cleaner")
    }
    assert found <= harmless, found
