"""The commands of the quick start in docs/security.md, for one node and for three, and what they protect.

Hosts become addresses of the loopback interface, and ports become free ones. Each machine is a directory.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.errors import BrokerUnavailable, ClientError, NotAuthorized
from ottla.common.errors import ErrorCode
from ottla.config import load_properties
from ottla.network.client import ClientConnection
from ottla.network.errors import NetworkError
from ottla.protocol.message import Message
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.tools.secured_files import BROKERS, CLIENTS, CONTROLLER, PORTS
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
QUICK_START = PAGE.read_text().partition("## Quick start")[2].partition("\n## ")[0]
ONE, _, THREE = QUICK_START.partition("### Three nodes")
HOSTS = {"kafka1": "127.0.0.1", "kafka2": "127.0.0.2", "kafka3": "127.0.0.3", ",10.0.0.1": ""}
TIMEOUT_S = 40.0


def commands(text: str, prompt: str = "") -> list[str]:
    """The commands of the blocks of a text, on the machine of this prompt."""
    return re.findall(rf"^{prompt}\$ (ottla .*)$", text, re.MULTILINE)


class Machine(OttlaProcess):
    """The start of a node by a command of the page."""

    def __init__(self, directory: Path, words: list[str]) -> None:
        super().__init__(directory)
        self._words = words

    def command(self) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", *self._words]


class Page:
    """Runs commands of the page in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("OTTLA_")}
        self._environment |= {"XDG_CONFIG_HOME": str(directory / "config"), "HOME": str(directory)}
        self.ports = dict(zip(PORTS.values(), map(str, free_ports(len(PORTS))), strict=True))

    def local(self, text: str) -> str:
        """The text with addresses of this machine."""
        for host, address in HOSTS.items():
            text = text.replace(host, address)
        return text

    def run(self, command: str) -> str:
        """Run a command; returns its output."""
        words = [sys.executable, "-m", "ottla.cli.main", *shlex.split(self.local(command))[1:]]
        done = subprocess.run(
            words, cwd=self.directory, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def move_ports(self, *names: str, paths: Mapping[str, str] | None = None, root: Path | None = None) -> None:
        """Write the free ports, and other paths, into files of settings."""
        for name in names:
            path = (root or self.directory / "security") / name
            text = path.read_text()
            for port, free in self.ports.items():
                text = text.replace(f":{port}", f":{free}")
            for old, new in (paths or {}).items():
                text = text.replace(old, new)
            path.write_text(text)

    def admin(self) -> dict[str, str]:
        return load_properties(self.directory / "security" / "admin.properties")


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def password_of(output: str) -> str:
    found = re.search(r"^password: (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


def test_quick_start_of_one_node(page: Page) -> None:
    init, up, *rest = commands(ONE)
    page.run(init)
    page.move_ports("node-1/server.properties", "admin.properties")
    words = shlex.split(up)[1:]
    node = Machine(page.directory, words)
    with node:
        outputs = [page.run(command) for command in rest]
        [password] = [password_of(output) for output in outputs if "password: " in output]
        admin = page.admin()
        block = re.search(r"```properties\n(.*?)```", ONE, re.DOTALL)
        assert block is not None
        ann: dict[str, Any] = dict(line.split("=", 1) for line in block[1].splitlines())
        del ann["ssl.ca.location"]  # the name of ssl.truststore.location in librdkafka
        ann |= {"bootstrap.servers": admin["bootstrap.servers"], "sasl.password": password}
        ann["ssl.truststore.location"] = admin["ssl.truststore.location"]
        with Producer(ann) as producer:
            producer.send("orders", b"hello").result(TIMEOUT_S)
        with pytest.raises(NotAuthorized), Admin(ann) as client:
            client.create_topic("mine")
        for refused in ({"bootstrap.servers": admin["bootstrap.servers"]}, ann | {"sasl.password": "wrong"}):
            with pytest.raises(ClientError), Admin(refused, default_api_timeout_ms=2000) as client:
                client.list_topics()
        assert node.stop() == 0
    node.assert_no_traceback()
    assert password not in node.log_tail(limit=10_000_000)


@pytest.fixture
def three(page: Page, tmp_path: Path) -> Iterator[Page]:
    """Three nodes as in the page, and a client eve with a certificate."""
    [init] = commands(THREE)
    page.run(f"{init} --client eve")
    cluster_id = (tmp_path / "security" / "cluster-id").read_text().strip()
    machines = []
    for number in (1, 2, 3):
        root = tmp_path / f"machine-{number}"
        shutil.copytree(tmp_path / "security" / f"node-{number}", root / "etc" / "ottla")
        paths = {"/etc/ottla": str(root / "etc/ottla"), "/srv/ottla": str(root / "srv/ottla")}
        page.move_ports("server.properties", paths=paths, root=root / "etc/ottla")
        format_, up = commands(THREE, "kafka1")
        example = re.search(r"--cluster-id (\S+)", format_)
        assert example is not None
        page.run(format_.replace("/etc/ottla", paths["/etc/ottla"]).replace(example[1], cluster_id))
        machines.append(Machine(root, shlex.split(up.replace("/etc/ottla", paths["/etc/ottla"]))[1:]))
    page.move_ports("admin.properties", "clients/eve.properties")
    try:
        for machine in machines:
            machine.launch()
        for machine in machines:
            machine.wait_until_ready()
        yield page
        for machine in machines:
            machine.assert_no_traceback()
    finally:
        for machine in machines:
            if machine.is_running:
                machine.kill()


def test_quick_start_of_three_nodes(three: Page) -> None:
    with Admin(three.admin()) as admin:
        assert [each.node_id for each in admin.describe_cluster().brokers] == [1, 2, 3]
        assert [each.node_id for each in admin.describe_quorum().voters] == [1, 2, 3]
        admin.create_topic("orders", partitions=3, replication_factor=3)
        with Producer(three.admin(), acks="all") as producer:
            for partition in range(3):
                producer.send("orders", b"x", partition=partition).result(TIMEOUT_S)
        assert all(len(each.isr) == 3 for each in admin.describe_topic("orders").partitions)
    eve = load_properties(three.directory / "security" / "clients" / "eve.properties")
    with pytest.raises(NotAuthorized), Admin(eve) as client:
        client.create_topic("hers")
    plain = {"bootstrap.servers": f"127.0.0.1:{three.ports[PORTS[CLIENTS]]}"}
    with pytest.raises(BrokerUnavailable), Admin(plain, default_api_timeout_ms=2000) as client:
        client.list_topics()


REQUESTS: dict[str, Message] = {
    CONTROLLER: BrokerHeartbeatRequest(broker_id=1, broker_epoch=1),
    f"{CONTROLLER} ": EndQuorumEpochRequest(),
    BROKERS: WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=1, topics=[WritableTxnMarkerTopic("orders", [0])])]
    ),
}


def test_stranger_with_a_certificate_is_not_a_node(three: Page) -> None:
    files = three.directory / "security"
    trust = ssl.create_default_context(cafile=str(files / "ca.pem"))
    with_certificate = ssl.create_default_context(cafile=str(files / "ca.pem"))
    with_certificate.load_cert_chain(files / "clients" / "eve.pem")

    async def ask(listener: str, request: Message, tls: ssl.SSLContext | None) -> Any:
        port = int(three.ports[PORTS[listener]])
        connection = await ClientConnection.connect("127.0.0.1", port, client_id="eve", timeout_s=10, tls=tls)
        try:
            return await connection.send(request, timeout_s=10)
        finally:
            connection.abort()
            await connection.wait_lost(1.0)

    for name, request in REQUESTS.items():
        listener = name.strip()
        for tls in (None, trust):
            with pytest.raises(NetworkError):
                asyncio.run(ask(listener, request, tls))
        answer = asyncio.run(ask(listener, request, with_certificate))
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert f"error_code={code.value}" in repr(answer).replace(f"{code!r}", str(code.value)), answer
