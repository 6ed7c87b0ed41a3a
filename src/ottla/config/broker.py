"""`BrokerConfig`: the typed settings of one broker, checked against each other.

Built from the text of `server.properties` and `-X` options. An unsupported value raises `ConfigError` in one line. A
value that Kafka accepts and that has no effect here adds a line to `warnings`, which the start of the broker logs.
Values are read by Kafka's names: `config["num.partitions"]`, or typed for mypy: `config.int("num.partitions")`.
Immutable; `with_dynamic` returns a copy with dynamic settings.
"""

import os
from collections.abc import Mapping

from ottla.common.errors import KafkaError
from ottla.config import metrics_rows
from ottla.config.authorization import OF_THE_AUTHORIZER, AuthorizerSettings, authorizer_settings
from ottla.config.checks import ALL_DIRECTORIES, connections_per_ip, unknown_directories, violation
from ottla.config.defaults import OTTLA_DEFAULTS, SINGLE_NODE_DEFAULTS
from ottla.config.listener_settings import PREFIX, broker_setting, listener_setting, prefix_of
from ottla.config.listeners import Listener, SecurityProtocol, parse_address, parse_listener
from ottla.config.roles import NodeRoles, node_roles
from ottla.config.roles import violation as role_violation
from ottla.config.server_setting import ServerSetting
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS, parse_value
from ottla.config.synonyms import TOPIC_SYNONYMS
from ottla.config.unsupported import reason
from ottla.config.values import Value, trim

DEFAULT_VALUES: dict[str, Value] = {name: setting.default for name, setting in BROKER_SETTINGS.items()} | {
    name: parse_value(BROKER_SETTINGS[name], text) for name, (text, _) in OTTLA_DEFAULTS.items()
}
CLUSTER_DEFAULT_VALUES = DEFAULT_VALUES | {name: BROKER_SETTINGS[name].default for name in SINGLE_NODE_DEFAULTS}
# Kafka also only warns about unknown names, because files contain settings of plug-ins.
_FOREIGN_PREFIXES = ("confluent.", "listener.name.", "broker.quota.", "rsm.config.", "rlmm.config.")

# Kafka 4.0 removed the old name. A properties file for Kafka 3 must not silently disable delegation tokens.
_NEW_NAMES = {"delegation.token.master.key": "delegation.token.secret.key"}


INSECURE = "ottla.insecure"
"""Ottla's own setting; Kafka has no equivalent, and ignores it."""


class ConfigError(ValueError):
    """An unsupported configuration; the message is one line with the setting and the remedy."""


class BrokerConfig:
    """The settings of one broker. `properties` are the configured values, by Kafka's names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        properties = _renamed(properties, self.warnings)
        self.static: dict[str, str] = {name: trim(text) for name, text in properties.items()}
        self._values: dict[str, Value] = dict(DEFAULT_VALUES)
        self._overrides: dict[str, Value] = {}
        """The values of `listener.name.<listener>.<setting>`, by their full names."""
        for name, text in properties.items():
            _check_encodable(name, text)
            self._take(name, text)
        self.node_id = self._node_id()
        self.roles: NodeRoles = self._roles()
        """The roles of the node, and how it finds the quorum."""
        if not self.roles.is_single:
            self._values |= {name: CLUSTER_DEFAULT_VALUES[name] for name in SINGLE_NODE_DEFAULTS - self.static.keys()}
        self._protocols = self._parse_protocols()
        listeners = self._parse_listeners("listeners")
        controllers = {name.upper() for name in self.items("controller.listener.names")}
        self.listeners: list[Listener] = [each for each in listeners if each.name not in controllers]
        """The listeners of clients and brokers; empty without the role of a broker."""
        self.controller_listeners: list[Listener] = [each for each in listeners if each.name in controllers]
        """The listeners of the controller for other nodes and tools; empty by default."""
        self._check_listeners()
        self.advertised: list[Listener] = self._advertised()
        """The advertised address of each of `listeners`, in their order; port 0 stands for the bound port."""
        self.advertised_controllers: list[Listener] = self._advertised_controllers()
        """The same for `controller_listeners`."""
        self.inter_broker_listener: str = self._inter_broker_listener()
        """The listener that brokers use among themselves; empty without the role of a broker."""
        self.formats_itself: bool = self.roles.leads_only_to([*self.controller_listeners, *self.advertised_controllers])
        """Whether no other node can have the cluster's metadata, so that an empty directory is a new cluster."""
        self.log_dirs: list[str] = self._log_dirs()
        self._check_together()
        self.connections_per_ip: dict[str, _Int] = connections_per_ip(
            self.text("max.connections.per.ip.overrides") or ""
        )
        """`max.connections.per.ip.overrides` as a mapping."""

    # -- reading -----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Value:
        """Return the typed value; raises KeyError for an unknown setting."""
        return self._values[name]

    def bool(self, name: str) -> bool:
        """Return the value of a boolean setting."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean")
        return value

    def float(self, name: str) -> "_Float":
        """Return the value of a numeric setting."""
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is not a number")
        return float(value)

    def text(self, name: str) -> str | None:
        """Return the value of a string setting, or None."""
        value = self._values[name]
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is not text")
        return value

    def int(self, name: str) -> "_Int":
        """Return the value of an integer setting; raises TypeError if it is None."""
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is not a whole number")
        return value

    def items(self, name: str) -> tuple[str, ...]:
        """Return the items of a list setting; empty for None."""
        value = self._values[name]
        if value is not None and not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list")
        return value or ()

    @property
    def values(self) -> Mapping[str, Value]:
        """All typed values by Kafka's names."""
        return self._values

    @property
    def authorizer(self) -> AuthorizerSettings | None:
        """The authorizer and its settings; None allows everything."""
        return authorizer_settings(self.static)

    @property
    def rack(self) -> str | None:
        """`broker.rack`."""
        return self.text("broker.rack") or None

    @property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log."""
        return self.text("metadata.log.dir") or self.log_dirs[0]

    @property
    def directories(self) -> list[str]:
        """All directories of the node, each once: `log_dirs` and the directory of the metadata log."""
        return list(dict.fromkeys([*self.log_dirs, self.metadata_log_dir]))

    @property
    def cordoned_log_dirs(self) -> list[str]:
        """The directories of `log_dirs` that receive no new partitions. KIP-1066."""
        cordoned = self.items("cordoned.log.dirs")
        return [each for each in self.log_dirs if each in cordoned or ALL_DIRECTORIES in cordoned]

    @property
    def is_insecure(self) -> "_Bool":
        """Whether listeners without authentication may be open to other machines."""
        return self.static.get(INSECURE, "false").lower() == "true"

    @property
    def listener_overrides(self) -> Mapping[str, Value]:
        """The values of `listener.name.<listener>.<setting>`, by their full names."""
        return self._overrides

    def security_protocol(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a listener, also of another node's. Raises KeyError for an unknown name."""
        return self._protocols[listener.upper()]

    def for_listener(self, listener: str, mechanism: str | None = None) -> "BrokerConfig":
        """Return a copy with the values of one listener, and of one SASL mechanism of it.

        `listener.name.internal.ssl.client.auth` then is `ssl.client.auth`.
        """
        values = dict(self._values)
        for prefix in (prefix_of(listener), *([] if mechanism is None else [prefix_of(listener, mechanism)])):
            for name, value in self._overrides.items():
                base = name.removeprefix(prefix)
                if name.startswith(prefix) and base in BROKER_SETTINGS:
                    values[base] = value
        return self._with(values, self._overrides)

    def _with(self, values: dict[str, Value], overrides: dict[str, Value]) -> "BrokerConfig":
        changed = object.__new__(BrokerConfig)
        changed.__dict__.update(self.__dict__)
        changed._values, changed._overrides = values, overrides
        return changed

    def with_dynamic(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> "BrokerConfig":
        """Return a copy with dynamic settings; `per_broker` overrides `cluster_wide`.

        A dynamic value that cannot be parsed is skipped: an earlier version with other limits accepted it. Listeners,
        directories and the node's id do not change.
        """
        values, overrides = dict(self._values), dict(self._overrides)
        for name, text in {**cluster_wide, **per_broker}.items():
            setting = broker_setting(name)
            if setting is None or setting.update == "read-only":
                continue
            try:
                (overrides if name.startswith(PREFIX) else values)[name] = parse_value(setting, text)
            except KafkaError:
                continue
        changed = self._with(values, overrides)
        try:
            changed.connections_per_ip = connections_per_ip(changed.text("max.connections.per.ip.overrides") or "")
        except ValueError:
            changed.connections_per_ip = self.connections_per_ip
        return changed

    # -- parsing -----------------------------------------------------------------------------------------------

    def _take(self, name: str, text: str) -> None:
        if name == INSECURE:
            if text.strip().lower() not in {"true", "false"}:
                raise ConfigError(f"{INSECURE}={text} must be true or false")
            return
        setting = broker_setting(name)
        if setting is None:
            if name not in OF_THE_AUTHORIZER or not self.static.get("authorizer.class.name"):
                self.warnings.append(_unknown(name))
            return
        try:
            value = parse_value(setting, text)
        except KafkaError as error:
            raise ConfigError(str(error)) from error
        problem = no_effect(setting, value)
        if problem and setting.status == "refused":
            raise ConfigError(problem)
        if problem:
            self.warnings.append(problem)
        (self._overrides if name.startswith(PREFIX) else self._values)[name] = value

    def _node_id(self) -> "_Int":
        if "broker.id" in self.static:
            broker_id = self.int("broker.id")
            if "node.id" in self.static and self.int("node.id") != broker_id:
                raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
            if broker_id < 0:
                raise ConfigError(f"Invalid value {broker_id} for configuration broker.id: Value must be at least 0")
            self._values["node.id"] = broker_id
            # Each is a synonym of the other, as in Kafka.
            self.static["node.id"] = str(broker_id)
        node_id = self.int("node.id")
        self._values["broker.id"] = node_id
        self.static["broker.id"] = str(node_id)
        return node_id

    def _roles(self) -> NodeRoles:
        voters, servers = (self.items(f"controller.quorum.{name}") for name in ("voters", "bootstrap.servers"))
        try:
            return node_roles(self.node_id, self.items("process.roles"), voters, servers)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def _parse_protocols(self) -> dict[str, SecurityProtocol]:
        protocols: dict[str, SecurityProtocol] = {}
        for entry in (self.text(_PROTOCOL_MAP) or "").split(","):
            name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
            if not separator or not name:
                raise ConfigError(f"{_PROTOCOL_MAP}: {entry!r} is not of the form NAME:PROTOCOL")
            if name in protocols:
                raise ConfigError(f"{_PROTOCOL_MAP} names {name} twice")
            if protocol not in SecurityProtocol.__members__:
                known = ", ".join(SecurityProtocol.__members__)
                raise ConfigError(f"{_PROTOCOL_MAP}: {protocol} of {name} is not one of {known}")
            protocols[name] = SecurityProtocol[protocol]
        # As in Kafka: next to a secured listener, each listener of a controller needs an entry.
        names = [name.upper() for name in self.items("controller.listener.names")]
        given = [text.partition("://")[0].upper() for text in self.items("listeners")]
        if _PROTOCOL_MAP not in self.static and not _SECURED & {*names, *given}:
            for name in names:
                protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        return protocols

    def _parse_listeners(self, name: str) -> list[Listener]:
        try:
            return [parse_listener(text, self._protocols) for text in self.items(name)]
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from error

    def _check_listeners(self) -> None:
        everything = self.listeners + self.controller_listeners
        names = [listener.name for listener in everything]
        if len(set(names)) != len(names):
            raise ConfigError("listeners: each must have a different name")
        bound = [(listener.host, listener.port) for listener in everything if listener.port]
        if len(set(bound)) != len(bound):
            raise ConfigError("listeners: each must have a different address")
        if not self.listeners and self.roles.is_broker:
            raise ConfigError("listeners: at least one must not be in controller.listener.names, for clients")
        controller_names = self.items("controller.listener.names")
        problem = role_violation(self.roles, controller_names, everything)
        if problem:
            raise ConfigError(problem)
        for name in controller_names:
            if name.upper() not in self._protocols and self.roles.has_quorum:
                raise ConfigError(
                    f"Controller listener with name {name.upper()} defined in controller.listener.names not found in"
                    " listener.security.protocol.map  (an explicit security mapping for each controller listener is"
                    " required if listener.security.protocol.map is non-empty, or if there are security protocols other"
                    " than PLAINTEXT in use)"
                )
        known = {name.upper() for name in (*controller_names, *(listener.name for listener in everything))}
        for name in self.items("early.start.listeners"):
            if name.upper() not in known:
                raise ConfigError(
                    f"early.start.listeners contains listener {name}, but this is not contained in listeners or"
                    " controller.listener.names"
                )
        names_given = {"controller.listener.names", "listeners"} <= self.static.keys()
        if names_given and self.roles.is_controller and not self.controller_listeners:
            given = self.static["controller.listener.names"]
            raise ConfigError(
                f"controller.listener.names={given} does not name any of listeners={self.static['listeners']}"
            )

    def _advertised(self) -> list[Listener]:
        if self._values["advertised.listeners"] is None:
            return [each._replace(host=os.uname().nodename) if each.is_wildcard else each for each in self.listeners]
        given = {listener.name: listener for listener in self._parse_listeners("advertised.listeners")}
        for listener in given.values():
            if listener.host in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
                raise ConfigError(f"advertised.listeners: clients cannot connect to {listener.host}; use a host name")
        missing = [listener.name for listener in self.listeners if listener.name not in given]
        strange = given.keys() - {listener.name for listener in self.listeners + self.controller_listeners}
        if missing or strange:
            wrong = ", ".join([*missing, *sorted(strange)])
            raise ConfigError(f"advertised.listeners and listeners must name the same listeners: {wrong}")
        return [
            given[each.name] if given[each.name].host else given[each.name]._replace(host=os.uname().nodename)
            for each in self.listeners
        ]

    def _advertised_controllers(self) -> list[Listener]:
        given = {each.name: each for each in self._parse_listeners("advertised.listeners")}
        advertised = [given.get(each.name, each) for each in self.controller_listeners]
        return [each._replace(host=os.uname().nodename) if each.is_wildcard else each for each in advertised]

    def _inter_broker_listener(self) -> str:
        by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        if {by_name, by_protocol} <= self.static.keys():
            raise ConfigError(f"Only one of {by_name} and {by_protocol} should be set.")
        names = [listener.name for listener in self.listeners]
        if not names:
            return ""
        chosen = by_name if by_name in self.static else by_protocol
        given = (self.text(chosen) or "").upper()
        if given in names:
            return given
        if chosen in self.static:
            raise ConfigError(f"{chosen}={given} is not one of the listeners {', '.join(names)}")
        return names[0]

    def _log_dirs(self) -> list[str]:
        name = "log.dir" if "log.dir" in self.static and "log.dirs" not in self.static else "log.dirs"
        directories = self.items(name)
        self._values["log.dirs"] = directories
        return [*directories]

    def _check_together(self) -> None:
        try:
            authorizer_settings(self.static)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._check_mechanisms()
        for name in (metrics_rows.LISTENER, metrics_rows.HEALTH_LISTENER):
            if (address := self.text(name)) is not None:
                try:
                    parse_address(address)
                except ValueError as error:
                    raise ConfigError(f"{name}: {error}") from error
        problem = violation(self._values) or unknown_directories(self.items("cordoned.log.dirs"), self.log_dirs)
        if problem:
            raise ConfigError(problem)
        if self.int("message.max.bytes") > self.int("socket.request.max.bytes"):
            self.warnings.append(
                f"message.max.bytes={self['message.max.bytes']} cannot be reached: "
                f"socket.request.max.bytes={self['socket.request.max.bytes']} is smaller"
            )
        if not 0 < self.float(_LOAD_FACTOR) <= 1:
            self.warnings.append(
                f"{_LOAD_FACTOR}={self.static[_LOAD_FACTOR]} is not above 0 and at most 1: the cleaner fills its map "
                f"to {DEFAULT_VALUES[_LOAD_FACTOR]}"
            )

    def _check_mechanisms(self) -> None:
        """Check that other nodes with these settings can log in to this one. As in Kafka, only brokers must be able to.

        A node without other nodes needs no mechanism between nodes.
        """
        if self.roles.is_single and not self.controller_listeners:
            return
        broker, controller = "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"
        if enabled := self._without(broker, self.inter_broker_listener):
            raise ConfigError(
                f"{broker}={self[broker]} must be included in sasl.enabled.mechanisms when SASL is used for "
                f"inter-broker communication: listener {self.inter_broker_listener} has {enabled}"
            )
        for listener in self.controller_listeners[:1]:
            if enabled := self._without(controller, listener.name):
                self.warnings.append(
                    f"Nodes with {controller}={self[controller]} cannot log in to this controller: listener "
                    f"{listener.name} has sasl.enabled.mechanisms={enabled}"
                )

    def _without(self, mechanism_setting: str, listener: str) -> str:
        """Return the mechanisms of a listener that lacks the one between nodes; empty if it has it or has no SASL."""
        if not listener or not self.security_protocol(listener).uses_sasl:
            return ""
        config = self.for_listener(listener)
        enabled = config.items("sasl.enabled.mechanisms")
        return "" if config.text(mechanism_setting) in enabled else ",".join(enabled) or "none"


_PROTOCOL_MAP = "listener.security.protocol.map"
# Names of listeners that are protocols with TLS or SASL.
_SECURED = {name for name, protocol in SecurityProtocol.__members__.items() if protocol.uses_tls or protocol.uses_sasl}
_LOAD_FACTOR = "log.cleaner.io.buffer.load.factor"

# Inside the class these names are its methods, so they need another name.
_Bool = bool
_Int = int
_Float = float


def _renamed(properties: Mapping[str, str], warnings: list[str]) -> Mapping[str, str]:
    """Replace old names of settings whose new name is not given."""
    old = [name for name in _NEW_NAMES if name in properties and _NEW_NAMES[name] not in properties]
    warnings += [f"{name} is the old name of {_NEW_NAMES[name]}, which Kafka 4 removed: rename it" for name in old]
    return {_NEW_NAMES[name] if name in old else name: text for name, text in properties.items()}


def _check_encodable(name: str, text: str) -> None:
    """Raise ConfigError for command-line bytes that are not UTF-8, because a response could not contain them."""
    try:
        f"{name}={text}".encode()
    except UnicodeEncodeError as error:
        shown = name[:249].encode("utf-8", "backslashreplace").decode()
        raise ConfigError(f"{shown}: the name or the value is not text in UTF-8") from error


def no_effect(setting: ServerSetting, value: Value) -> str | None:
    """Return a line if `value` is not supported (status "refused") or has no effect here ("reported")."""
    if setting.status == "works" or value in (setting.default, DEFAULT_VALUES.get(setting.name)):
        return None
    if value in ("", ()) and not setting.default:
        return None
    shown = "(hidden)" if setting.sensitive else setting.format(value)
    if setting.status == "refused":
        return f"{setting.name}={shown} is not supported: {reason(setting.name)}. Its meaning: {setting.doc}"
    return f"{setting.name}={shown} has no effect here: {reason(setting.name)}. Its meaning in Kafka: {setting.doc}"


def suggest(name: str) -> str | None:
    """Return the most similar setting, or None."""
    topic_synonym = TOPIC_SYNONYMS.get(name)
    if topic_synonym:
        return topic_synonym[0].name
    if name in TOPIC_SETTINGS:
        return None
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    close = get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.75)
    return close[0] if close else None


def _unknown(name: str) -> str:
    if name in OF_THE_AUTHORIZER:
        return f"{name} has no effect here: authorizer.class.name is empty, and everything is allowed"
    if name.lower() != name and listener_setting(name.lower()) is not None:
        return f"{name} has no effect: write the name of the listener in lower case, {name.lower()}"
    if name.startswith(_FOREIGN_PREFIXES):
        return f"{name} has no effect here"
    if name.startswith("zookeeper."):
        return f"{name} is unknown and has no effect: there is no ZooKeeper, as in Kafka 4"
    close = suggest(name)
    return f"{name} is unknown and has no effect" + (f": did you mean {close}?" if close else "")
