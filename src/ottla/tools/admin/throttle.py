"""The limit of the rate at which partitions move, as kafka-reassign-partitions.sh sets it (KIP-73).

It consists of rates of brokers, and of a list of replicas in the settings of each topic. A `Throttle` remembers exactly
what it adds, so that its removal keeps the limits of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.clients import admin as api
from ottla.common.ids import TopicPartition
from ottla.tools.admin.placement import Moves

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
# Which replicas are limited: of the senders, and of the receivers.
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_ALL = "*"


class Throttle(NamedTuple):
    """A limit, in bytes per second for each broker."""

    rate: int
    previous: dict[int, dict[str, str | None]]
    """The rates that the brokers had; None for those without one of their own."""
    added: dict[str, dict[str, list[str]]]
    """The replicas by topic and setting that were not limited already."""


def throttle_for(admin: api.Admin, rate: int, moves: Moves, before: Mapping[TopicPartition, Sequence[int]]) -> Throttle:
    """Read the present limits, and return the limit for the moves. It changes nothing."""
    brokers = sorted({node_id for each, new in moves.items() for node_id in (*before[each], *new)})
    previous = {node_id: dict(zip(_RATES, _own_rates(settings), strict=True)) for node_id, settings in
                _settings(admin, [api.ConfigResource.broker(node_id) for node_id in brokers], int)}  # fmt: skip
    wanted: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), new in moves.items():
        senders, receivers = wanted.setdefault(topic, ([], []))
        old = before[TopicPartition(topic, index)]
        senders += [f"{index}:{node_id}" for node_id in old]
        receivers += [f"{index}:{node_id}" for node_id in new if node_id not in old]
    added = {
        topic: {
            name: _missing(settings[name].value, entries)
            for name, entries in zip(_REPLICAS, wanted[topic], strict=True)
        }
        for topic, settings in _settings(admin, [api.ConfigResource.topic(name) for name in wanted], str)
    }
    return Throttle(rate, previous, added)


def set_throttle(admin: api.Admin, throttle: Throttle) -> None:
    """Set the limit; what is set already stays."""
    changes: dict[api.ConfigResource, dict[str, object]] = {}
    for topic, settings in _settings(admin, _topics(admin, throttle), str):
        for name, entries in throttle.added[topic].items():
            if missing := _missing(settings[name].value, entries):
                changes.setdefault(api.ConfigResource.topic(topic), {})[name] = api.Append(",".join(missing))
    if changes:
        admin.alter_configs(changes)
    admin.alter_configs(
        {api.ConfigResource.broker(node_id): dict.fromkeys(_RATES, throttle.rate) for node_id in throttle.previous}
    )


def remove_throttle(admin: api.Admin, throttle: Throttle) -> None:
    """Restore the earlier limits, except those that were changed meanwhile."""
    changes: dict[api.ConfigResource, dict[str, object]] = {}
    brokers = [api.ConfigResource.broker(node_id) for node_id in throttle.previous]
    for node_id, settings in _settings(admin, brokers, int):
        for name, now in zip(_RATES, _own_rates(settings), strict=True):
            if now == str(throttle.rate):
                earlier = throttle.previous[node_id][name]
                changes.setdefault(api.ConfigResource.broker(node_id), {})[name] = earlier
    for topic, settings in _settings(admin, _topics(admin, throttle), str):
        for name, entries in throttle.added[topic].items():
            present = _entries(settings[name].value)
            own = [entry for entry in entries if entry in present]
            if own:
                # An empty list would remain as a setting of the topic.
                value = api.Subtract(",".join(own)) if set(present) - set(own) else None
                changes.setdefault(api.ConfigResource.topic(topic), {})[name] = value
    if changes:
        admin.alter_configs(changes)


def _topics(admin: api.Admin, throttle: Throttle) -> list[api.ConfigResource]:
    """The topics of the limit that still exist."""
    existing = {topic.name for topic in admin.list_topics(include_internal=True)}
    return [api.ConfigResource.topic(name) for name in throttle.added if name in existing]


def _settings(admin: api.Admin, resources: list[api.ConfigResource], key: Any) -> list[tuple[Any, Any]]:
    described = admin.describe_configs(resources) if resources else {}
    return [(key(resource.name), settings) for resource, settings in described.items()]


def _own_rates(settings: Mapping[str, api.ConfigEntry]) -> list[str | None]:
    """The rates that were set for this broker alone. Rates for all brokers are another setting."""
    found = [settings.get(name) for name in _RATES]
    return [entry.value if entry is not None and entry.source is api.ConfigSource.BROKER else None for entry in found]


def _entries(value: str | None) -> list[str]:
    return [entry.strip() for entry in (value or "").split(",") if entry.strip()]


def _missing(value: str | None, wanted: Sequence[str]) -> list[str]:
    present = _entries(value)
    return [] if _ALL in present else [entry for entry in wanted if entry not in present]
