"""TLS and SASL between nodes: options from settings, rotated certificates, and what is logged when a node is denied."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.cluster.node.peer_security import PeerSecurity
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig
from ottla.network.errors import AuthenticationRefused, ConnectFailed, TlsRefused
from ottla.network.node_channel import DEFAULT_OPTIONS, ChannelOptions, NodeChannel
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.plain import PlainClient
from ottla.tools.secured_files import LOCAL_HOSTS, ClusterPlan, SecuredFiles
from tests.unit.clients.fake_broker import Answer, FakeBroker

SECRET = "Xq7-never-shown"
TIMEOUT_S = 5.0
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def config(protocol: str, **more: str) -> BrokerConfig:
    """A node whose brokers use the listener INSIDE and whose controllers use the listener CONTROL."""
    return BrokerConfig(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "INSIDE://127.0.0.1:9092,CONTROL://127.0.0.1:9093",
            "controller.listener.names": "CONTROL",
            "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094",
            "listener.security.protocol.map": f"INSIDE:{protocol},CONTROL:{protocol}",
            "inter.broker.listener.name": "INSIDE",
            "log.dirs": "/tmp/unused",
        }
        | {name.replace("__", "."): value for name, value in more.items()}
    )


def sasl(listener: str, **login: str) -> dict[str, str]:
    words = " ".join(f'{name}="{value}"' for name, value in login.items())
    return {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{listener}.plain.sasl.jaas.config": f"{JAAS} {words};",
    }


def stores(home: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "keystore.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("security")
    SecuredFiles(directory).create(ClusterPlan([LOCAL_HOSTS], clients=["ann"]))
    return directory


@pytest.fixture
def files(made: Path, tmp_path: Path) -> Path:
    """The files of `ottla security init`, which the test may change."""
    shutil.copytree(made, tmp_path / "security")
    return tmp_path / "security"


def exchange(options: ChannelOptions) -> Any:
    async def one() -> Any:
        assert options.sasl is not None
        return await options.sasl()

    return asyncio.run(one())


# -- options ---------------------------------------------------------------------------------------------------------


def test_plaintext_needs_no_options() -> None:
    security = PeerSecurity(config("PLAINTEXT"))
    for options in (security.brokers, security.controllers):
        assert (options.tls, options.sasl) == (DEFAULT_OPTIONS.tls, DEFAULT_OPTIONS.sasl) == (None, None)


def test_each_listener_has_the_credentials_of_its_own_login() -> None:
    inside = sasl("inside", username="broker-1", password=SECRET, user_ann="other")
    control = sasl("control", username="controller-1", password=f"{SECRET}-2")
    security = PeerSecurity(config("SASL_PLAINTEXT", **(inside | control)))
    assert exchange(security.brokers).start() == f"\0broker-1\0{SECRET}".encode()
    assert exchange(security.controllers).start() == f"\0controller-1\0{SECRET}-2".encode()
    assert isinstance(exchange(security.brokers), PlainClient)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_brokers_log_in_by_scram(mechanism: str) -> None:
    settings = sasl("inside") | sasl("control", username="c", password="d")
    settings["sasl.mechanism.inter.broker.protocol"] = mechanism
    settings["sasl.enabled.mechanisms"] = f"PLAIN,{mechanism}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    login = f'{module} username="broker-1" password="{SECRET}";'
    settings[f"listener.name.inside.{mechanism.lower()}.sasl.jaas.config"] = login
    found = exchange(PeerSecurity(config("SASL_PLAINTEXT", **settings)).brokers)
    assert (found.name, found.start()[:13]) == (mechanism, b"n,,n=broker-1")


def test_nodes_log_in_with_a_token() -> None:
    settings = sasl("inside") | sasl("control", username="c", password="d")
    settings["sasl.mechanism.inter.broker.protocol"] = "OAUTHBEARER"
    settings["sasl.enabled.mechanisms"] = "PLAIN,OAUTHBEARER"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    settings["listener.name.inside.oauthbearer.sasl.jaas.config"] = f'{module} unsecuredLoginStringClaim_sub="node";'
    found = exchange(PeerSecurity(config("SASL_PLAINTEXT", **settings)).brokers)
    assert found.name == "OAUTHBEARER"
    assert b"auth=Bearer " in found.start()


def test_host_names_are_checked_unless_the_algorithm_is_empty(files: Path) -> None:
    settings = stores(files / "node-1")
    options = PeerSecurity(config("SSL", **settings)).brokers
    assert options.tls is not None
    assert (options.tls().check_hostname, options.tls().verify_mode) == (True, ssl.CERT_REQUIRED)
    without = {"listener.name.inside.ssl.endpoint.identification.algorithm": ""}
    loose = PeerSecurity(config("SSL", **settings, **without)).brokers
    assert loose.tls is not None
    assert (loose.tls().check_hostname, loose.tls().verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "GSSAPI is not supported: set it to one of PLAIN, SCRAM"),
        (sasl("inside", username="broker-1"), "listener.name.inside.plain: PLAIN needs sasl.password"),
        (sasl("inside", password=SECRET), "listener.name.inside.plain: PLAIN needs sasl.username"),
        (sasl("inside") | {"listener.name.inside.plain.sasl.jaas.config": f"{SECRET};"}, "is not of the form"),
    ],
)
def test_wrong_login_is_an_error_of_the_start_without_secrets(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        PeerSecurity(config("SASL_PLAINTEXT", **settings))
    assert SECRET not in str(caught.value)


def test_unreadable_key_store_is_an_error_of_the_start(files: Path) -> None:
    (files / "node-1" / "keystore.pem").write_text("no key")
    with pytest.raises(KafkaError, match=r"listener.name.inside: ssl.keystore.location .* holds no PEM certificate"):
        PeerSecurity(config("SSL", **stores(files / "node-1")))


def test_node_without_other_nodes_needs_no_credentials() -> None:
    alone = BrokerConfig({"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "log.dirs": "/tmp/unused"})
    assert PeerSecurity(alone).brokers.sasl is None


# -- connections -----------------------------------------------------------------------------------------------------


def echo(_: RequestHeader, request: Message) -> Answer:
    assert isinstance(request, HeartbeatRequest)
    return HeartbeatResponse(request.generation_id)


def server_context(home: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    context.load_cert_chain(home / "keystore.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def answer(channel: NodeChannel) -> int:
    done = channel.send(HeartbeatRequest("g", 7, "m"), timeout_s=TIMEOUT_S)
    async with asyncio.timeout(TIMEOUT_S):
        while not done.done:
            await asyncio.sleep(0.002)
    return int(done.result().throttle_time_ms)  # type: ignore[attr-defined]


def channel_to(node: FakeBroker, options: ChannelOptions, lost: Callable[[], None] | None = None) -> NodeChannel:
    return NodeChannel("127.0.0.1", node.port, client_id="me", options=options, on_lost=lost)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a story in each event loop: their errors of TLS differ."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(story, 20))

    return go


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_new_connections_use_a_rotated_certificate(files: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    home = files / "node-1"
    seen: list[Any] = []

    def record(header: RequestHeader, request: Message) -> Answer:
        return echo(header, request)

    async def story() -> None:
        options = PeerSecurity(config("SSL", **stores(home))).brokers
        async with FakeBroker(record, tls=server_context(home, files / "ca.pem")) as node:

            async def connect() -> Any:
                channel = channel_to(node, options)
                assert await answer(channel) == 7
                (writer,) = node._writers
                seen.append(writer.get_extra_info("peercert")["serialNumber"])
                channel.close()
                await channel.wait_closed(1.0)
                async with asyncio.timeout(TIMEOUT_S):
                    while node._writers:
                        await asyncio.sleep(0.002)

            await connect()
            await connect()
            SecuredFiles(files).create(ClusterPlan([LOCAL_HOSTS]), renew=True)
            await connect()
            # A broken file must not cut the node off.
            (home / "keystore.pem").write_text(f"{SECRET}\n")
            await connect()

    run(story())
    first, second, renewed, kept = seen
    assert first == second != renewed == kept
    assert "Loaded the changed certificates of connections by listener INSIDE" in caplog.text
    assert "use the previous certificates: listener.name.inside: ssl.keystore.location" in caplog.text
    assert SECRET not in caplog.text


def test_untrusted_node_is_not_reported_as_lost(
    files: Path, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    SecuredFiles(tmp_path / "other").create(ClusterPlan([LOCAL_HOSTS]))
    lost: list[int] = []

    async def story() -> None:
        options = PeerSecurity(config("SSL", **stores(files / "node-1"))).brokers
        other = server_context(tmp_path / "other" / "node-1", files / "ca.pem")
        async with FakeBroker(echo, tls=other) as node:
            channel = channel_to(node, options, lambda: lost.append(1))
            with pytest.raises(TlsRefused):
                await answer(channel)
            channel.close()
            await channel.wait_closed(1.0)

    run(story())
    assert lost == []
    (line,) = [each for each in caplog.messages if "failed authentication" in each]
    assert "not trusted" in line
    assert "check listener.name.inside.ssl.keystore.location and ssl.truststore.location of this node" in line


def test_node_without_a_certificate_logs_what_the_other_node_wants(
    files: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = {name: value for name, value in stores(files / "node-1").items() if "keystore.location" not in name}

    async def story() -> None:
        options = PeerSecurity(config("SSL", **settings)).brokers
        async with FakeBroker(echo, tls=server_context(files / "node-1", files / "ca.pem")) as node:
            channel = channel_to(node, options)
            with pytest.raises(ConnectFailed):
                await answer(channel)
            channel.close()
            await channel.wait_closed(1.0)

    run(story())
    (line,) = [each for each in caplog.messages if "failed" in each]
    # The server of asyncio closes the connection without an alert.
    assert "does it want a client certificate (ssl.keystore.location)" in line
    assert "check listener.name.inside.ssl.keystore.location" in line


def refuse(_: RequestHeader, request: Message) -> Answer:
    if isinstance(request, SaslHandshakeRequest):
        return SaslHandshakeResponse(0, ["PLAIN"])
    assert isinstance(request, SaslAuthenticateRequest)
    return SaslAuthenticateResponse(58, "Authentication failed: Invalid username or password")


def test_denied_login_is_logged_with_the_settings_to_check(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        settings = sasl("inside", username="broker-1", password=SECRET) | sasl("control", username="c", password="d")
        security = PeerSecurity(config("SASL_PLAINTEXT", **settings))
        async with FakeBroker(refuse) as node:
            channel = channel_to(node, security.brokers)
            for _ in range(3):
                with pytest.raises(AuthenticationRefused):
                    await answer(channel)
                channel._retry_s = 0.0
            channel.close()
            assert f"failed authentication due to: 127.0.0.1:{node.port} refuses to log in by PLAIN" in caplog.text

    run(story())
    (line,) = [each for each in caplog.messages if "failed authentication" in each]
    assert "check sasl.mechanism.inter.broker.protocol=PLAIN and listener.name.inside.plain.sasl.jaas.config" in line
    assert SECRET not in caplog.text
