"""DescribeConfigs (32), versions 1-4: effective settings with where they come from. KIP-133, KIP-226, KIP-412, KIP-569.

Topics, this broker, the default of all brokers, this broker's log levels, client metrics, groups. Sensitive values are
never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker import loggers
from ottla.broker.config_rules import check_is_this_node
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import validate_topic_name
from ottla.config import Resolved, resolve_broker, resolve_broker_default, resolve_group, resolve_topic
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext

DEFAULT_SOURCE, LOGGER_SOURCE, CLIENT_METRICS_SOURCE = 5, 6, 7
STRING, INT, LIST = 2, 3, 7
# KIP-714; kept for data that other software wrote, and without effect here.
_CLIENT_METRICS_DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}
_CLIENT_METRICS_TYPES = {"interval.ms": INT, "match": LIST, "metrics": LIST}


def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource, or say why not."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            entries = _describe(broker, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted = resource.configuration_keys
            # An empty list of names asks for all, as in Kafka.
            result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
            _trim(result.configs, request)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _trim(entries: list[DescribeConfigsResourceResult], request: DescribeConfigsRequest) -> None:
    for entry in entries:
        if not request.include_synonyms:
            entry.synonyms = []
        if not request.include_documentation:
            entry.documentation = None


def _describe(broker: Broker, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
    image = broker.metadata.image
    own, cluster = image.config(BROKER, str(broker.node_id)), image.config(BROKER, "")
    if kind == TOPIC:
        validate_topic_name(name)
        if name not in image.topics_by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _rows(resolve_topic(image.config(TOPIC, name), own, cluster, broker.config), dynamic=True)
    if kind == BROKER:
        if not name:
            return _rows(resolve_broker_default(cluster), dynamic=False)
        check_is_this_node(broker.node_id, name)
        return _rows(resolve_broker(own, cluster, broker.config), dynamic=False)
    if kind == BROKER_LOGGER:
        check_is_this_node(broker.node_id, name)
        return [_row(logger, level, LOGGER_SOURCE, STRING) for logger, level in loggers.levels().items()]
    if kind == CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return _client_metrics(image.config(CLIENT_METRICS, name))
    if kind == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return _rows(resolve_group(image.config(GROUP, name), own, cluster, broker.config), dynamic=True)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _rows(resolved: Mapping[str, Resolved], *, dynamic: bool) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=entry.text,
            read_only=not dynamic and entry.is_read_only,
            config_source=int(entry.source),
            is_sensitive=entry.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.text, source=int(synonym.source))
                for synonym in entry.synonyms
            ],
            config_type=entry.setting.type_code,
            documentation=entry.setting.doc,
        )
        for name, entry in resolved.items()
    ]


def _row(name: str, value: str, source: int, config_type: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=False,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)],
        config_type=config_type,
        documentation=None,
    )


def _client_metrics(configs: Mapping[str, str]) -> list[DescribeConfigsResourceResult]:
    return [
        _row(
            name,
            configs.get(name, default),
            CLIENT_METRICS_SOURCE if name in configs else DEFAULT_SOURCE,
            _CLIENT_METRICS_TYPES[name],
        )
        for name, default in _CLIENT_METRICS_DEFAULTS.items()
    ]
