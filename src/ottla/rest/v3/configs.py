"""Settings of topics, of brokers, and the dynamic defaults of all brokers of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from ottla.clients.admin.model import ConfigEntry, ConfigResource, ConfigSource
from ottla.clients.errors import InvalidTopic, UnknownTopicOrPartition
from ottla.rest.calls import Call, Handler, json_response
from ottla.rest.v3.clusters import broker_of
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import Links, bad_request, checked, cluster_of, existing, not_found, object_body
from ottla.rest.v3.topics import not_hosted

# Kafka's names of the sources, where the names in the clients differ.
_SOURCES: Final = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.CLUSTER_DEFAULT: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.BROKER_FILE: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


class _Owner(NamedTuple):
    """The owner of settings: its resource in Kafka, its fields in answers, and its place among the links."""

    resource: ConfigResource
    fields: dict[str, Any]
    path: tuple[object, ...]
    name: tuple[object, ...]
    setting: str


class _Kind(NamedTuple):
    """The settings of one kind of owner."""

    kind: str
    path: str
    owner: Callable[[Call, Any], _Owner]
    what: str


def _topic(call: Call, _: Any) -> _Owner:
    return _topic_named(call.path("topic"))


def _topic_named(name: str) -> _Owner:
    path = ("topics", name, "configs")
    return _Owner(ConfigResource.topic(name), {"topic_name": name}, path, ("topic", name), "config")


def _broker(call: Call, cluster: Any) -> _Owner:
    return _broker_numbered(broker_of(call, cluster).node_id)


def _broker_numbered(number: int) -> _Owner:
    path = ("brokers", number, "configs")
    return _Owner(ConfigResource.broker(number), {"broker_id": number}, path, ("broker", number), "config")


def _cluster(_: Call, __: Any) -> _Owner:
    return _Owner(ConfigResource.broker(), {"config_type": "BROKER"}, ("broker-configs",), (), "broker-config")


_TOPIC_KIND: Final = _Kind("KafkaTopicConfig", "/clusters/{cluster}/topics/{topic}/configs", _topic, "a topic")
_BROKER_KIND: Final = _Kind("KafkaBrokerConfig", "/clusters/{cluster}/brokers/{broker}/configs", _broker, "a broker")
_CLUSTER_KIND: Final = _Kind("KafkaClusterConfig", "/clusters/{cluster}/broker-configs", _cluster, "all brokers")


async def _described(call: Call, owners: Iterable[_Owner]) -> Mapping[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings of each owner that exists."""
    return await existing(call.clients.admin.describe_configs([owner.resource for owner in owners], synonyms=True))


async def _settings(call: Call, owner: _Owner) -> dict[str, ConfigEntry]:
    """Return the settings of one owner. Raises HttpError if it does not exist."""
    found = (await _described(call, [owner])).get(owner.resource)
    if found is None:
        raise not_hosted()
    return found


def _entry(kind: _Kind, owner: _Owner, entry: ConfigEntry, links: Links) -> dict[str, Any]:
    fields = {
        **owner.fields,
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "source": _SOURCES.get(entry.source, "UNKNOWN"),
        "synonyms": [
            {"name": each.name, "value": each.value, "source": _SOURCES.get(each.source, "UNKNOWN")}
            for each in entry.synonyms
        ],
    }
    name = links.name(*owner.name, owner.setting, entry.name)
    return links.resource(kind.kind, links.url(*owner.path, entry.name), name, fields)


def _list(kind: _Kind) -> Handler:
    async def handler(call: Call) -> Response:
        cluster, links = await cluster_of(call)
        owner = kind.owner(call, cluster)
        entries = await _settings(call, owner)
        data = (_entry(kind, owner, entries[name], links) for name in sorted(entries))
        return links.collection(kind.kind, links.url(*owner.path), data)

    return handler


def _get(kind: _Kind) -> Handler:
    async def handler(call: Call) -> Response:
        cluster, links = await cluster_of(call)
        owner = kind.owner(call, cluster)
        return json_response(_entry(kind, owner, await _existing(call, owner), links))

    return handler


async def _existing(call: Call, owner: _Owner) -> ConfigEntry:
    """Return the setting in the path. Raises HttpError."""
    name = call.path("name")
    entry = (await _settings(call, owner)).get(name)
    if entry is None and owner.resource.name:
        resource = owner.resource
        raise not_found(f"Config {name} cannot be found for {resource.type.name} {resource.name}.")
    if entry is None:
        raise not_found(f"Config {name} cannot be found.")
    return entry


def _put(kind: _Kind) -> Handler:
    async def handler(call: Call) -> Response:
        cluster, _ = await cluster_of(call)
        owner = kind.owner(call, cluster)
        body = await object_body(call)
        if kind is not _CLUSTER_KIND:  # a default of all brokers does not exist before it is set
            await _existing(call, owner)
        await call.clients.admin.alter_config(owner.resource, {call.path("name"): checked(body, "value", str)})
        return Response(status_code=204)

    return handler


def _reset(kind: _Kind) -> Handler:
    async def handler(call: Call) -> Response:
        cluster, _ = await cluster_of(call)
        owner = kind.owner(call, cluster)
        await _existing(call, owner)
        await call.clients.admin.alter_config(owner.resource, {call.path("name"): None})
        return Response(status_code=204)

    return handler


def _alter(kind: _Kind) -> Handler:
    async def handler(call: Call) -> Response:
        cluster, _ = await cluster_of(call)
        owner = kind.owner(call, cluster)
        body = await object_body(call, "data")
        changes = dict(map(_change, checked(body, "data", list)))
        validate_only = checked(body, "validate_only", bool, default=False)
        try:
            await call.clients.admin.alter_config(owner.resource, changes, validate_only=validate_only)
        except (UnknownTopicOrPartition, InvalidTopic) as error:
            raise not_hosted() from error
        return Response(status_code=204)

    return handler


def _change(given: Any) -> tuple[str, object]:
    """Return a setting and its new value, None for the default. Raises HttpError."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise bad_request('data must be an array of objects such as {"name": ..., "value": ...}.')
    operation = str(given.get("operation") or "SET").upper()
    if operation not in {"SET", "DELETE"}:
        raise bad_request(f"operation must be SET or DELETE, not {operation}.")
    return given["name"], None if operation == "DELETE" else checked(given, "value", str)


async def list_all_topics(call: Call) -> Response:
    """GET topics/-/configs: the settings of all topics."""
    _, links = await cluster_of(call)
    topics = await call.clients.admin.list_topics(include_internal=True)
    return await _all(call, links, _TOPIC_KIND, [_topic_named(topic.name) for topic in topics], "topics")


async def list_all_brokers(call: Call) -> Response:
    """GET brokers/-/configs: the settings of all brokers."""
    cluster, links = await cluster_of(call)
    owners = [_broker_numbered(broker.node_id) for broker in cluster.brokers]
    return await _all(call, links, _BROKER_KIND, owners, "brokers")


async def _all(call: Call, links: Links, kind: _Kind, owners: list[_Owner], path: str) -> Response:
    described = await _described(call, owners) if owners else {}
    data = [
        _entry(kind, owner, entries[name], links)
        for owner in owners
        for entries in [described.get(owner.resource, {})]
        for name in sorted(entries)
    ]
    return links.collection(kind.kind, links.url(path, "-", "configs"), data)


def _operations(kind: _Kind) -> tuple[Operation, ...]:
    one = f"{kind.path}/{{name}}"
    return (
        Operation("GET", kind.path, _list(kind), f"List the settings of {kind.what}", f"{kind.kind}List"),
        Operation(
            "POST", f"{kind.path}:alter", _alter(kind), f"Change settings of {kind.what}", None, 204, "AlterConfigs"
        ),
        Operation("GET", one, _get(kind), f"Get a setting of {kind.what}", kind.kind),
        Operation("PUT", one, _put(kind), f"Set a setting of {kind.what}", None, 204, "UpdateConfig"),
        Operation("DELETE", one, _reset(kind), f"Reset a setting of {kind.what} to its default", None, 204),
    )


OPERATIONS: Final = (
    Operation(
        "GET", "/clusters/{cluster}/topics/-/configs", list_all_topics, "List the settings of all topics",
        f"{_TOPIC_KIND.kind}List",
    ),
    Operation(
        "GET", "/clusters/{cluster}/brokers/-/configs", list_all_brokers, "List the settings of each broker",
        f"{_BROKER_KIND.kind}List",
    ),
    *_operations(_TOPIC_KIND),
    *_operations(_BROKER_KIND),
    *_operations(_CLUSTER_KIND),
)  # fmt: skip
