"""Settings of the REST API of a worker, with Kafka Connect's names (RestServerConfig of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.common.failure import Failure
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, between
from ottla.web.listeners import TLS_SETTINGS, Address, parse_listener

_S, _L, _I, _B = SettingType.STRING, SettingType.LIST, SettingType.INT, SettingType.BOOLEAN
_HIGH, _LOW = Importance.HIGH, Importance.LOW
HTTPS_PREFIX: Final = "listeners.https."
MIB: Final = 1024 * 1024
METHODS: Final = ("BASIC", "BEARER")
REST_SETTINGS: Final = ConfigDef(
    [
        Setting("listeners", _L, "Where the worker listens: http://HOST:PORT or https://HOST:PORT.",
                ["http://127.0.0.1:8083"], _HIGH),
        Setting("admin.listeners", _L, "Where /admin is served; default: the listeners, empty: nowhere.", None, _LOW),
        Setting("rest.advertised.host.name", _S, "The host in the address of this worker for other workers.", None,
                _LOW),
        Setting("rest.advertised.port", _I, "The port in that address.", None, _LOW),
        Setting("rest.advertised.listener", _S, "The scheme of that address: http or https.", None, _LOW),
        Setting("access.control.allow.origin", _S, "Origins of web pages that may read answers (CORS); * for all.", "",
                _LOW),
        Setting("access.control.allow.methods", _S, "The methods of such pages; default: GET, POST and HEAD.", "",
                _LOW),
        Setting("rest.extension.classes", _L, "Classes of extensions; there are none here.", [], _LOW),
        Setting("topic.tracking.enable", _B, "Whether the topics of connectors are recorded (KIP-558).", True, _LOW),
        Setting("topic.tracking.allow.reset", _B, "Whether requests may forget these topics.", True, _LOW),
        Setting("response.http.headers.config", _S, "Headers of all answers, as Kafka Connect writes them.", "", _LOW),
        Setting("authentication.method", _S, "NONE, or BASIC and BEARER with commas: users of the brokers log in.",
                "NONE", _LOW),
        Setting("authentication.mechanism", _S, "The SASL mechanism for names and passwords; default: the worker's, or "
                "SCRAM-SHA-512.", None, _LOW),
        Setting("rest.request.timeout.ms", _I, "How long a request may take.", 90_000, _LOW, between(1)),
        Setting("rest.request.max.bytes", _I, "The largest body of a request.", 8 * MIB, _LOW, between(1)),
        Setting("rest.request.idle.ms", _I, "How long the next part of a body may take.", 30_000, _LOW, between(1)),
        Setting("access.log", _B, "Whether each request is a line of the log.", False, _LOW),
    ]
)  # fmt: skip
_NO_EXTENSIONS: Final = (
    "Remove the setting. Users log in with authentication.method=BASIC and TLS certificates with"
    " ssl.client.authentication=REQUIRED; anything else belongs in a proxy in front of the worker."
)


@dataclass(frozen=True)
class RestSettings:
    """The parsed settings."""

    listeners: tuple[Address, ...]
    admin_listeners: tuple[Address, ...] | None
    """None: the other listeners serve /admin."""
    tls: Mapping[str, str]
    methods: frozenset[str]
    """How users log in; empty: not at all."""
    response_headers: tuple[tuple[str, str], ...]
    values: Mapping[str, Any]

    @classmethod
    def read(cls, given: Mapping[str, str]) -> RestSettings:
        """Parse the settings of a worker; others are skipped. Raises Failure."""
        try:
            values = REST_SETTINGS.parse(given)
        except SettingError as error:
            raise Failure(str(error), exit_code=2) from error
        if values["rest.extension.classes"]:
            names = ", ".join(values["rest.extension.classes"])
            raise Failure(f"rest.extension.classes: {names}: a worker in Python cannot load Java classes",
                          _NO_EXTENSIONS, exit_code=2)  # fmt: skip
        admin = values["admin.listeners"]
        return cls(
            _addresses("listeners", values["listeners"]),
            None if admin is None else _addresses("admin.listeners", admin),
            _tls(given),
            _methods(values["authentication.method"]),
            _headers(values["response.http.headers.config"]),
            values,
        )

    def seconds(self, name: str) -> float:
        """Return a setting in milliseconds as seconds."""
        return float(self.values[name]) / 1000

    def advertised(self, bound: Address) -> Address:
        """Return the address of this worker for other workers, from the first bound listener."""
        scheme = self.values["rest.advertised.listener"]
        return Address(
            self.values["rest.advertised.host.name"] or bound.host,
            self.values["rest.advertised.port"] or bound.port,
            bound.uses_tls if scheme is None else scheme.lower() == "https",
        )


def _addresses(name: str, words: list[str]) -> tuple[Address, ...]:
    try:
        return tuple(parse_listener(each) for each in words if each)
    except ValueError as error:
        raise Failure(f"{name}: {error}", exit_code=2) from error


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    plain = {name: given[name] for name in TLS_SETTINGS if name in given}
    own = {name: given[HTTPS_PREFIX + name] for name in TLS_SETTINGS if HTTPS_PREFIX + name in given}
    return {**plain, **own}


def _methods(text: str) -> frozenset[str]:
    chosen = {each.strip().upper() for each in text.split(",")} - {"NONE", ""}
    unknown = chosen - set(METHODS)
    if unknown:
        raise Failure(f"authentication.method is {text}; it must be NONE, or BASIC and BEARER", exit_code=2)
    return frozenset(chosen)


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `set NAME: VALUE, add NAME: VALUE`. Raises Failure."""
    found = []
    for each in (word.strip().strip('"') for word in text.split(",") if word.strip()):
        action, _, rest = each.partition(" ")
        name, colon, value = rest.partition(":")
        if action not in ("set", "add", "setDate", "addDate") or not colon or not name.strip():
            raise Failure(f"response.http.headers.config: {each!r} is not of the form `set NAME: VALUE`", exit_code=2)
        found.append((name.strip(), value.strip()))
    return tuple(found)
