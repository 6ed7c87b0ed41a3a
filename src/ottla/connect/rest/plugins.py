"""`/connector-plugins`: list plugins, their settings, and validate configurations."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.connect.errors import BadRequestError
from ottla.connect.herder.plugin_source import CONNECTOR_KINDS, PluginKind
from ottla.connect.rest.router import Operation, Reply, Route

_SUFFIX: Final = "Connector"


async def listing(call: Operation) -> Reply:
    """List the connectors, or all plugins."""
    only = call.request.flag("connectorsOnly", default=True)
    kinds = list(CONNECTOR_KINDS if only else PluginKind)
    return Reply(await asyncio.to_thread(_rows, call, kinds))


def _rows(call: Operation, kinds: list[PluginKind]) -> list[dict[str, Any]]:
    rows = call.herder.validator.plugins.listing(kinds)
    return [{"class": name, "type": str(kind), "version": version} for kind, name, version in rows]


async def settings(call: Operation) -> Reply:
    """Return the settings of a plugin."""
    name, version = call.request.name, call.request.value("version")
    return Reply(await asyncio.to_thread(call.herder.validator.plugin_definitions, name, version))


async def validate(call: Operation) -> Reply:
    """Return all faults of a configuration."""
    name, config = call.request.name, call.request.config()
    given = config.get("connector.class")
    if given is not None and not _normal(given).endswith(_normal(name)):
        raise BadRequestError(f"Included connector type {given} does not match request type {name}")
    return Reply((await call.herder.validate(config)).as_json())


def _normal(name: str) -> str:
    return name.removesuffix(_SUFFIX) if len(name) > len(_SUFFIX) else name


ROUTES: Final = (
    Route("GET", "/connector-plugins", listing),
    Route("GET", "/connector-plugins/{}/config", settings),
    Route("PUT", "/connector-plugins/{}/config/validate", validate),
)
