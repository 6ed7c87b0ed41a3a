"""Plans about configuration: describe, alter single settings, list resources with a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.admin.model import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
    Subtract,
)
from ottla.clients.admin.topics import config_text
from ottla.clients.errors import BrokerError, ClientError, error_for
from ottla.protocol.message import Message
from ottla.protocol.messages import describe_configs, incremental_alter_configs, list_config_resources

Changes: TypeAlias = Mapping[str, object]

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_ONE_BROKER: Final = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})


def _apart(resources: Iterable[ConfigResource]) -> tuple[list[ConfigResource], dict[int, list[ConfigResource]]]:
    """Split resources into those that any broker can describe and those that only the broker itself can."""
    anywhere: list[ConfigResource] = []
    at_broker: dict[int, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        if resource.type in OF_ONE_BROKER and resource.name:
            at_broker.setdefault(int(resource.name), []).append(resource)
        else:
            anywhere.append(resource)
    return anywhere, at_broker


def _joined(
    anywhere: Outcome[ConfigResource, Any], brokers: Outcome[int, Any], at_broker: Mapping[int, list[ConfigResource]]
) -> Outcome[ConfigResource, Any]:
    joined: Outcome[ConfigResource, Any] = Outcome(dict(anywhere.results), dict(anywhere.errors))
    for node_id, error in brokers.errors.items():
        joined.errors.update(dict.fromkeys(at_broker[node_id], error))
    for rows in brokers.results.values():
        for resource, value in rows:
            (joined.errors if isinstance(value, ClientError) else joined.results)[resource] = value
    return joined


def describe(
    resources: Iterable[ConfigResource], synonyms: bool, documentation: bool, names: Sequence[str] | None = None
) -> Plan[Outcome[ConfigResource, dict[str, ConfigEntry]]]:
    def ask(keys: Sequence[ConfigResource]) -> Message:
        only = None if names is None else list(names)
        rows = [describe_configs.DescribeConfigsResource(key.type, key.name, only) for key in keys]
        return describe_configs.DescribeConfigsRequest(rows, synonyms, documentation)

    def read(response: Any, _: object) -> Iterator[tuple[ConfigResource, dict[str, ConfigEntry] | BrokerError]]:
        for row in response.results:
            key = ConfigResource(ResourceType(row.resource_type), row.resource_name)
            if row.error_code:
                yield key, error_for(row.error_code, row.error_message)
            else:
                yield key, {entry.name: _entry(entry) for entry in sorted(row.configs, key=lambda entry: entry.name)}

    return (yield from _at_the_right_brokers(resources, ask, read))


def alter(changes: Mapping[ConfigResource, Changes], validate_only: bool) -> Plan[Outcome[ConfigResource, None]]:
    module = incremental_alter_configs

    def ask(keys: Sequence[ConfigResource]) -> Message:
        rows = [
            module.AlterConfigsResource(key.type, key.name, [_change(*item) for item in changes[key].items()])
            for key in keys
        ]
        return module.IncrementalAlterConfigsRequest(rows, validate_only)

    def read(response: Any, _: object) -> Iterator[tuple[ConfigResource, BrokerError | None]]:
        for row in response.responses:
            key = ConfigResource(ResourceType(row.resource_type), row.resource_name)
            yield key, error_for(row.error_code, row.error_message) if row.error_code else None

    return (yield from _at_the_right_brokers(changes, ask, read))


def _at_the_right_brokers(resources: Iterable[ConfigResource], ask: Any, read: Any) -> Plan[Outcome[Any, Any]]:
    anywhere, at_broker = _apart(resources)
    first: Outcome[Any, Any] = Outcome({}, {})
    second: Outcome[Any, Any] = Outcome({}, {})
    if anywhere:
        first = yield Call(Route.CONTROLLER, anywhere, ask, read)
    if at_broker:
        # A key is a broker; its value is the response about all of its resources.
        second = yield Call(
            Route.BROKERS,
            list(at_broker),
            lambda nodes: ask([resource for node in nodes for resource in at_broker[node]]),
            lambda response, nodes: [(node, list(read(response, nodes))) for node in nodes],
        )
    return _joined(first, second, at_broker)


def _change(name: str, value: object) -> incremental_alter_configs.AlterableConfig:
    if value is None:
        return incremental_alter_configs.AlterableConfig(name, DELETE, None)
    if isinstance(value, Append):
        return incremental_alter_configs.AlterableConfig(name, APPEND, value.value)
    if isinstance(value, Subtract):
        return incremental_alter_configs.AlterableConfig(name, SUBTRACT, value.value)
    return incremental_alter_configs.AlterableConfig(name, SET, config_text(value))


def _entry(row: describe_configs.DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in row.synonyms)
    return ConfigEntry(
        row.name,
        row.value,
        ConfigSource(row.config_source),
        ConfigType(row.config_type),
        row.read_only,
        row.is_sensitive,
        row.documentation,
        synonyms,
    )


def list_resources(types: Iterable[ResourceType]) -> Plan[list[ConfigResource]]:
    wanted = [int(kind) for kind in types]

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, list[ConfigResource] | BrokerError]]:
        if response.error_code:
            yield keys[0], error_for(response.error_code)
            return
        rows = (ConfigResource(ResourceType(row.resource_type), row.resource_name) for row in response.config_resources)
        yield keys[0], sorted(rows, key=lambda resource: (resource.type, resource.name))

    call: Call[str, Any] = Call(
        Route.ANY,
        ["the resources"],
        lambda _: list_config_resources.ListConfigResourcesRequest(wanted),
        read,
    )
    return (yield call).one()  # type: ignore[no-any-return]
