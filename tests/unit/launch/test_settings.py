"""The settings of a broker from its options and file, its default directory, and the nodes of a local cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.failure import Failure
from ottla.common.ids import uuid_from_text, uuid_to_text
from ottla.common.system_random import random_uuid
from ottla.config import BrokerConfig, Listener, load_properties
from ottla.launch.local_nodes import format_nodes, free_ports, node_settings, prepare
from ottla.launch.secured import chosen
from ottla.launch.settings import broker_config, listen_address
from ottla.launch.storage import check_cluster_id, default_data_directory, known_node_id, unusable
from ottla.log.files import Files
from ottla.log.storage import MetaProperties, read_meta, write_meta


def options(**given: Any) -> SimpleNamespace:
    """Options as `ottla up` has them."""
    defaults = {"config": None, "listen": None, "data": None, "node_id": None, "overrides": ()}
    return SimpleNamespace(**{**defaults, **given})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9092", ("127.0.0.1", 9092)),
        (":9092", ("127.0.0.1", 9092)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9092", ("0.0.0.0", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
        ("host:65535", ("host", 65535)),
    ],
)
def test_port_without_a_host_listens_only_on_this_machine(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address
    [listener] = broker_config(options(listen=text, data="data")).listeners
    assert (listener.host, listener.port) == address


@pytest.mark.parametrize("text", ["", "host", "65536", "host:65536", "::1:9092", "9" * 5000, "-1"])
def test_wrong_listen_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure, match="--listen") as caught:
        listen_address(text)
    assert caught.value.exit_code == 2


def test_options_override_the_file_and_settings_override_the_options(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=3\nlog.dirs=/in/file\nnum.partitions=4\nlisteners=PLAINTEXT://:1\nlog.dir=/other\n")
    config = broker_config(options(config=str(file)))
    assert (config.node_id, config.log_dirs, config.int("num.partitions")) == (3, ["/in/file"], 4)
    config = broker_config(options(config=str(file), data="/given", node_id="5", listen="7"))
    assert (config.node_id, config.log_dirs) == (5, ["/given"])
    assert config.listeners == [Listener("PLAINTEXT", "127.0.0.1", 7)]
    overrides = ("log.dirs=/a,/b", "num.partitions=9", "node.id=6")
    config = broker_config(options(config=str(file), data="/given", node_id="5", overrides=overrides))
    assert (config.node_id, config.log_dirs, config.int("num.partitions")) == (6, ["/a", "/b"], 9)


def test_option_listen_replaces_all_listeners_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=INSIDE://:1,CONTROLLER://:2\nadvertised.listeners=INSIDE://host:1\n"
        "inter.broker.listener.name=INSIDE\nlistener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    config = broker_config(options(config=str(file), listen="0.0.0.0:7", data="data"))
    assert config.listeners == [Listener("PLAINTEXT", "0.0.0.0", 7)]
    assert not config.controller_listeners


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"data": " "}, "--data is empty"),
        ({"data": "a,b"}, "contains a comma, which separates directories"),
        ({"data": "a "}, "begins or ends with a space"),
        ({"data": "a", "overrides": ("num.partitions",)}, "-X 'num.partitions' is not of the form NAME=VALUE"),
        ({"data": "a", "overrides": ("num.partitions=x",)}, "Not a number of type INT"),
        ({"config": "/no/such/file"}, "cannot be read"),
    ],
)
def test_wrong_option_is_a_usage_error(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(Failure, match=problem) as caught:
        broker_config(options(**given))
    assert caught.value.exit_code == 2


def test_node_without_an_id_has_the_id_of_its_directory(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    assert broker_config(options(data=directory)).node_id == 1
    (tmp_path / "data").mkdir()
    write_meta(Files(), directory, MetaProperties("c", 7, b"d" * 16))
    assert broker_config(options(data=directory)).node_id == 7
    assert broker_config(options(data=directory, node_id="2")).node_id == 2


@pytest.mark.parametrize("content", ["", "version=9\nnode.id=7\n", "version=1\nnode.id=x\n", "version=1\n"])
def test_directory_whose_owner_cannot_be_read_has_no_known_node(content: str, tmp_path: Path) -> None:
    assert known_node_id(str(tmp_path / "none")) is None
    (tmp_path / "meta.properties").write_text(content)
    assert known_node_id(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("data", "xdg", "directory"),
    [("/data", "/xdg", "/data"), ("", "/xdg", "/xdg/ottla"), ("", "", "/home/u/.local/share/ottla")],
)
def test_default_directory_follows_the_environment(
    data: str, xdg: str, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("OTTLA_DATA", data), ("XDG_DATA_HOME", xdg), ("HOME", "/home/u")):
        monkeypatch.setenv(name, value)
    assert default_data_directory() == directory


def test_random_id_cannot_be_taken_for_an_option_and_is_a_valid_cluster_id() -> None:
    texts = {uuid_to_text(random_uuid()) for _ in range(500)}
    assert len(texts) == 500
    assert not any(text.startswith("-") for text in texts)
    assert all(check_cluster_id(text) == text and len(uuid_from_text(text)) == 16 for text in texts)


@pytest.mark.parametrize("text", ["", "x", "a" * 21, "a" * 30])
def test_wrong_cluster_id_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure, match=r"the cluster id .* is not valid") as caught:
        check_cluster_id(text)
    assert caught.value.exit_code == 2


def test_path_that_is_a_file_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file") as caught:
        (tmp_path / "file" / "data").mkdir()
    assert "the path, or a part of it, is a file" in unusable("d", caught.value).problem
    assert "No space left" in unusable("d", OSError(28, "No space left on device")).problem


# -- local clusters --------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(brokers=st.integers(1, 8), host=st.sampled_from(["127.0.0.1", "::1"]), port=st.sampled_from([0, 9092]))
def test_nodes_of_a_local_cluster_agree_on_their_quorum_and_have_different_ports(
    brokers: int, host: str, port: int
) -> None:
    rows = node_settings(brokers, host, port, {"min.insync.replicas": "1"})
    configs = [BrokerConfig({"min.insync.replicas": "1", **row}) for row in rows]
    assert [config.node_id for config in configs] == list(range(1, brokers + 1))
    voters = configs[0].roles.voters
    assert len(voters) == (3 if brokers >= 3 else 1), "a quorum of two survives no failure"
    assert all(config.roles.voters == voters for config in configs)
    for config in configs:
        assert config.roles.is_controller == (config.node_id in voters)
        assert [each.port for each in config.controller_listeners] == (
            [voters[config.node_id].port] if config.node_id in voters else []
        )
        assert config.listeners[0].host == host
        assert config.int("min.insync.replicas") == 1
        assert config.int("default.replication.factor") == min(brokers, 3)
    ports = [config.listeners[0].port for config in configs]
    assert ports == ([0] * brokers if port == 0 else list(range(port, port + brokers)))


def test_free_ports_are_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(1023 < port < 65536 for port in ports)


def test_cluster_keeps_its_identity_when_it_grows_and_does_not_shrink(tmp_path: Path) -> None:
    given = options(data=str(tmp_path), listen="0", overrides=("num.partitions=3",))
    nodes = prepare(given, 1)
    assert load_properties(nodes[0].properties_file)["num.partitions"] == "3"
    [first] = metas(nodes)
    nodes = prepare(given, 2)
    again = metas(nodes)
    assert again[0] == first
    assert (again[1].cluster_id, again[1].node_id) == (first.cluster_id, 2)
    format_nodes(nodes)
    assert metas(nodes) == again, "formatted nodes do not change"
    with pytest.raises(Failure, match="has a cluster of 2 brokers"):
        prepare(given, 1)


def metas(nodes: list[Any]) -> list[MetaProperties]:
    found = [read_meta(Files(), str(node.data)) for node in nodes]
    assert None not in found
    return [meta for meta in found if meta is not None]


@pytest.mark.parametrize(
    ("given", "brokers", "problem"),
    [
        ({"overrides": ("node.id=3",)}, 2, "--brokers sets node.id of each node itself"),
        ({"overrides": ("log.dirs=/a", "a=b")}, 2, "--brokers sets log.dirs of each node itself"),
        ({"node_id": "1"}, 2, "--brokers sets node.id of each node itself"),
        ({"listen": "65530"}, 7, "the ports 65530 to 65536 are not all below 65536"),
        ({"overrides": ("num.partitions=0",)}, 1, "num.partitions"),
    ],
)
def test_option_that_a_local_cluster_cannot_have_writes_nothing(
    given: dict[str, Any], brokers: int, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(Failure, match=problem):
        prepare(options(data=str(tmp_path), **given), brokers)
    assert not list(tmp_path.iterdir())


def test_directory_of_a_single_broker_is_not_used_for_a_cluster(tmp_path: Path) -> None:
    write_meta(Files(), str(tmp_path), MetaProperties("c", 1, b"d" * 16))
    with pytest.raises(Failure, match="has the data of a single broker"):
        prepare(options(data=str(tmp_path)), 2)


def test_each_node_of_a_cluster_gets_the_decision_to_be_insecure(tmp_path: Path) -> None:
    for insecure in (False, True):
        nodes = prepare(options(data=str(tmp_path), listen="0.0.0.0:0", insecure=insecure), 2)
        found = [BrokerConfig(load_properties(node.properties_file)).is_insecure for node in nodes]
        assert found == [insecure] * 2


def test_secured_directory_is_not_started_without_the_option(tmp_path: Path) -> None:
    directory = tmp_path / "data-security"
    assert chosen(options(secure=False), directory) is None
    security = chosen(options(secure=True), directory)
    assert security is not None
    security.announced("127.0.0.1:9092")
    with pytest.raises(Failure, match="without it, everyone could read the data"):
        chosen(options(secure=False), directory)
    assert chosen(options(secure=True), directory) is not None


def test_literal_secret_on_the_command_line_is_a_warning(tmp_path: Path) -> None:
    given = options(data=str(tmp_path), overrides=("ssl.key.password=hush", "num.partitions=2"))
    assert [each for each in broker_config(given).warnings if "list of processes" in each] == [
        "-X ssl.key.password: the list of processes shows its value to other users; --config FILE keeps it out"
    ]
