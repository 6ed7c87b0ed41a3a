"""Which value of a setting holds, and where it comes from: what DescribeConfigs answers.

From the strongest to the weakest: a topic's or group's own value, dynamic for this broker, dynamic for all brokers,
the broker's file, the default. Within a layer the first of the synonyms wins (`log.retention.ms` before `.hours`).
All functions are pure and cheap enough for a request, not for a record: keep their result while configs stay.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.named import NamedTuple
from ottla.config.broker import DEFAULT_VALUES, BrokerConfig, no_effect
from ottla.config.settings import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    PER_BROKER,
    READ_ONLY,
    TOPIC_SETTINGS,
    Setting,
    Value,
    format_value,
    parse_value,
)
from ottla.config.synonyms import BROKER_FAMILIES, GROUP_SYNONYMS, TOPIC_SYNONYMS, BrokerSynonym


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
    """One place that gives the setting a value; `text` is None where it must not be shown."""

    name: str
    text: str | None
    source: ConfigSource


class Resolved(NamedTuple):
    """The value that holds; `text` is None for None and for what must not be shown. The strongest synonym is first."""

    setting: Setting
    value: Value
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """Whether nobody configured it."""
        return self.source == ConfigSource.DEFAULT

    @property
    def is_read_only(self) -> bool:
        """Whether only a restart changes it."""
        return self.setting.update == READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        """Whether its value must not be shown."""
        return self.setting.sensitive


# Kafka opens and closes listeners while it runs; here that takes a restart.
_UNTIL_RESTART = {"listeners", "listener.security.protocol.map"}
_DEFAULT_TEXTS = {name: format_value(BROKER_SETTINGS[name], value) for name, value in DEFAULT_VALUES.items()}


class _Layers(NamedTuple):
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
        for name in names:
            text = _DEFAULT_TEXTS[name]
            if text is not None:
                found.append(ConfigSynonym(name, text, ConfigSource.DEFAULT))
        return found


def resolve_topic(
    topic_overrides: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    static: BrokerConfig,
) -> dict[str, Resolved]:
    """Every setting of a topic, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    return {
        name: _resolve(setting, topic_overrides.get(name), ConfigSource.TOPIC, layers, TOPIC_SYNONYMS.get(name, ()))
        for name, setting in TOPIC_SETTINGS.items()
    }


def resolve_group(
    group_overrides: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    static: BrokerConfig,
) -> dict[str, Resolved]:
    """Every setting of a group, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    resolved = {}
    for name, setting in GROUP_SETTINGS.items():
        synonyms = (BrokerSynonym(GROUP_SYNONYMS[name]),) if name in GROUP_SYNONYMS else ()
        resolved[name] = _resolve(setting, group_overrides.get(name), ConfigSource.GROUP, layers, synonyms)
    return resolved


def resolve_broker(
    dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str], static: BrokerConfig
) -> dict[str, Resolved]:
    """Every setting of a broker, by name."""
    layers = _Layers(dynamic_broker, dynamic_default, static)
    resolved = {}
    for name, setting in BROKER_SETTINGS.items():
        # `log.retention.hours` must not be described by the value of `log.retention.ms`.
        family = layers.find(BROKER_FAMILIES.get(name, (name,)))
        while family and family[0].name != name:
            family.pop(0)
        source = family[0].source if family else ConfigSource.DEFAULT
        value = _parsed(setting, family[0].text if family else None)
        resolved[name] = _answer(setting, value, source, family)
    return resolved


def resolve_broker_default(dynamic_default: Mapping[str, str]) -> dict[str, Resolved]:
    """What is set for all brokers: the broker resource without a name."""
    resolved = {}
    for name, text in dynamic_default.items():
        setting = BROKER_SETTINGS.get(name)
        if setting is not None:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            resolved[name] = _answer(setting, _parsed(setting, text), source, [ConfigSynonym(name, text, source)])
    return resolved


def check_topic(name: str, text: str) -> str | None:
    """Raise INVALID_CONFIG unless a topic may set `name` to `text`; a returned line is worth a warning in the log."""
    return _check(TOPIC_SETTINGS, "topic", name, text)


def check_group(name: str, text: str) -> str | None:
    """Raise INVALID_CONFIG unless a group may set `name` to `text`; a returned line is worth a warning in the log."""
    return _check(GROUP_SETTINGS, "group", name, text)


def check_broker(name: str, text: str, *, cluster_wide: bool) -> str | None:
    """Raise INVALID_CONFIG unless `name` may be set while the broker runs; a returned line is worth a warning.

    `cluster_wide` stands for the broker resource without a name.
    """
    warning = _check(BROKER_SETTINGS, "broker", name, text)
    _check_broker_name(name, cluster_wide=cluster_wide)
    return warning


def _check_broker_name(name: str, *, cluster_wide: bool) -> None:
    setting = BROKER_SETTINGS.get(name)
    if setting is None or setting.update == READ_ONLY:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Cannot update these configs dynamically: [{name}]")
    if setting.update == PER_BROKER and cluster_wide:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]",
        )
    if name in _UNTIL_RESTART:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot update these configs dynamically: [{name}] (change it in the broker's file and restart it)",
        )


def check_topic_together(resolved: Mapping[str, Resolved]) -> None:
    """Raise INVALID_CONFIG if a topic's settings contradict each other."""
    least, most = resolved["min.compaction.lag.ms"].value, resolved["max.compaction.lag.ms"].value
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"min.compaction.lag.ms={least} is greater than max.compaction.lag.ms={most}"
        )


def check_group_together(resolved: Mapping[str, Resolved], static: BrokerConfig) -> None:
    """Raise INVALID_CONFIG if a group's settings leave the broker's limits or contradict each other."""
    for name, entry in resolved.items():
        kind, _, rest = name.partition(".")
        for limit in ("min", "max"):
            bound_name = f"group.{kind}.{limit}.{rest.removeprefix('num.')}"
            if entry.source != ConfigSource.GROUP or bound_name not in BROKER_SETTINGS:
                continue
            value, bound = entry.value, static.int(bound_name)
            if isinstance(value, int) and (value < bound if limit == "min" else value > bound):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value} is beyond {bound_name}={bound}")
    for kind in ("consumer", "share", "streams"):
        session = resolved[f"{kind}.session.timeout.ms"].value
        heartbeat = resolved[f"{kind}.heartbeat.interval.ms"].value
        if isinstance(session, int) and isinstance(heartbeat, int) and session <= heartbeat:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{kind}.session.timeout.ms={session} must be greater than {kind}.heartbeat.interval.ms={heartbeat}",
            )


def _check(settings: Mapping[str, Setting], kind: str, name: str, text: str) -> str | None:
    setting = settings.get(name)
    if setting is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name[:249]}")
    problem = no_effect(setting, parse_value(setting, text))
    if problem and setting.status == "refused":
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    return problem


def _resolve(
    setting: Setting,
    override: str | None,
    own: ConfigSource,
    layers: _Layers,
    broker_synonyms: tuple[BrokerSynonym, ...],
) -> Resolved:
    synonyms = layers.find(synonym.name for synonym in broker_synonyms)
    if override is not None:
        synonyms.insert(0, ConfigSynonym(setting.name, override, own))
        return _answer(setting, _parsed(setting, override), own, synonyms)
    if not synonyms:
        return _answer(setting, setting.default, ConfigSource.DEFAULT, synonyms)
    first = synonyms[0]
    value = _parsed(BROKER_SETTINGS[first.name], first.text)
    factor = next(synonym.factor for synonym in broker_synonyms if synonym.name == first.name)
    if factor != 1 and isinstance(value, int):
        value *= factor
    if setting.name == "retention.ms" and isinstance(value, int):
        value = max(value, -1)
    return _answer(setting, value, first.source, synonyms)


def _answer(setting: Setting, value: Value, source: ConfigSource, synonyms: Iterable[ConfigSynonym]) -> Resolved:
    if setting.sensitive:
        hidden = tuple(synonym._replace(text=None) for synonym in synonyms)
        return Resolved(setting, value, None, source, hidden)
    return Resolved(setting, value, format_value(setting, value), source, tuple(synonyms))


def _parsed(setting: Setting, text: str | None) -> Value:
    """The value of text that was checked when it was set; what an older version let in falls back to the default."""
    if text is None:
        return setting.default
    try:
        return parse_value(setting, text)
    except KafkaError:
        return setting.default
