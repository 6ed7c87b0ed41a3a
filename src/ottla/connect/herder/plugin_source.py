"""The plugins as the herder sees them: a name, a direction or role, a version and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ottla.connect.config.definition import ConfigDef


class PluginKind(StrEnum):
    """The role of a plugin; the texts are from the REST API, in the order of its list of plugins."""

    SINK = "sink"
    SOURCE = "source"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


CONNECTOR_KINDS = (PluginKind.SINK, PluginKind.SOURCE)


@dataclass(frozen=True)
class PluginInfo:
    """A plugin. `name` is its class name in the REST API."""

    name: str
    kind: PluginKind
    version: str
    config_def: ConfigDef
    type: Any
    """The class."""


class Plugins(Protocol):
    """Finds plugins by their names."""

    def connector(self, name: str) -> PluginInfo:
        """Return a connector. Raises NotFoundError, and ConnectError if it cannot be loaded."""
        ...

    def find(self, kind: PluginKind, name: str) -> PluginInfo:
        """Return a plugin of a kind. Raises NotFoundError, and ConnectError if it cannot be loaded."""
        ...

    def listing(self, kinds: Sequence[PluginKind]) -> Sequence[tuple[PluginKind, str, str]]:
        """Return kind, class name and version of all plugins of these kinds that can be loaded."""
        ...

    def names(self, kind: PluginKind) -> Sequence[str]:
        """Return the class names of all plugins of a kind, sorted, without loading them."""
        ...
