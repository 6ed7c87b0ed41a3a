"""DescribeConfigs (32), versions 1-4: effective settings with where they come from. KIP-133, KIP-226, KIP-412, KIP-569.

Topics, this broker, the default of all brokers, this broker's log levels, client metrics, groups. Sensitive values are
never shown.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker import loggers
from ottla.broker.config_authorization import check_authorized
from ottla.broker.response_size import check_response_size
from ottla.cluster.config_rules import check_describes_this_node
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import validate_topic_name
from ottla.common.slices import Slices
from ottla.config import (
    CLIENT_METRICS_SETTINGS,
    Resolved,
    parse_value,
    resolve_broker,
    resolve_broker_default,
    resolve_group,
    resolve_mirror,
)
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, MIRROR, TOPIC
from ottla.protocol.elements import Elements
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.security.acl import Operation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeConfigsPorts
    from ottla.config import ServerSetting

DEFAULT_SOURCE, LOGGER_SOURCE, CLIENT_METRICS_SOURCE = 5, 6, 7
UNKNOWN, TEXT = 0, 2
STATUS = "status"
"""The state of a mirror on this node, as JSON."""
_PART: Final = 32_000
"""Bytes of the state in one setting: a string has at most 32,767."""


def handle(
    broker: DescribeConfigsPorts, context: RequestContext, request: DescribeConfigsRequest
) -> Slices[DescribeConfigsResponse]:
    """Describe each resource, or say why not."""
    describer = _Describer(broker, request, context.api_version)
    results = []
    size = 0
    for resource in request.resources:
        yield
        result = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            check_authorized(broker, context, Operation.DESCRIBE_CONFIGS, resource)
            configs = describer.describe(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or ""
        else:
            result.configs = configs.as_list()
            size += configs.size
            check_response_size(size)
        results.append(result)
    return DescribeConfigsResponse(results=results)


_Rows: TypeAlias = list[DescribeConfigsResourceResult]


class _Describer:
    """Describes the resources of one request in one image; what several of them have in common is encoded once."""

    def __init__(self, broker: DescribeConfigsPorts, request: DescribeConfigsRequest, version: int) -> None:
        self._broker = broker
        self._image = image = broker.metadata.image
        self._own, self._cluster = image.config(BROKER, str(broker.node_id)), image.config(BROKER, "")
        self._topics = broker.settings.topic_resolver(image)
        self._version = version
        self._synonyms = request.include_synonyms
        self._documentation = request.include_documentation
        self._rows: dict[tuple[int, str | None], _Rows] = {}
        self._encoded: dict[Hashable, Elements[DescribeConfigsResourceResult]] = {}

    def describe(self, resource: DescribeConfigsResource) -> Elements[DescribeConfigsResourceResult]:
        """The requested settings of the resource. An empty list of names requests all, as in Kafka."""
        kind, name = resource.resource_type, resource.resource_name
        shared = self._check(kind, name)
        wanted = frozenset(resource.configuration_keys or ())
        key = (kind, shared, wanted)
        encoded = self._encoded.get(key)
        if encoded is None:
            rows = [row for row in self._rows_of(kind, name, shared) if not wanted or row.name in wanted]
            encoded = self._encoded[key] = Elements(DescribeConfigsResponse, self._version, rows)
        return encoded

    def _check(self, kind: int, name: str) -> str | None:
        """Raise KafkaError unless the resource exists; return its name, or None if it has no settings of its own."""
        if kind == TOPIC:
            validate_topic_name(name)
            if name not in self._image.topics_by_name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif kind in (BROKER, BROKER_LOGGER):
            if kind == BROKER_LOGGER:
                check_describes_this_node(self._broker.node_id, name, "")
            elif name:
                check_describes_this_node(self._broker.node_id, name, " or empty string,")
            return name
        elif kind == CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        elif kind == GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        elif kind == MIRROR:
            if not self._image.config(MIRROR, name):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Mirror {name} does not exist")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
        return name if self._image.config(kind, name) else None

    def _rows_of(self, kind: int, name: str, shared: str | None) -> _Rows:
        key = (kind, shared)
        rows = self._rows.get(key)
        if rows is None:
            rows = self._make_rows(kind, name)
            if shared is None or kind in (BROKER, BROKER_LOGGER):
                self._rows[key] = rows
        return rows

    def _make_rows(self, kind: int, name: str) -> _Rows:
        image, config = self._image, self._broker.settings.current
        if kind == TOPIC:
            return self._of_settings(self._topics.resolve(image.config(TOPIC, name)), dynamic=True)
        if kind == BROKER and not name:
            return self._of_settings(resolve_broker_default(self._cluster), dynamic=False)
        if kind == BROKER:
            return self._of_settings(resolve_broker(self._own, self._cluster, config), dynamic=False)
        if kind == GROUP:
            resolved = resolve_group(image.config(GROUP, name), self._own, self._cluster, config)
            return self._of_settings(resolved, dynamic=True)
        if kind == MIRROR:
            rows = self._of_settings(resolve_mirror(image.config(MIRROR, name)), dynamic=True)
            return rows + _status(json.dumps(self._broker.mirrors.status(name)))
        if kind == BROKER_LOGGER:
            return [_logger(name, level) for name, level in loggers.levels().items()]
        configs = image.config(CLIENT_METRICS, name)
        return [
            self._of_client_metrics(setting, configs.get(setting.name))
            for setting in sorted(CLIENT_METRICS_SETTINGS.values(), key=lambda setting: setting.name)
        ]

    def _of_settings(self, resolved: Mapping[str, Resolved], *, dynamic: bool) -> _Rows:
        return [
            DescribeConfigsResourceResult(
                name=name,
                value=entry.text,
                read_only=not dynamic and entry.is_read_only,
                config_source=int(entry.source),
                is_sensitive=entry.is_sensitive,
                synonyms=[
                    DescribeConfigsSynonym(name=synonym.name, value=synonym.text, source=int(synonym.source))
                    for synonym in (entry.synonyms if self._synonyms else ())
                ],
                config_type=entry.setting.type_code,
                documentation=entry.setting.doc if self._documentation else None,
            )
            for name, entry in resolved.items()
        ]

    def _of_client_metrics(self, setting: ServerSetting, text: str | None) -> DescribeConfigsResourceResult:
        value = setting.default_text if text is None else setting.format(parse_value(setting, text))
        source = DEFAULT_SOURCE if text is None else CLIENT_METRICS_SOURCE
        # As in Kafka, a default is not a synonym here.
        is_shown = self._synonyms and text is not None
        synonyms = [DescribeConfigsSynonym(name=setting.name, value=value, source=source)] if is_shown else []
        return DescribeConfigsResourceResult(
            name=setting.name,
            value=value,
            read_only=False,
            config_source=source,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=setting.type_code,
            documentation=setting.doc if self._documentation else None,
        )


def _status(text: str) -> _Rows:
    """The state of a mirror as settings of one name that cannot be changed; together, they have the whole text."""
    return [
        DescribeConfigsResourceResult(
            name=STATUS,
            value=text[start : start + _PART],
            read_only=True,
            config_source=UNKNOWN,
            is_sensitive=False,
            synonyms=[],
            config_type=TEXT,
            documentation=None,
        )
        for start in range(0, len(text), _PART)
    ]


def _logger(name: str, level: str) -> DescribeConfigsResourceResult:
    """A log level as Kafka shows it: without a type, synonyms and documentation."""
    return DescribeConfigsResourceResult(
        name=name,
        value=level,
        read_only=False,
        config_source=LOGGER_SOURCE,
        is_sensitive=False,
        synonyms=[],
        config_type=UNKNOWN,
        documentation="",
    )
