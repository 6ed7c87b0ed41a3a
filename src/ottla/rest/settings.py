"""Settings of the proxy: one row each. Names, units and defaults are Confluent's where Confluent has the setting.

`read_settings` takes the rows of a properties file. Settings with the prefix `client.` are for the connections to the
brokers (`client.security.protocol`), `producer.`, `consumer.` and `admin.` for one kind of client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.options import COMMON_OPTIONS, INT_MAX, LONG_MAX, Option, read_options
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.web.listeners import TLS_SETTINGS

MIB: Final = 1024 * 1024
PREFIXES: Final = ("client", "producer", "consumer", "admin")
REGISTRY_PREFIX: Final = "schema.registry."
BASIC_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MOST_FETCH_MIN_BYTES: Final = 10_000_000

REST_OPTIONS: Final[tuple[Option, ...]] = (
    Option("id", "str", "", "The name of this proxy; part of the names of consumer instances that it creates."),
    Option("bootstrap.servers", "list", ("localhost:9092",), "Some brokers of the cluster as host:port."),
    Option("schema.registry.url", "str", None, "The schema registry of the formats avro, jsonschema and protobuf."),
    Option("schema.registry.forward.credentials", "bool", False,
           "Whether the registry gets the credentials of each request, instead of schema.registry.*."),
    Option("listeners", "list", ("http://127.0.0.1:8082",), "Where the proxy listens: http:// or https://HOST:PORT."),
    Option("access.log", "bool", False, "Whether each request is a line of the log."),
    Option("access.control.allow.origin", "list", (), "Origins of web pages that may read answers (CORS); * for all."),
    Option("access.control.allow.methods", "list", ("GET", "POST", "PUT", "DELETE"), "The methods of such pages."),
    Option("access.control.allow.headers", "list", ("Content-Type", "Accept", "Authorization", "Last-Event-ID"),
           "The request headers of such pages."),
    Option("advertised.listeners", "list", (), "The URLs of this proxy in answers; default: the Host of the request."),
    Option(
        "anonymous.as.proxy", "bool", False,
        "Whether requests without credentials use the proxy's own credentials at the broker (client.sasl.*).",
    ),
    Option("fetch.min.bytes", "int", -1, "A read of records answers with more than this; -1: it waits its whole time.",
           low=-1, high=MOST_FETCH_MIN_BYTES),
    Option("consumer.request.timeout.ms", "int", 1_000, "How long a read of records waits at most.", low=1,
           high=INT_MAX),
    Option("consumer.request.max.bytes", "int", 64 * MIB, "Most bytes of keys and values in one answer.", low=1,
           high=LONG_MAX),
    Option("consumer.instance.timeout.ms", "int", 300_000, "After this idle time a consumer instance is closed.",
           low=1, high=INT_MAX),
    Option("consumer.instances.max", "int", 1_000, "Most consumer instances of this proxy.", low=1),
    Option("consumer.instances.per.user.max", "int", 100, "Most consumer instances of one user.", low=1),
    Option("consumer.threads", "int", 50, "Accepted for Confluent's files; this proxy reads without threads."),
    Option("request.max.bytes", "int", 16 * MIB, "Most bytes in the body of a request.", low=1),
    Option("request.timeout.ms", "int", 30_000, "How long the body of a request may take to arrive.", low=1),
    Option("requests.max", "int", 1_000, "Most requests at the same time; more are answered with 503.", low=1),
    Option("requests.per.user.max", "int", 200, "Most requests of one user at the same time; more get 429.", low=1),
    Option("requests.max.bytes", "int", 256 * MIB, "Most bytes of bodies in memory; more are answered with 503.",
           low=1),
    Option("users.max", "int", 200, "Most users with open connections to the brokers.", low=1),
    Option("users.idle.ms", "int", 300_000, "After this idle time the connections of a user are closed.", low=1),
    Option("users.login.ms", "int", 600_000, "After this time the credentials of a user are checked again.", low=1),
    Option("login.failure.ms", "int", 2_000, "How long wrong credentials are refused without asking the broker.",
           low=0),
    Option("login.failure.delay.ms", "int", 500, "How long the answer to wrong credentials is delayed.", low=0),
    Option("events.per.user.max", "int", 50, "Most event streams of one user.", low=1),
    Option("events.max", "int", 500, "Most event streams of this proxy.", low=1),
    Option("events.send.timeout.ms", "int", 60_000, "An event stream ends if its client reads nothing for this time.",
           low=1),
    Option("events.keepalive.ms", "int", 15_000, "How often an idle event stream gets a comment.", low=1),
)  # fmt: skip

# Records fail early: an HTTP client gives up long before the two minutes of Kafka's producer.
_PRODUCER_DEFAULTS: Final[Mapping[str, object]] = {
    "linger.ms": 0,
    "max.block.ms": 5_000,
    "request.timeout.ms": 10_000,
    "delivery.timeout.ms": 30_000,
    "buffer.memory": 32 * MIB,
}
_ADMIN_DEFAULTS: Final[Mapping[str, object]] = {"request.timeout.ms": 10_000, "default.api.timeout.ms": 20_000}
_CONSUMER_DEFAULTS: Final[Mapping[str, object]] = {
    "allow.auto.create.topics": False,
    "fetch.max.bytes": 4 * MIB,
    "queued.max.bytes": 8 * MIB,
}
_CLIENT_OPTIONS: Final = {"producer": PRODUCER_OPTIONS, "consumer": CONSUMER_OPTIONS, "admin": COMMON_OPTIONS}


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The settings of the proxy. `values` has each row of REST_OPTIONS by its Python name."""

    values: Mapping[str, Any]
    connection: Mapping[str, object]
    """Settings of all clients, without credentials of a user."""
    clients: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings of the kinds producer, consumer and admin."""
    registry: Mapping[str, object] = field(default_factory=dict)
    """Settings of the registry's clients."""
    tls: Mapping[str, str] = field(default_factory=dict)
    """Settings of https listeners: see `ottla.web.listeners`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def seconds(self, name: str) -> float:
        """Return a setting in ms as seconds."""
        return float(self.values[name]) / 1000

    @property
    def uses_sasl(self) -> bool:
        """Whether the brokers identify users by SASL."""
        return str(self.connection.get("security.protocol", "PLAINTEXT")).upper().startswith("SASL")

    @property
    def has_own_certificate(self) -> bool:
        """Whether the brokers may identify the proxy itself by a certificate."""
        names = ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
        return any(self.connection.get(name) for name in names)

    @property
    def basic_mechanism(self) -> str:
        """The SASL mechanism for users with a name and a password."""
        mechanism = str(self.connection.get("sasl.mechanism", "PLAIN")).upper()
        return mechanism if mechanism in BASIC_MECHANISMS else "PLAIN"


def read_settings(given: Mapping[str, object]) -> RestSettings:
    """Return the settings. Raises ConfigurationError for an unknown name or a wrong value."""
    own: dict[str, object] = {}
    tls: dict[str, str] = {}
    registry: dict[str, object] = {}
    prefixed: dict[str, dict[str, object]] = {prefix: {} for prefix in PREFIXES}
    names = {row.name for row in REST_OPTIONS}
    for name, value in given.items():
        prefix, _, rest = name.partition(".")
        if name not in names and prefix in prefixed and rest:
            prefixed[prefix][rest] = value
        elif name not in names and name.startswith(REGISTRY_PREFIX):
            registry[name] = value
        elif name in TLS_SETTINGS:
            tls[name] = str(value)
        else:
            own[name] = value
    values = read_options(REST_OPTIONS, own)
    connection = {"bootstrap.servers": values["bootstrap_servers"], "client.id": "ottla-rest", **prefixed["client"]}
    clients = {
        "producer": {**_PRODUCER_DEFAULTS, **prefixed["producer"]},
        "consumer": {**_CONSUMER_DEFAULTS, **prefixed["consumer"]},
        "admin": {**_ADMIN_DEFAULTS, **prefixed["admin"]},
    }
    for kind, rows in _CLIENT_OPTIONS.items():
        read_options(rows, {**connection, **clients[kind]})  # a misspelt name is an error of the start
    registry["schema.registry.url"] = values["schema_registry_url"]
    return RestSettings(values, connection, clients, registry, tls)


def known(name: str) -> bool:
    """Whether the proxy has a setting of this name."""
    prefix, _, rest = name.partition(".")
    is_prefixed = (prefix in PREFIXES and rest != "") or name.startswith(REGISTRY_PREFIX)
    return is_prefixed or name in TLS_SETTINGS or any(name == row.name for row in REST_OPTIONS)
