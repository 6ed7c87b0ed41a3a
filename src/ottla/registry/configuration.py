"""The settings of a registry, with Confluent's names where they exist.

`kafkastore.NAME` is the setting NAME of the clients, such as `kafkastore.sasl.mechanism`. `ssl.NAME` belongs to the
listeners. `ottla.login.NAME` overrides `kafkastore.NAME` for the log-ins of users. Settings of Confluent's registry
that have no effect here are accepted with a warning; an unknown name is an error with a suggestion.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, INT_MAX, REQUIRED, Option, read_options
from ottla.common.failure import Failure
from ottla.registry.election import GroupSettings, Identity
from ottla.registry.logins import BASIC, BEARER, LoginSettings
from ottla.registry.topic import LogSettings, TopicSettings
from ottla.tools.suggestions import did_you_mean
from ottla.web.listeners import CLIENT_AUTHENTICATION, TLS_SETTINGS, Address, parse_listener

logger = logging.getLogger(__name__)

_STORE: Final = "kafkastore."
_LOGIN: Final = "ottla.login."
_TOPIC_CONFIG: Final = "kafkastore.topic.config."
_NONE: Final = "NONE"
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "listeners",
        "list",
        ("http://127.0.0.1:8081",),
        "The addresses to listen on: http://HOST:PORT or https://HOST:PORT. Port 0 is a free port.",
    ),
    Option("host.name", "str", "", "The host in the address that other nodes forward to; default: the listener's."),
    Option("host.port", "int", 0, "The port in that address; 0: the listener's.", low=0, high=65_535),
    Option(
        "inter.instance.protocol",
        "str",
        "",
        "The scheme of that address, http or https; default: the first listener's.",
        choices=("", "http", "https"),
    ),
    Option("kafkastore.bootstrap.servers", "list", REQUIRED, "Some brokers of the cluster as host:port."),
    Option("kafkastore.topic", "str", "_schemas", "The topic of schemas: one partition, compacted."),
    Option(
        "kafkastore.topic.replication.factor",
        "int",
        3,
        "The replicas of the topic when it is created; fewer if the cluster has fewer brokers.",
        low=1,
        high=32_767,
    ),
    Option("kafkastore.timeout.ms", "int", 5_000, "How long a write to the topic may take.", low=1, high=INT_MAX),
    Option(
        "kafkastore.init.timeout.ms",
        "int",
        60_000,
        "How long the start may wait for the brokers.",
        low=1,
        high=INT_MAX,
    ),
    Option(
        "schema.registry.group.id",
        "str",
        "schema-registry",
        "The group of all nodes of one registry, which elects the primary. The transactional id derives from it.",
    ),
    Option("leader.eligibility", "bool", True, "Whether the node may be the primary.", aliases=("master.eligibility",)),
    Option(
        "leader.connect.timeout.ms", "int", 5_000, "How long a connection to the primary may take.", low=1, high=INT_MAX
    ),
    Option("leader.read.timeout.ms", "int", 60_000, "How long the primary may take to respond.", low=1, high=INT_MAX),
    Option("kafkagroup.session.timeout.ms", "int", 10_000, "Without heartbeats, a node leaves the group.", low=1),
    Option("kafkagroup.heartbeat.interval.ms", "int", 3_000, "The time between heartbeats.", low=1),
    Option("kafkagroup.rebalance.timeout.ms", "int", 300_000, "How long the group waits for a member.", low=1),
    Option(
        "schema.compatibility.level",
        "str",
        "BACKWARD",
        "The compatibility of subjects without a level of their own, until the API sets a global level.",
        choices=LEVELS,
        aliases=("avro.compatibility.level",),
    ),
    Option("mode.mutability", "bool", True, "Whether the API may change modes."),
    Option(
        "size.limit.filter.max.request.body.size",
        "int",
        16 * 1024 * 1024,
        "The largest body of a request, in bytes.",
        low=1,
    ),
    Option(
        "authentication.method",
        "list",
        (_NONE,),
        "How users authenticate: NONE, or BASIC and BEARER; the broker checks the credentials.",
        choices=(_NONE, BASIC, BEARER),
    ),
    Option("authentication.skip.paths", "list", (), "Paths that need no authentication, such as / for health checks."),
    Option("super.users", "str", "", "Principals that may do everything, with semicolons: User:admin;User:registry."),
    Option("ottla.rules.file", "str", None, "The rights by subject, in the format of Karapace's authorization file."),
    Option("ottla.login.cache.ms", "int", 30_000, "How long credentials are valid without a check.", low=0),
    Option("ottla.login.name.claim", "str", "sub", "The claim of a bearer token with the name of the user."),
    Option("ottla.insecure", "bool", False, "Allow listeners that other machines reach without authentication."),
    Option("ottla.access.log", "bool", False, "Log a line for each request."),
)
"""The settings without the prefixes."""

# Settings of Confluent's registry, or its beginnings, that change nothing here.
_WITHOUT_EFFECT: Final = (
    "access.control.", "associations.enable", "authentication.realm", "authentication.roles", "client.context.prefix",
    "confluent.", "debug", "dos.filter.", "enable.fips", "enable.store.health.check", "idle.timeout.ms",
    "init.resource.",
    "kafkastore.checkpoint.", "kafkastore.connection.url", "kafkastore.group.id", "kafkastore.init.wait.for.reader",
    "kafkastore.topic.skip.validation", "kafkastore.update.handlers", "kafkastore.write.max.retries",
    "leader.election.", "metadata.encoder.", "metric", "request.", "resource.", "response.", "schema.cache.",
    "schema.canonicalize.", "schema.providers", "schema.registry.inter.instance.", "schema.registry.resource.",
    "schema.registry.zk.", "shutdown.graceful.", "size.limit.filter.enabled", "thread.pool.", "websocket.",
)  # fmt: skip


class RegistrySettings(NamedTuple):
    """The settings of one node."""

    listeners: tuple[Address, ...]
    tls: Mapping[str, str]
    log: LogSettings
    group: GroupSettings
    login: LoginSettings
    values: Mapping[str, Any]
    """The settings of `OPTIONS` by their Python names."""

    @property
    def authenticates(self) -> bool:
        """Whether every request needs credentials."""
        return bool(self.login.methods)

    @property
    def super_users(self) -> frozenset[str]:
        """The principals that may do everything."""
        return frozenset(filter(None, map(str.strip, self.values["super_users"].split(";"))))

    def identity(self, bound: Address) -> Identity:
        """Return the address for other nodes, given the bound address of the listener for them."""
        host = self.values["host_name"] or (socket.getfqdn() if _is_wildcard(bound.host) else bound.host)
        scheme = "https" if bound.uses_tls else "http"
        return Identity(scheme, host, self.values["host_port"] or bound.port, self.values["leader_eligibility"])

    def listener_for_nodes(self, bound: list[Address]) -> Address:
        """Return the listener that other nodes forward to. Raises Failure."""
        scheme = self.values["inter_instance_protocol"]
        for each in bound:
            if not scheme or each.uses_tls == (scheme == "https"):
                return each
        raise Failure(f"inter.instance.protocol is {scheme}, but no listener has it", exit_code=2)


def read_settings(given: Mapping[str, str]) -> RegistrySettings:
    """Read settings by their names. Raises Failure with exit code 2."""
    own, clients, login, tls, topic = _sorted(given)
    try:
        values = read_options(OPTIONS, own)
        clients["bootstrap.servers"] = ",".join(values["kafkastore_bootstrap_servers"])
        clients.setdefault("client.id", "schema-registry")
        read_options(COMMON_OPTIONS, clients)
        login = clients | login
        read_options(COMMON_OPTIONS, login)
        listeners = tuple(map(parse_listener, values["listeners"]))
    except (ConfigurationError, ValueError) as error:
        raise Failure(str(error), exit_code=2) from error
    if not listeners:
        raise Failure("listeners is empty: give it at least one http://HOST:PORT", exit_code=2)
    if values["ottla_rules_file"] and not _identifies_users(values, tls):
        raise Failure(
            "ottla.rules.file needs users",
            "Set authentication.method, or ssl.client.authentication for certificates.",
            exit_code=2,
        )
    group_id = values["schema_registry_group_id"]
    return RegistrySettings(
        listeners,
        tls,
        LogSettings(
            clients,
            TopicSettings(values["kafkastore_topic"], values["kafkastore_topic_replication_factor"], topic),
            f"{group_id}-{values['kafkastore_topic']}",
            values["kafkastore_init_timeout_ms"] / 1000,
            values["kafkastore_timeout_ms"] / 1000,
        ),
        GroupSettings(
            group_id,
            values["kafkagroup_session_timeout_ms"],
            values["kafkagroup_heartbeat_interval_ms"],
            values["kafkagroup_rebalance_timeout_ms"],
        ),
        _login(values, login),
        values,
    )


def _identifies_users(values: Mapping[str, Any], tls: Mapping[str, str]) -> bool:
    client_auth = tls.get(CLIENT_AUTHENTICATION) or tls.get("ssl.client.auth") or "none"
    return set(values["authentication_method"]) != {_NONE} or client_auth.lower() not in {"none", "false"}


def _login(values: Mapping[str, Any], clients: Mapping[str, Any]) -> LoginSettings:
    methods = frozenset(values["authentication_method"]) - {_NONE}
    mechanism = clients.get("sasl.mechanism", "SCRAM-SHA-512")
    if BASIC in methods and mechanism == "OAUTHBEARER":
        mechanism = "SCRAM-SHA-512"
    return LoginSettings(
        clients, methods, mechanism, values["ottla_login_cache_ms"] / 1000, values["ottla_login_name_claim"]
    )


def _sorted(
    given: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, str], dict[str, str]]:
    """Sort settings into own ones, clients', log-ins', listeners' TLS and the topic's. Raises Failure."""
    own: dict[str, Any] = {}
    clients: dict[str, Any] = {}
    login: dict[str, Any] = {}
    tls: dict[str, str] = {}
    topic: dict[str, str] = {}
    names = {name for option in OPTIONS for name in (option.name, *option.aliases)}
    of_clients = {name for option in COMMON_OPTIONS for name in (option.name, *option.aliases)}
    for name, value in given.items():
        if name in names:
            own[name] = value
        elif name.startswith(_TOPIC_CONFIG):
            topic[name.removeprefix(_TOPIC_CONFIG)] = value
        elif name.startswith(_STORE) and name.removeprefix(_STORE) in of_clients:
            clients[name.removeprefix(_STORE)] = value
        elif name.startswith(_LOGIN) and name.removeprefix(_LOGIN) in of_clients:
            login[name.removeprefix(_LOGIN)] = value
        elif name in TLS_SETTINGS:
            tls[name] = value
        elif name.startswith(_WITHOUT_EFFECT):
            logger.warning("%s has no effect", name)
        else:
            known = [*names, *TLS_SETTINGS, *(f"{_STORE}{each}" for each in of_clients)]
            raise Failure(f"unknown setting {name}", *did_you_mean(name, known), exit_code=2)
    return own, clients, login, tls, topic


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
