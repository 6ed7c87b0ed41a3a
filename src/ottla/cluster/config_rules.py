"""The rules for settings that the controller applies: valid values, and the effective settings of a topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    TOPIC_SETTINGS_TOGETHER,
    BrokerConfig,
    TopicResolver,
    check_broker,
    check_broker_together,
    check_client_metrics,
    check_group,
    check_group_together,
    check_mirror,
    check_names,
    check_topic,
    check_topic_together,
    resolve_broker,
    resolve_group,
    resolve_mirror,
)
from ottla.controller import DescribedConfig
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, MIRROR, TOPIC

logger = logging.getLogger(__name__)

_SETTINGS = {
    TOPIC: TOPIC_SETTINGS,
    BROKER: BROKER_SETTINGS,
    GROUP: GROUP_SETTINGS,
    CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
    MIRROR: MIRROR_SETTINGS,
}
_KINDS = {TOPIC: "topic", GROUP: "group", MIRROR: "mirror"}
_CHECKS = {TOPIC: check_topic, GROUP: check_group, MIRROR: check_mirror}


@contextmanager
def _as_request_error() -> Iterator[None]:
    """Change the error code to INVALID_REQUEST: Kafka uses it for broker settings, and INVALID_CONFIG for topics."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def is_integer(text: str) -> bool:
    """Whether the text is an integer, as the name of a broker resource must be."""
    return text.removeprefix("-").removeprefix("+").isdecimal()


def check_changes_this_node(node_id: int, resource_name: str) -> None:
    """Raise INVALID_REQUEST unless the broker to change is this one."""
    if not is_integer(resource_name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
    if resource_name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {resource_name}"
        )


def check_describes_this_node(node_id: int, resource_name: str, or_what: str) -> None:
    """Raise INVALID_REQUEST unless the broker to describe is this one; `or_what` names other valid ids."""
    if not resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not is_integer(resource_name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {resource_name}")
    if resource_name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{or_what} but received {resource_name}"
        )


def _warn(warning: str | None) -> None:
    if warning:
        logger.warning("%s", warning)


class BrokerConfigRules:
    """The rules of this node, from the tables of settings and the broker's configuration file."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self._over_dynamic: TopicResolver | None = None

    @cached_property
    def _topics(self) -> TopicResolver:
        """Resolves topic settings from this broker's configuration file, without dynamic settings."""
        return TopicResolver({}, {}, self._static)

    def validate(
        self,
        kind: int,
        name: str,
        configs: Mapping[str, str],
        changed: frozenset[str],
        broker: Mapping[str, str],
        cluster: Mapping[str, str],
    ) -> None:
        """Raise INVALID_CONFIG or INVALID_REQUEST unless `configs` is valid for the resource."""
        if kind not in _SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {kind} cannot be configured here")
        # A removed setting is not checked, not even for being read-only: Kafka removes any setting.
        changes = {key: value for key, value in configs.items() if key in changed}
        if kind == CLIENT_METRICS:
            check_client_metrics(changes)
            return
        # As in Kafka, an unknown name is reported before a wrong value.
        if kind != BROKER:
            check_names(_SETTINGS[kind], _KINDS[kind], changes)
        if kind == BROKER:
            with _as_request_error():
                self._validate_broker(changes, configs, broker, cluster, cluster_wide=name == "")
            return
        for key, value in changes.items():
            _warn(_CHECKS[kind](key, value))
        if kind == TOPIC:
            resolver = self._resolver(broker, cluster)
            compared = {each: resolver.resolve_one(configs, each) for each in TOPIC_SETTINGS_TOGETHER}
            check_topic_together(name, compared)
        elif kind == GROUP and configs:
            now = self._static.with_dynamic(broker, cluster)
            check_group_together(resolve_group(configs, broker, cluster, self._static), now)

    def _validate_broker(
        self,
        changes: Mapping[str, str],
        configs: Mapping[str, str],
        broker: Mapping[str, str],
        cluster: Mapping[str, str],
        *,
        cluster_wide: bool,
    ) -> None:
        for warning in check_broker(changes, cluster_wide=cluster_wide):
            _warn(warning)
        before = self._static.with_dynamic(broker, cluster)
        after = (
            self._static.with_dynamic(broker, configs) if cluster_wide else self._static.with_dynamic(configs, cluster)
        )
        check_broker_together(before, after)

    def is_list(self, kind: int, key: str) -> bool | None:
        """Whether values can be appended to the setting; None for an unknown name."""
        setting = _SETTINGS.get(kind, {}).get(key)
        return None if setting is None else setting.type == "list"

    def default(self, kind: int, key: str) -> str | None:
        """The value of a setting that the resource does not set: from this broker's file, or the default."""
        if key not in _SETTINGS.get(kind, {}):
            return None
        if kind == TOPIC:
            return self._topics.resolve_one({}, key).text
        if kind == GROUP:
            return resolve_group({}, {}, {}, self._static)[key].text
        if kind == CLIENT_METRICS:
            return CLIENT_METRICS_SETTINGS[key].default_text
        if kind == MIRROR:
            return resolve_mirror({})[key].text
        return resolve_broker({}, {}, self._static)[key].text

    def describe_topic(
        self, configs: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[DescribedConfig]:
        """All effective settings of a topic."""
        return [
            DescribedConfig(name, entry.text, False, entry.source, entry.setting.sensitive)
            for name, entry in self._resolver(broker, cluster).resolve(configs).items()
        ]

    def _resolver(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> TopicResolver:
        """Resolves topic settings on top of these broker settings; cached."""
        if self._over_dynamic is None or not self._over_dynamic.is_of(broker, cluster):
            self._over_dynamic = TopicResolver(broker, cluster, self._static)
        return self._over_dynamic
