"""Addresses of listeners and of the quorum, and the roles of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.checks import connections_per_ip, unknown_directories
from ottla.config.listeners import Listener, parse_address, parse_listener
from ottla.config.roles import NodeRoles, node_roles, violation

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL-1": "SSL", "A.B_C": "SASL_SSL"}
HOSTS = st.sampled_from(["", "localhost", "0.0.0.0", "a-b.example.org", "::1", "fe80::1%eth0", "::"])


@given(st.sampled_from(sorted(PROTOCOLS)), HOSTS, st.integers(0, 65535))
def test_listener_survives_its_text(name: str, host: str, port: int) -> None:
    listener = Listener(name, host, port, PROTOCOLS[name])
    assert parse_listener(str(listener), PROTOCOLS) == listener
    assert parse_listener(str(listener).replace(name, name.lower()), PROTOCOLS) == listener


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("PLAINTEXT://host", "is not of the form NAME://host:port"),
        ("PLAINTEXT:host:9092", "is not of the form NAME://host:port"),
        ("host:9092", "is not of the form NAME://host:port"),
        ("PLAINTEXT://::1:9092", "is not of the form NAME://host:port"),
        ("PLAINTEXT://[host]:9092", "is not of the form NAME://host:port"),
        ("PLAINTEXT://host:-1", "is not of the form NAME://host:port"),
        ("PLAINTEXT://host:9092 ", "is not of the form NAME://host:port"),
        ("PLAINTEXT://host:9092/", "is not of the form NAME://host:port"),
        ("PLAINTEXT://host:65536", "has a port above 65535"),
        ("OTHER://host:9092", "listener OTHER has no entry in listener.security.protocol.map"),
    ],
)
def test_wrong_listener_is_an_error_with_its_text(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_listener(text, PROTOCOLS)


@pytest.mark.parametrize(("host", "is_wildcard"), [("", True), ("0.0.0.0", True), ("::", True), ("::1", False)])
def test_address_of_every_interface_cannot_be_advertised(host: str, is_wildcard: bool) -> None:
    assert Listener("PLAINTEXT", host, 1).is_wildcard == is_wildcard


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:1", ("host", 1)),
        (" host:65535 ", ("host", 65535)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1%eth0]:0", ("fe80::1%eth0", 0)),
    ],
)
def test_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", ":9092", "host:", "host:x", "::1:9092", "1@host:9092", "a,b:1", "h:99999"]
)
def test_wrong_address_is_an_error_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form HOST:PORT|has a port above 65535") as error:
        parse_address(text)
    assert "\n" not in str(error.value)


# -- roles -----------------------------------------------------------------------------------------------------------

BROKER, CONTROLLER = "broker", "controller"


def node(node_id: int, roles: str, voters: str = "", servers: str = "") -> NodeRoles:
    """Parse the settings; each text is a list with commas."""
    return node_roles(node_id, *([item for item in text.split(",") if item] for text in (roles, voters, servers)))


@pytest.mark.parametrize(
    ("voters", "problem"),
    [
        ("host:9093", "Each entry should be in the form"),
        ("1@", "Each entry should be in the form"),
        ("1@a@b:9093", "Each entry should be in the form"),
        ("x@host:9093", "Failed to parse voter ID as an integer from x"),
        ("@host:9093", "Failed to parse voter ID as an integer from "),
        ("2147483648@host:9093", "Failed to parse voter ID as an integer from 2147483648"),
        ("\u0663@host:9093", "Failed to parse voter ID"),
        ("1@host", "Failed to parse host name from entry 1@host"),
        ("1@host:70000", "Failed to parse host name from entry 1@host:70000"),
    ],
)
def test_wrong_voter_is_an_error_with_kafkas_message(voters: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        node(1, CONTROLLER, voters)


def test_wrong_bootstrap_server_is_an_error_with_kafkas_message() -> None:
    with pytest.raises(ValueError, match=r'Failed to parse host name from host .*form "\{host\}:\{port\}"'):
        node(1, CONTROLLER, servers="host")


@pytest.mark.parametrize(
    ("roles", "voters", "servers", "is_single"),
    [
        ("broker,controller", "", "", True),
        ("broker,controller", "1@h:1", "", True),
        ("broker,controller", "1@h:1,2@h:2", "", False),
        ("broker,controller", "2@h:2", "", False),
        ("broker,controller", "", "h:1", False),
        ("broker", "1@h:1", "", False),
        ("controller", "1@h:1", "", False),
    ],
)
def test_cluster_of_one_node_has_both_roles_and_no_other_voter(
    roles: str, voters: str, servers: str, is_single: bool
) -> None:
    assert node(1, roles, voters, servers).is_single == is_single


@pytest.mark.parametrize(
    ("roles", "voters", "servers", "listeners", "problem"),
    [
        ("broker,controller", "", "", "PLAINTEXT", None),
        ("broker,controller", "1@h:1", "", "PLAINTEXT,CONTROLLER", None),
        ("broker", "2@h:1", "", "PLAINTEXT", None),
        ("controller", "1@h:1", "", "CONTROLLER", None),
        ("controller", "", "h:1", "CONTROLLER", None),
        ("broker", "", "", "PLAINTEXT", "If using process.roles, either controller.quorum.bootstrap.servers must"),
        ("controller", "", "", "CONTROLLER", "If using process.roles, either controller.quorum.bootstrap.servers must"),
        ("broker", "1@h:1,2@h:2", "", "PLAINTEXT", r"must not be included in the set of voters .*=Set\(1, 2\)"),
        ("broker", "2@h:1", "", "PLAINTEXT,CONTROLLER", "must not contain a value appearing in the 'listeners'"),
        ("controller", "1@h:1", "", "PLAINTEXT,CONTROLLER", "must only contain KRaft controller listeners"),
        ("controller", "2@h:1", "", "CONTROLLER", r"must be included in the set of voters .*=Set\(2\)"),
        ("broker,controller", "2@h:1", "", "CONTROLLER", "must be included in the set of voters"),
        ("broker,controller", "1@h:1", "", "PLAINTEXT", "must contain at least one value appearing in the 'listeners'"),
    ],
)
def test_rules_about_roles_voters_and_listeners(
    roles: str, voters: str, servers: str, listeners: str, problem: str | None
) -> None:
    rows = [Listener(name, "host", 1) for name in listeners.split(",")]
    found = violation(node(1, roles, voters, servers), ["controller"], rows)
    if problem is None:
        assert found is None
    else:
        with pytest.raises(ValueError, match=problem):
            raise ValueError(found)


def test_each_controller_listener_of_a_controller_must_exist() -> None:
    found = violation(node(1, CONTROLLER, "1@h:1"), ["CONTROLLER", "SECOND"], [Listener("CONTROLLER", "h", 1)])
    assert "must only contain values appearing in the 'listeners'" in (found or "")


@pytest.mark.parametrize(
    ("roles", "voters", "servers", "is_own"),
    [
        ("controller", "", "host:9093", True),
        ("controller", "", "localhost:9093", True),
        ("controller", "", "localhost:9094", False),
        ("controller", "", "host:9093,other:9093", False),
        ("controller", "1@anywhere:1", "", True),
        ("controller", "1@host:9093,2@host:9094", "", False),
        ("broker", "", "host:9093", False),
    ],
)
def test_node_forms_a_cluster_by_itself_only_if_no_other_controller_is_named(
    roles: str, voters: str, servers: str, is_own: bool
) -> None:
    own = [Listener("CONTROLLER", "host", 9093)]
    assert node(1, roles, voters, servers).leads_only_to(own) == is_own


# -- other lists of a broker -----------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(["a", "10.0.0.1", "b.c-d", "::1"]), st.integers(-5, (1 << 31) - 1)))
def test_limits_of_connections_survive_their_text(limits: dict[str, int]) -> None:
    assert connections_per_ip(" , ".join(f"{host} : {count}" for host, count in limits.items())) == limits


@pytest.mark.parametrize("text", ["host", ":5", "host:", "host:x", "host:1.5", "host:2147483648", "a b:5", "h,i:1"])
def test_wrong_limit_of_connections_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"max\.connections\.per\.ip\.overrides"):
        connections_per_ip(text)


@pytest.mark.parametrize(
    ("cordoned", "missing"),
    [([], ""), (["/a"], ""), (["*"], ""), (["/a", "/b"], ""), (["/a", "/c", "/d"], "/c, /d"), (["/a/"], "/a/")],
)
def test_cordoned_directory_must_be_one_of_the_brokers(cordoned: list[str], missing: str) -> None:
    found = unknown_directories(cordoned, ["/a", "/b"])
    assert (found or "").endswith(f"Missing entries : {missing}" if missing else "")
    assert (found is None) == (not missing)
