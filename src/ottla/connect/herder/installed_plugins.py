"""The plugins of `ottla.connect.plugins` as the herder sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ottla.connect import plugins
from ottla.connect.config.definition import ConfigDef
from ottla.connect.errors import ConnectError, NotFoundError
from ottla.connect.herder.plugin_source import PluginInfo, PluginKind

logger = logging.getLogger(__name__)

_FINDERS: Final[Mapping[PluginKind, Callable[[str], Any]]] = {
    PluginKind.TRANSFORMATION: plugins.transformation_class,
    PluginKind.PREDICATE: plugins.predicate_class,
    PluginKind.CONVERTER: plugins.converter_class,
    PluginKind.HEADER_CONVERTER: plugins.header_converter_class,
}
_UNKNOWN: Final = "undefined"


class InstalledPlugins:
    """Implements `Plugins`."""

    def connector(self, name: str) -> PluginInfo:
        return _connector(name)

    def find(self, kind: PluginKind, name: str) -> PluginInfo:
        return _find(kind, name)

    def listing(self, kinds: Sequence[PluginKind]) -> Sequence[tuple[PluginKind, str, str]]:
        """See `Plugins`. A plugin that cannot be loaded has no version."""
        return [(kind, name, self._version(kind, name)) for kind in kinds for name in self.names(kind)]

    def names(self, kind: PluginKind) -> Sequence[str]:
        return plugins.names_of([plugins.PluginType(str(kind))])

    def _version(self, kind: PluginKind, name: str) -> str:
        is_connector = kind in (PluginKind.SOURCE, PluginKind.SINK)
        try:
            return (self.connector(name) if is_connector else self.find(kind, name)).version
        except ConnectError as error:
            logger.debug("The plugin %s cannot be loaded: %s", name, error)
            return _UNKNOWN


@lru_cache(maxsize=256)
def _connector(name: str) -> PluginInfo:
    found = plugins.connector_class(name)
    kind = PluginKind(str(found.kind))
    return PluginInfo(_class_name(kind, name), kind, found.version, found.config_def, found)


@lru_cache(maxsize=256)
def _find(kind: PluginKind, name: str) -> PluginInfo:
    if not name:
        raise NotFoundError("The name of a plugin is empty")
    found = _FINDERS[kind](name)
    config_def = getattr(found, "config_def", ConfigDef())
    return PluginInfo(_class_name(kind, name), kind, getattr(found, "version", _UNKNOWN), config_def, found)


def _class_name(kind: PluginKind, name: str) -> str:
    """Return the class name of a plugin that exists; plugins of Python files have no other one."""
    wanted = plugins.PluginType(str(kind))
    return next((each.name for each in plugins.plugins() if each.type is wanted and name in each.names), name)
