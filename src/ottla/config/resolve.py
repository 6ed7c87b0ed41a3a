"""The effective value of each setting and its source, as DescribeConfigs returns them.

The layers, from the strongest to the weakest: a topic's or group's own value, dynamic for this broker, dynamic for all
brokers, the broker's file, the default. Within a layer the first of the synonyms wins (`log.retention.ms` before
`.hours`). All functions are pure. They are fast enough for each request but not for each record, so callers cache the
results until a setting changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.config.broker import CLUSTER_DEFAULT_VALUES, DEFAULT_VALUES, BrokerConfig, no_effect
from ottla.config.checks import (
    change_violation,
    conflict_of_lags,
    conflict_of_validation,
    unknown_directories,
    violation,
)
from ottla.config.listener_settings import KEY_STORE_SETTINGS, base_name, broker_setting, listener_setting
from ottla.config.server_setting import PER_BROKER, READ_ONLY, ServerSetting
from ottla.config.settings import BROKER_SETTINGS, GROUP_SETTINGS, MIRROR_SETTINGS, TOPIC_SETTINGS, parse_value
from ottla.config.synonyms import BROKER_FAMILIES, GROUP_SYNONYMS, TOPIC_SYNONYMS, BrokerSynonym
from ottla.config.values import Value


class ConfigSource(IntEnum):
    """The numbers of DescribeConfigs (`ConfigSource`)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One source of a setting's value; `text` is None if it must not be shown."""

    name: str
    text: str | None
    source: ConfigSource


class Resolved(NamedTuple):
    """The effective value; `text` is None for None and for sensitive values. The strongest synonym is first."""

    setting: ServerSetting
    value: Value
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source == ConfigSource.DEFAULT

    @property
    def is_read_only(self) -> bool:
        """Whether a change needs a restart."""
        return self.setting.update == READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        """Whether its value must not be shown."""
        return self.setting.sensitive


# Kafka changes listeners while it runs; Ottla needs a restart.
_UNTIL_RESTART = {"listeners", "listener.security.protocol.map"}
_SINGLE_NODE_TEXTS = {name: BROKER_SETTINGS[name].format(value) for name, value in DEFAULT_VALUES.items()}
_CLUSTER_TEXTS = {name: BROKER_SETTINGS[name].format(value) for name, value in CLUSTER_DEFAULT_VALUES.items()}


@value
class _Layers:
    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: BrokerConfig

    def find(self, names: Iterable[str]) -> list[ConfigSynonym]:
        names = tuple(names)
        found: list[ConfigSynonym] = []
        for source, layer in (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static.static),
        ):
            found += [ConfigSynonym(name, layer[name], source) for name in names if layer.get(name) is not None]
        default_texts = _SINGLE_NODE_TEXTS if self.static.roles.is_single else _CLUSTER_TEXTS
        for name in names:
            text = default_texts.get(name)
            if text is not None:
                found.append(ConfigSynonym(name, text, ConfigSource.DEFAULT))
        return found


def resolve_topic(
    topic_overrides: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    static: BrokerConfig,
) -> dict[str, Resolved]:
    """Resolve every setting of a topic, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    return {
        name: _resolve(setting, topic_overrides.get(name), ConfigSource.TOPIC, layers, TOPIC_SYNONYMS.get(name, ()))
        for name, setting in TOPIC_SETTINGS.items()
    }


class TopicResolver:
    """Resolves the settings of many topics over the same layers. Settings without an override are resolved once."""

    def __init__(
        self, dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str], static: BrokerConfig
    ) -> None:
        self._layers = _Layers(dynamic_broker, dynamic_default, static)
        self._defaults = resolve_topic({}, dynamic_broker, dynamic_default, static)

    def is_of(self, dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]) -> bool:
        """Whether the resolver was built from these layers."""
        return self._layers.dynamic_broker is dynamic_broker and self._layers.dynamic_default is dynamic_default

    def resolve(self, topic_overrides: Mapping[str, str]) -> Mapping[str, Resolved]:
        """Return every setting of a topic by name; the mapping must not be changed."""
        if not topic_overrides:
            return self._defaults
        resolved = dict(self._defaults)
        for name, text in topic_overrides.items():
            if name in resolved:
                resolved[name] = self._resolve(name, text)
        return resolved

    def resolve_one(self, topic_overrides: Mapping[str, str], name: str) -> Resolved:
        """Return one setting of a topic."""
        text = topic_overrides.get(name)
        return self._defaults[name] if text is None else self._resolve(name, text)

    def _resolve(self, name: str, text: str) -> Resolved:
        setting = TOPIC_SETTINGS[name]
        return _resolve(setting, text, ConfigSource.TOPIC, self._layers, TOPIC_SYNONYMS.get(name, ()))


def resolve_group(
    group_overrides: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    static: BrokerConfig,
) -> dict[str, Resolved]:
    """Resolve every setting of a group, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    resolved = {}
    for name, setting in GROUP_SETTINGS.items():
        broker_synonyms = (BrokerSynonym(GROUP_SYNONYMS[name]),) if name in GROUP_SYNONYMS else ()
        entry = _resolve(setting, group_overrides.get(name), ConfigSource.GROUP, layers, broker_synonyms)
        if not broker_synonyms:
            # Kafka shows the default under the group's own name if no broker setting corresponds to it.
            default = ConfigSynonym(name, setting.default_text, ConfigSource.DEFAULT)
            entry = entry._replace(synonyms=(*entry.synonyms, default))
        resolved[name] = entry
    return resolved


def resolve_mirror(overrides: Mapping[str, str]) -> dict[str, Resolved]:
    """Resolve every setting of a mirror, by name."""
    resolved = {}
    for name, setting in MIRROR_SETTINGS.items():
        text = overrides.get(name)
        source = ConfigSource.DEFAULT if text is None else ConfigSource.UNKNOWN
        resolved[name] = _answer(setting, _parsed(setting, text), source, [])
    return resolved


def resolve_broker(
    dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str], static: BrokerConfig
) -> dict[str, Resolved]:
    """Resolve every setting of a broker, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    resolved = {}
    names = dict.fromkeys([*dynamic_broker, *dynamic_default, *static.static])
    for name, setting in (*BROKER_SETTINGS.items(), *_listener_settings(names).items()):
        # The description of `log.retention.hours` must not contain the value of `log.retention.ms`.
        base = base_name(name)
        family = layers.find(BROKER_FAMILIES.get(name, (name,) if base is None else (name, base)))
        while family and family[0].name != name:
            family.pop(0)
        source = family[0].source if family else ConfigSource.DEFAULT
        value = _parsed(setting, family[0].text if family else None)
        resolved[name] = _answer(setting, value, source, family)
    return resolved


def resolve_broker_default(dynamic_default: Mapping[str, str]) -> dict[str, Resolved]:
    """Resolve the settings for all brokers: the broker resource without a name."""
    resolved = {}
    for name, text in dynamic_default.items():
        setting = broker_setting(name)
        if setting is not None:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            entry = _answer(setting, _parsed(setting, text), source, [ConfigSynonym(name, text, source)])
            # Kafka shows the original text, with surrounding blanks.
            resolved[name] = entry if setting.sensitive else entry._replace(text=text)
    return resolved


def check_names(settings: Mapping[str, ServerSetting], kind: str, names: Iterable[str]) -> None:
    """Raise INVALID_CONFIG if one of `names` is not a setting of a `kind`."""
    for name in names:
        if name not in settings:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name[:249]}")


def check_topic(name: str, text: str) -> str | None:
    """Raise INVALID_CONFIG unless a topic may set `name` to `text`; returns a warning or None."""
    return _check(TOPIC_SETTINGS, "topic", name, text)


def check_group(name: str, text: str) -> str | None:
    """Raise INVALID_CONFIG unless a group may set `name` to `text`; returns a warning or None."""
    return _check(GROUP_SETTINGS, "group", name, text)


def check_mirror(name: str, text: str) -> str | None:
    """Raise INVALID_CONFIG unless a mirror may set `name` to `text`; returns a warning or None."""
    return _check(MIRROR_SETTINGS, "mirror", name, text)


def check_broker(changes: Mapping[str, str], *, cluster_wide: bool) -> list[str]:
    """Raise INVALID_CONFIG unless all of `changes` may be made while the broker runs; returned lines are warnings.

    `cluster_wide` stands for the broker resource without a name. As in Kafka, names are checked before values.
    """
    fixed = [name for name in changes if name in BROKER_SETTINGS and BROKER_SETTINGS[name].update == READ_ONLY]
    _refuse_names("Cannot update these configs dynamically", fixed)
    per_listener = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse_names(per_listener, [name for name in changes if name in KEY_STORE_SETTINGS])
    settings = {**BROKER_SETTINGS, **_listener_settings(changes)}
    warnings = [_check(settings, "broker", name, text) for name, text in changes.items()]
    if cluster_wide:
        own = [name for name in changes if settings[name].update == PER_BROKER]
        _refuse_names("Cannot update these configs at default cluster level, broker id must be specified", own)
    restarted = [name for name in changes if name in _UNTIL_RESTART]
    advice = " (change it in the broker's file and restart it)"
    _refuse_names("Cannot update these configs dynamically", restarted, advice)
    return [warning for warning in warnings if warning]


def _listener_settings(names: Iterable[str]) -> dict[str, ServerSetting]:
    """Return the definitions of the names that are settings of a listener."""
    return {name: setting for name in names if (setting := listener_setting(name)) is not None}


def _refuse_names(problem: str, names: list[str], advice: str = "") -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{problem}: [{', '.join(names)}]{advice}")


def check_broker_together(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise INVALID_CONFIG if a running broker cannot change its settings from `before` to `after`."""
    problem = violation(after.values) or change_violation(before.values, after.values)
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)


def check_cordoned(value: str, config: BrokerConfig) -> None:
    """Raise INVALID_REQUEST if `cordoned.log.dirs` has a directory that this broker does not have.

    The controller checks all other rules, and reports a value that is not a valid list.
    """
    try:
        check_broker({_CORDONED: value}, cluster_wide=False)
    except KafkaError:
        return
    directories = parse_value(BROKER_SETTINGS[_CORDONED], value)
    problem = unknown_directories(directories if isinstance(directories, tuple) else (), config.log_dirs)
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_VALIDATIONS = ("confluent.key.schema.validation", "confluent.value.schema.validation")
_DEAD_LETTERS = ("ottla.schema.validation.mode", "ottla.schema.validation.dlq.topic")
TOPIC_SETTINGS_TOGETHER = (*_LAGS, *_VALIDATIONS, *_DEAD_LETTERS)
"""The settings that `check_topic_together` compares."""


def check_topic_together(topic: str, resolved: Mapping[str, Resolved]) -> None:
    """Raise INVALID_CONFIG if a topic's settings contradict each other."""
    problem = conflict_of_lags(*(resolved[name].value for name in _LAGS)) or conflict_of_validation(
        topic, *(resolved[name].value for name in (*_VALIDATIONS, *_DEAD_LETTERS))
    )
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)


def check_group_together(resolved: Mapping[str, Resolved], broker: BrokerConfig) -> None:
    """Raise INVALID_CONFIG if a group's settings exceed the broker's limits or contradict each other."""
    for name, entry in resolved.items():
        kind, _, rest = name.partition(".")
        for limit, relation in (("min", "greater"), ("max", "less")):
            bound_name = f"group.{kind}.{limit}.{rest.removeprefix('num.')}"
            if entry.source != ConfigSource.GROUP or bound_name not in BROKER_SETTINGS:
                continue
            value, bound = entry.value, broker.int(bound_name)
            if isinstance(value, int) and (value < bound if limit == "min" else value > bound):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be {relation} than or equal to {bound_name}")
    for kind in ("consumer", "share", "streams"):
        names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session, heartbeat = (resolved[name].value for name in names)
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{names[0]} must be greater than {names[1]}")


_CORDONED = "cordoned.log.dirs"


def _check(settings: Mapping[str, ServerSetting], kind: str, name: str, text: str) -> str | None:
    check_names(settings, kind, (name,))
    setting = settings[name]
    problem = no_effect(setting, parse_value(setting, text))
    if problem and name == "remote.storage.enable":
        disabled = "Tiered Storage functionality is disabled in the broker."
        problem = f"{disabled} Topic cannot be configured with remote log storage."
    if problem and setting.status == "refused":
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    return problem


def _resolve(
    setting: ServerSetting,
    override: str | None,
    own: ConfigSource,
    layers: _Layers,
    broker_synonyms: tuple[BrokerSynonym, ...],
) -> Resolved:
    found = layers.find(synonym.name for synonym in broker_synonyms)
    # As in Kafka, `log.retention.hours` is not a synonym of `retention.ms` unless `log.retention.ms` is set, too.
    synonyms = list(dropwhile(lambda synonym: synonym.name != broker_synonyms[0].name, found))
    if override is not None:
        value = _parsed(setting, override)
        synonyms.insert(0, ConfigSynonym(setting.name, setting.format(value), own))
        return _answer(setting, value, own, synonyms)
    if not found:
        return _answer(setting, setting.default, ConfigSource.DEFAULT, synonyms)
    first = found[0]
    value = _parsed(BROKER_SETTINGS[first.name], first.text)
    factor = next(synonym.factor for synonym in broker_synonyms if synonym.name == first.name)
    if factor != 1 and isinstance(value, int):
        value *= factor
    if setting.name == "retention.ms" and isinstance(value, int):
        value = max(value, -1)
    return _answer(setting, value, synonyms[0].source if synonyms else ConfigSource.DEFAULT, synonyms)


def _answer(setting: ServerSetting, value: Value, source: ConfigSource, synonyms: Iterable[ConfigSynonym]) -> Resolved:
    if setting.sensitive:
        hidden = tuple(synonym._replace(text=None) for synonym in synonyms)
        return Resolved(setting, value, None, source, hidden)
    return Resolved(setting, value, setting.format(value), source, tuple(synonyms))


def _parsed(setting: ServerSetting, text: str | None) -> Value:
    """Parse text that was checked when it was set. A value that only an older version accepted becomes the default."""
    if text is None:
        return setting.default
    try:
        return parse_value(setting, text)
    except KafkaError:
        return setting.default
