"""Settings of topics, brokers and groups: what was set for a resource itself, and when a change is visible."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, TypeAlias

from ottla.clients import admin as api

Changes: TypeAlias = "Mapping[api.ConfigResource, Mapping[str, object]]"
Described: TypeAlias = "Mapping[api.ConfigResource, Mapping[str, api.ConfigEntry]]"
PROPAGATION_S: Final = 2.0
"""The longest wait until a broker reports a changed value."""
_POLL_S: Final = 0.05
_IN_MS: Final = {"hours": 3_600_000, "minutes": 60_000}


def default_of(entry: api.ConfigEntry) -> str | None:
    """Return the default in the unit of the entry: its synonym may be in hours, as log.retention.hours is."""
    synonym = next((each for each in entry.synonyms if each.source.name == "DEFAULT"), None)
    if synonym is None or synonym.value is None or not entry.name.endswith(".ms"):
        return None if synonym is None else synonym.value
    factor = _IN_MS.get(synonym.name.rpartition(".")[2], 1)
    return str(int(synonym.value) * factor)


def was_set(entry: api.ConfigEntry, resource: api.ConfigResource) -> bool:
    """Whether the value was set: for a topic or group on itself, for a broker in any place."""
    if resource.type in (api.ResourceType.BROKER, api.ResourceType.BROKER_LOGGER):
        return not entry.is_default
    return entry.source is _own_source(resource)


def _own_source(resource: api.ConfigResource) -> api.ConfigSource:
    """Return the source of the settings that were set for this resource itself."""
    all_brokers = resource.type is api.ResourceType.BROKER and not resource.name
    return api.ConfigSource["CLUSTER_DEFAULT" if all_brokers else resource.type.name]


def described_after(admin: api.Admin, changes: Changes, before: Described) -> Described:
    """Read the settings again; waits until each change is visible.

    The controller acknowledges a change before the brokers have applied it.
    """
    deadline_s = time.monotonic() + PROPAGATION_S
    while True:
        after = admin.describe_configs(changes)
        is_stale = any(
            _is_visible_change(resource, before[resource].get(name), value)
            and before[resource].get(name) == after[resource].get(name)
            for resource, wanted in changes.items()
            for name, value in wanted.items()
        )
        if not is_stale or time.monotonic() >= deadline_s:
            return after
        time.sleep(_POLL_S)


def _is_visible_change(resource: api.ConfigResource, old: api.ConfigEntry | None, value: object) -> bool:
    """Whether the reported setting must differ after this change."""
    if value is None:
        return old is not None and old.source is _own_source(resource)
    if not isinstance(value, str) or (old is not None and old.is_sensitive):
        return False
    return old is None or str(old.value).casefold() != value.strip().casefold()
