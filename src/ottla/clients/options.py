"""Settings of clients: one row each, with Kafka's name, which is also accepted with underscores.

`read_options(rows, given)` takes "bootstrap.servers" and "bootstrap_servers" alike and returns every setting by its
Pythonic name, with defaults for the others. An unknown setting or a wrong value is a ConfigurationError with a
suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import isfinite
from typing import Any, Final

from ottla.clients import foreign_settings, late
from ottla.clients.errors import ConfigurationError
from ottla.common.settings import Setting

REQUIRED: Final[Any] = type("_Required", (), {"__repr__": lambda _: "REQUIRED"})()
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Option(Setting):
    """One setting of a client. `default` may be REQUIRED.

    A "list" is a sequence of strings or one string with commas. An "object" is any value (None where that is the
    default). A "password" never appears in an error message. `aliases` are other clients' names for the setting.
    """

    aliases: tuple[str, ...] = field(default=(), kw_only=True)

    def read(self, value: object) -> Any:
        """Return the value in its type, and the default for None; raises ConfigurationError."""
        if value is None and self.default is not REQUIRED:
            return self.default
        read = _READERS[self.kind](value)
        if read is None:
            shown = f"a {type(value).__name__}" if self.sensitive else repr(value)
            raise ConfigurationError(f"{self.name} is {shown}; it must be {_KIND_TEXT[self.kind]}")
        if self.kind == "str" and self.choices:
            read = next((choice for choice in self.choices if choice.lower() == read.strip().lower()), read)
        if self.choices and any(item not in self.choices for item in (read if self.kind == "list" else [read])):
            raise ConfigurationError(f"{self.name} is {value!r}; it must be one of {', '.join(self.choices)}")
        low, high = self.low, self.high
        if self.kind in ("int", "float"):  # The largest numbers of Kafka's settings have 64 bits.
            low, high = -LONG_MAX if low is None else low, LONG_MAX if high is None else high
        if low is not None and read < low:
            raise ConfigurationError(f"{self.name} is {value!r}; it must be at least {_number(low)}")
        if high is not None and read > high:
            raise ConfigurationError(f"{self.name} is {value!r}; it must be at most {_number(high)}")
        return read


def _number(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else f"{limit:g}"


def _read_int(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return int(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def _read_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _read_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _read_str(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    text = value if isinstance(value, str) else str(value)
    return text if _is_text(text) else None


def _is_text(value: str) -> bool:
    """Whether the value has a form on the wire: a word of a command line that is not UTF-8 has lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_list(value: object) -> list[str] | None:
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if isinstance(parts, Sequence) and all(isinstance(part, str) and _is_text(part) for part in parts):
        return list(parts)
    return None


_READERS: Final[Mapping[str, Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "str": _read_str,
    "password": _read_str,
    "list": _read_list,
    "object": lambda value: value,
}
_KIND_TEXT: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string of UTF-8 text",
    "password": "a string of UTF-8 text",
    "list": "a list of strings of UTF-8 text, or one string with commas",
    "object": "something other than None",
}

SECURITY_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "security.protocol",
        "str",
        "PLAINTEXT",
        "The protocol of connections to the brokers.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Option("ssl.context", "object", None, "An ssl.SSLContext, used instead of the other ssl settings."),
    Option(
        "ssl.truststore.location",
        "str",
        None,
        "A PEM file (or directory) of trusted authorities; default: the system's.",
        aliases=("ssl.ca.location",),
    ),
    Option("ssl.truststore.certificates", "str", None, "The same as PEM text.", aliases=("ssl.ca.pem",)),
    Option("ssl.truststore.type", "str", "PEM", "The format of that file: PEM only."),
    Option("ssl.truststore.password", "password", None, "Not supported: PEM files of certificates have no password."),
    Option("ssl.keystore.location", "str", None, "A PEM file with this client's private key and certificates."),
    Option(
        "ssl.keystore.certificate.chain",
        "str",
        None,
        "This client's certificates as PEM text.",
        aliases=("ssl.certificate.pem",),
    ),
    Option("ssl.keystore.key", "password", None, "This client's private key as PEM text.", aliases=("ssl.key.pem",)),
    Option("ssl.keystore.type", "str", "PEM", "The format of that file: PEM only."),
    Option("ssl.keystore.password", "password", None, "Not supported: for PEM files set ssl.key.password."),
    Option("ssl.certificate.location", "str", None, "A PEM file with this client's certificates alone."),
    Option("ssl.key.location", "str", None, "A PEM file with this client's private key."),
    Option("ssl.key.password", "password", None, "The password of the private key."),
    Option(
        "ssl.endpoint.identification.algorithm",
        "str",
        "https",
        "https: a broker's certificate must name its host. Empty: the name is not checked.",
        choices=("https", "none", ""),
    ),
    Option("enable.ssl.certificate.verification", "bool", True, "False: every certificate is accepted. Not safe."),
    Option(
        "sasl.mechanism",
        "str",
        None,
        "The SASL mechanism.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        aliases=("sasl.mechanisms",),
    ),
    Option("sasl.username", "str", None, "The user's name, for PLAIN and SCRAM."),
    Option("sasl.password", "password", None, "The user's password."),
    Option("sasl.jaas.config", "password", None, "User name and password in the syntax of Kafka's Java clients."),
    Option(
        "sasl.oauth.token.provider",
        "object",
        None,
        "A function that returns an OAUTHBEARER token, as a string or OAuthToken. It may block.",
    ),
    Option(
        "sasl.oauthbearer.token.endpoint.url",
        "str",
        None,
        "The address of the token endpoint (KIP-768), or the URL of a file with a token: file:///...",
    ),
    Option(
        "sasl.oauthbearer.jwt.retriever.class",
        "str",
        None,
        "JwtBearerJwtRetriever: the JWT bearer grant in place of client credentials (KIP-1139).",
    ),
    Option(
        "sasl.oauthbearer.client.credentials.client.id",
        "str",
        None,
        "The client id for the token endpoint.",
        aliases=("sasl.oauthbearer.client.id",),
    ),
    Option(
        "sasl.oauthbearer.client.credentials.client.secret",
        "password",
        None,
        "The client secret for the token endpoint.",
        aliases=("sasl.oauthbearer.client.secret",),
    ),
    Option("sasl.oauthbearer.scope", "str", None, "The requested scope."),
    Option("sasl.oauthbearer.assertion.file", "str", None, "A file with a signed assertion for the token endpoint."),
    Option(
        "sasl.oauthbearer.assertion.private.key.file",
        "str",
        None,
        "A PEM file with the private key that signs assertions; needs ottla[security].",
    ),
    Option("sasl.oauthbearer.assertion.private.key.passphrase", "password", None, "The password of that key."),
    Option(
        "sasl.oauthbearer.assertion.algorithm",
        "str",
        "RS256",
        "The algorithm that signs assertions.",
        choices=("RS256", "ES256"),
    ),
    Option(
        "sasl.oauthbearer.assertion.template.file", "str", None, "A JSON file with header and payload of assertions."
    ),
    Option("sasl.oauthbearer.assertion.claim.iss", "str", None, "The issuer of assertions."),
    Option("sasl.oauthbearer.assertion.claim.sub", "str", None, "The subject of assertions."),
    Option("sasl.oauthbearer.assertion.claim.aud", "str", None, "The audience of assertions."),
    Option(
        "sasl.oauthbearer.assertion.claim.exp.seconds", "int", 300, "The lifetime of an assertion.", low=0, high=86_400
    ),
    Option(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "int",
        60,
        "How long before its creation an assertion is valid.",
        low=0,
        high=3_600,
    ),
    Option(
        "sasl.oauthbearer.assertion.claim.jti.include", "bool", False, "Whether each assertion has an id of its own."
    ),
    Option(
        "sasl.oauthbearer.extensions", "list", (), "SASL extensions sent with the token: name=value, ... (KIP-342)."
    ),
)

COMMON_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "bootstrap.servers",
        "list",
        REQUIRED,
        "Some brokers of the cluster as host:port; the client discovers the others.",
    ),
    Option("client.id", "str", "", "A name for this client in the brokers' logs, metrics and quotas."),
    Option("request.timeout.ms", "int", 30_000, "How long a broker may take to answer.", low=1, high=INT_MAX),
    Option("default.api.timeout.ms", "int", 60_000, "How long a call with retries may take.", low=1, high=INT_MAX),
    Option("socket.connection.setup.timeout.ms", "int", 10_000, "How long opening a connection may take.", low=1),
    Option("connections.max.idle.ms", "int", 540_000, "After this idle time a connection is closed."),
    Option("reconnect.backoff.ms", "int", 50, "How long to wait before reconnecting to a broker.", low=0),
    Option("reconnect.backoff.max.ms", "int", 1_000, "The longest such wait; it doubles with each failure.", low=0),
    Option("retry.backoff.ms", "int", 100, "How long to wait before a request is retried.", low=0),
    Option("retry.backoff.max.ms", "int", 1_000, "The longest such wait; it doubles with each failure.", low=0),
    Option("metadata.max.age.ms", "int", 300_000, "After this time the metadata of topics is refreshed.", low=0),
    Option("on.event", "object", None, "A function of one event: problems, connections, rebalances, statistics."),
    Option("statistics.interval.ms", "int", 0, "How often statistics are reported to on.event; 0 is never.", low=0),
    Option("enable.metrics.push", "bool", True, "Push metrics to brokers that ask for them (KIP-714)."),
    *SECURITY_OPTIONS,
)
# As in Kafka, whose AdminClientConfig alone has this default.
ADMIN_OPTIONS: Final[tuple[Option, ...]] = tuple(
    replace(row, default=False) if row.name == "enable.metrics.push" else row for row in COMMON_OPTIONS
)


def merged(settings: object, given: Mapping[str, object]) -> dict[str, object]:
    """Merge the settings of a mapping and of keywords. Raises ConfigurationError if the first is not a mapping."""
    if settings is None:
        return dict(given)
    if not isinstance(settings, Mapping):
        raise ConfigurationError(_not_settings(settings))
    both = set(settings) & set(given)
    if both:
        raise ConfigurationError(f"{', '.join(sorted(both))}: given twice, in the mapping and as a keyword")
    return {**settings, **given}


def _not_settings(given: object) -> str:
    """Return the error's text for a first argument that is not a mapping: addresses, or topics as in kafka-python."""
    rule = "Settings are a mapping or keyword arguments"
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(name, str) for name in names):
        return f"{rule}, not a {type(given).__name__}"
    if names and all(":" in name for name in names):
        return f"{rule}, not {given!r}: write bootstrap_servers={given!r}"
    return f"{rule}, not {given!r}: topics are passed to subscribe() or send(), addresses as bootstrap_servers"


def read_options(rows: Iterable[Option], given: Mapping[str, object]) -> dict[str, Any]:
    """Return every setting of `rows` by its Pythonic name: `given` values, and defaults for the others.

    Raises ConfigurationError for an unknown or repeated name, a wrong value or a missing one.
    """
    own = {row.python_name: row for row in rows}
    by_name = _by_name(own.values())
    values: dict[str, Any] = {}
    for name, value in given.items():
        row = by_name.get(name.replace(".", "_"))
        if row is None:
            raise ConfigurationError(unknown_setting(name, own.values()))
        python_name = row.python_name
        if python_name in values:
            names = [each for each in given if by_name.get(each.replace(".", "_")) is row]
            raise ConfigurationError(f"{row.name} is given twice, as {' and as '.join(map(repr, names))}")
        values[python_name] = row.read(value)
    for python_name, row in own.items():
        if python_name not in values:
            if row.default is REQUIRED:
                raise ConfigurationError(f"{row.name} is missing: {row.doc}")
            values[python_name] = row.default
        elif row.default is REQUIRED and values[python_name] in ("", []):
            raise ConfigurationError(f"{row.name} is empty: {row.doc}")
    if "bootstrap_servers" in values:
        parse_servers(values["bootstrap_servers"])
    if values.get("on_event") is not None and not callable(values["on_event"]):
        raise ConfigurationError(f"on.event is {values['on_event']!r}; it must be a function of one event")
    return values


def _by_name(rows: Iterable[Option]) -> dict[str, Option]:
    """Return the rows by their Pythonic names and aliases."""
    rows = list(rows)
    aliases = {alias.replace(".", "_"): row for row in rows for alias in row.aliases}
    return aliases | {row.python_name: row for row in rows}


def unknown_setting(name: str, rows: Iterable[Option]) -> str:
    """Return the error's text for an unknown setting, with the most similar one."""
    by_name = _by_name(rows)
    theirs = foreign_settings.find(name)
    if theirs is not None:
        return foreign_settings.message(name, theirs, is_known=theirs.here.replace(".", "_") in by_name)
    of_others = late.setting_owners.hint(name, [row.name for row in by_name.values()])
    if of_others is not None:
        return of_others
    close = get_close_matches(name.lower().replace(".", "_"), by_name, n=1, cutoff=late.setting_owners.SIMILAR)
    if not close:
        return f"There is no setting {name!r}"
    row = by_name[close[0]]
    meant = row.name if "." in name else row.python_name
    return f"There is no setting {name!r}; did you mean {meant!r}?"


def parse_servers(servers: Iterable[str]) -> list[tuple[str, int]]:
    """Return host and port of each "host:port" or "[v6 address]:port"; raises ConfigurationError."""
    parsed = []
    for server in servers:
        host, colon, port = server.rpartition(":")
        host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
            example = f"127.0.0.1:{server}" if server.isdecimal() else f"{server or 'localhost'}:9092"
            hint = "" if colon else f", such as {example}"
            raise ConfigurationError(f"bootstrap.servers has {server!r}; each must be host:port{hint}")
        parsed.append((host, int(port)))
    if not parsed:
        raise ConfigurationError("bootstrap.servers is empty: give it at least one host:port")
    return parsed
