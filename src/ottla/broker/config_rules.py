"""The settings' table as the controller asks for it: what may be set, and what a topic's settings come to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    check_broker,
    check_group,
    check_group_together,
    check_topic,
    check_topic_together,
    resolve_broker,
    resolve_group,
    resolve_topic,
)
from ottla.controller import DescribedConfig
from ottla.metadata.image import BROKER, GROUP, TOPIC

logger = logging.getLogger(__name__)

_SETTINGS = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}


@contextmanager
def _as_request_error() -> Iterator[None]:
    """Kafka has one code for whatever is wrong with a broker's setting, another for a topic's."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def check_is_this_node(node_id: int, resource_name: str) -> None:
    """Raise INVALID_REQUEST unless the resource of a broker is this one's."""
    if not resource_name.isdecimal() or int(resource_name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {resource_name}"
        )


class BrokerConfigRules:
    """Rules of this node: the table, and the static configuration beneath."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static

    def validate(self, kind: int, name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
        """Raise INVALID_CONFIG or INVALID_REQUEST unless the resource may be configured so."""
        if kind not in _SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {kind} cannot be configured here")
        for key in changed:
            if key in configs:
                self._check(kind, name, key, configs[key])
            # What is removed needs no check, not even that it may change: Kafka lets anything go.
        if kind == TOPIC:
            check_topic_together(resolve_topic(configs, {}, {}, self._static))
        elif kind == GROUP:
            check_group_together(resolve_group(configs, {}, {}, self._static), self._static)

    @staticmethod
    def _check(kind: int, name: str, key: str, value: str) -> None:
        if kind == TOPIC:
            warning = check_topic(key, value)
        elif kind == GROUP:
            warning = check_group(key, value)
        else:
            with _as_request_error():
                warning = check_broker(key, value, cluster_wide=name == "")
        if warning:
            logger.warning("%s", warning)

    def is_list(self, kind: int, key: str) -> bool:
        """Whether values can be appended to the setting."""
        setting = _SETTINGS.get(kind, {}).get(key)
        return setting is not None and setting.type == "list"

    def default(self, kind: int, key: str) -> str | None:
        """What the setting is while the resource itself does not set it: this broker's file counts."""
        if key not in _SETTINGS.get(kind, {}):
            return None
        if kind == TOPIC:
            return resolve_topic({}, {}, {}, self._static)[key].text
        if kind == GROUP:
            return resolve_group({}, {}, {}, self._static)[key].text
        return resolve_broker({}, {}, self._static)[key].text

    def describe_topic(
        self, configs: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[DescribedConfig]:
        """All effective settings of a topic."""
        return [
            DescribedConfig(name, entry.text, False, entry.source, entry.setting.sensitive)
            for name, entry in resolve_topic(configs, broker, cluster, self._static).items()
        ]
