"""Finds connectors, converters, transformations and predicates by name.

A plugin has several names:

- Kafka's class name: `org.apache.kafka.connect.json.JsonConverter`
- its alias: the class name without package, with or without the word `Connector`, `Converter`, `Transformation` or
  `Predicate` at its end: `JsonConverter`, `Json`
- a short name of Ottla: `postgres`
- a name of the entry point group `ottla.connectors`, for connectors of installed packages
- `module:attribute`, for connectors in a Python file, which may also be functions (see `functions`)
- `spark:FORMAT`, for a Spark format as a source or a sink; the formats that Spark has itself are listed

Modules are imported when a plugin is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.config.definition import ConfigDef
from ottla.connect.connectors.names import CONNECTORS, SPARK_FORMATS
from ottla.connect.converters.names import CONVERTERS, HEADER_CONVERTERS
from ottla.connect.errors import ConnectError, NotFoundError
from ottla.connect.transforms.names import PREDICATES, TRANSFORMATIONS

if TYPE_CHECKING:
    from ottla.connect.api import Connector
    from ottla.connect.converters.api import Converter, HeaderConverter
    from ottla.connect.transforms.api import Predicate, Transformation

ENTRY_POINTS: Final = "ottla.connectors"
logger = logging.getLogger(__name__)


class PluginType(StrEnum):
    """The type of a plugin; the texts are from the REST API."""

    SOURCE = "source"
    SINK = "sink"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


_SUFFIXES: Final = {
    PluginType.SOURCE: "Connector",
    PluginType.SINK: "Connector",
    PluginType.CONVERTER: "Converter",
    PluginType.HEADER_CONVERTER: "HeaderConverter",
    PluginType.TRANSFORMATION: "Transformation",
    PluginType.PREDICATE: "Predicate",
}
_CONNECTOR_TYPES: Final = frozenset({PluginType.SOURCE, PluginType.SINK})
_import_lock: Final = threading.Lock()


@dataclass(frozen=True)
class Plugin:
    """A plugin that is not imported yet. `name` is its class name in the REST API."""

    type: PluginType
    name: str
    target: str
    """`module:attribute`."""
    short_name: str = ""

    @property
    def names(self) -> Iterator[str]:
        """All names of the plugin."""
        yield self.name
        simple = self.name.rpartition(".")[2]
        yield simple
        yield simple.removesuffix(_SUFFIXES[self.type])
        yield simple.removesuffix("Converter")
        if self.short_name:
            yield self.short_name
        yield self.target

    def load(self) -> Any:
        """Import the class. Raises ConnectError with the cause, for example a package that is not installed."""
        if self.target.startswith(_SPARK):
            return connector_class(f"{self.target}#{self.type}")
        return _load(self.target)


def plugins() -> tuple[Plugin, ...]:
    """Return all plugins that are delivered or installed, sorted by type and name."""
    found = [Plugin(PluginType(row.kind), row.java_name, row.target, row.short_name) for row in CONNECTORS]
    found += [*_installed(), *_spark_formats()]
    for kind, rows in _DELIVERED.items():
        found += [Plugin(kind, name, target) for name, target in rows.items()]
    return tuple(sorted(found, key=lambda each: (each.type, each.name)))


_DELIVERED: Final[Mapping[PluginType, Mapping[str, str]]] = {
    PluginType.CONVERTER: CONVERTERS,
    PluginType.HEADER_CONVERTER: HEADER_CONVERTERS,
    PluginType.TRANSFORMATION: TRANSFORMATIONS,
    PluginType.PREDICATE: PREDICATES,
}


@lru_cache(maxsize=1)
def _installed() -> tuple[Plugin, ...]:
    """Return connectors of installed packages. The direction of each is known only after its import.

    One that cannot be imported is logged and skipped: the others must work. Its error is raised when it is used.
    """
    rows = []
    for each in entry_points(group=ENTRY_POINTS):
        try:
            kind = PluginType(_of_entry_point(each).kind)
        except ConnectError as error:
            package = "" if each.dist is None else f" of the package {each.dist.name} {each.dist.version}"
            logger.warning("Skipping the connector %s%s, which cannot be loaded: %s", each.name, package, error)
        else:
            rows.append(Plugin(kind, each.value, each.value, each.name))
    return tuple(rows)


def _of_entry_point(entry: EntryPoint) -> type[Connector]:
    """Return the class of an entry point. Raises ConnectError, also for a class without what the worker needs."""
    found = _as_connector(_load(entry.value), entry.value)
    missing = [each for each in ("kind", "version", "config_def", "task_class") if not hasattr(found, each)]
    if missing:
        raise ConnectError(f"The class {found.__name__} has no {' and no '.join(missing)}")
    if str(found.kind) not in _CONNECTOR_TYPES:
        raise ConnectError(f"The class {found.__name__} has the kind {found.kind!r}: it must be source or sink")
    if not isinstance(found.config_def, ConfigDef):
        raise ConnectError(f"The config_def of the class {found.__name__} is not a ConfigDef")
    return found


@lru_cache(maxsize=1)
def _spark_formats() -> tuple[Plugin, ...]:
    """Return the formats that pyspark has, if it is installed. Others, of further packages, need no row to be used."""
    if importlib.util.find_spec("pyspark") is None:
        return ()
    return tuple(
        Plugin(PluginType(kind), _SPARK + name, _SPARK + name)
        for name, kinds in SPARK_FORMATS.items()
        for kind in kinds
    )


def connector_class(name: str) -> type[Connector]:
    """Return the class of a connector. Raises NotFoundError, and ConnectError if it cannot be imported."""
    on_spark = _on_spark(name)
    if on_spark is not None:
        return on_spark
    for row in CONNECTORS:
        plugin = Plugin(PluginType(row.kind), row.java_name, row.target, row.short_name)
        if name in plugin.names:
            return _as_connector(plugin.load(), name)
    for each in entry_points(group=ENTRY_POINTS):
        if name == each.name:
            return _of_entry_point(each)
    module, colon, attribute = name.partition(":")
    if colon and attribute and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        return _as_connector(_load(name), name)
    shown = (plugin.short_name or plugin.name for plugin in plugins() if plugin.type in _CONNECTOR_TYPES)
    known = ", ".join(dict.fromkeys(shown))
    raise NotFoundError(
        f"Failed to find any class that implements Connector and which name matches {name}, "
        f"available connectors are: {known}"
    )


_SPARK: Final = "spark:"
_RUN_BY_SPARK: Final = "#spark"
_DIRECTIONS: Final = {"#source": "source_class", "#sink": "sink_class"}
_SPARK_MODULE: Final = "ottla.connect.spark.connectors"


def plugin_name(config: Mapping[str, str | None]) -> str:
    """Return the name of the plugin that runs a configuration: `connector.class`, and what else it depends on.

    A Spark format is a source or a sink by its settings, and `ottla.runtime=spark` runs a function on Spark.
    """
    name = config.get("connector.class") or ""
    if name.startswith(_SPARK):
        direction = config.get("ottla.direction") or ("sink" if _has_topics(config) else "source")
        return f"{name}#{direction}"
    return name + _RUN_BY_SPARK if config.get("ottla.runtime") == "spark" else name


def _has_topics(config: Mapping[str, str | None]) -> bool:
    return bool(config.get("topics") or config.get("topics.regex"))


def _on_spark(name: str) -> type[Connector] | None:
    """Return the class of a connector that is a Spark query; None for other names."""
    plain, mark, suffix = name.partition("#")
    if mark + suffix == _RUN_BY_SPARK:
        found: type[Connector] = _load(f"{_SPARK_MODULE}:function_class")(plain, connector_class(plain))
        return found
    if not plain.startswith(_SPARK):
        return None
    only = SPARK_FORMATS.get(plain.removeprefix(_SPARK), ("sink",))
    created = _DIRECTIONS.get(mark + suffix or f"#{only[-1]}")
    if created is None or not plain.removeprefix(_SPARK):
        raise NotFoundError(f"{plain} is not spark:FORMAT, or ottla.direction={suffix} is neither source nor sink")
    connector: type[Connector] = _load(f"{_SPARK_MODULE}:{created}")(plain.removeprefix(_SPARK))
    return connector


def converter_class(name: str) -> type[Converter]:
    """Return the class of a converter of keys and values. Raises NotFoundError."""
    from ottla.connect.converters.api import Converter  # noqa: PLC0415 - plugins are imported late

    found: type[Converter] = _subclass(_find(PluginType.CONVERTER, name), Converter, name)
    return found


def header_converter_class(name: str) -> type[HeaderConverter]:
    """Return the class of a converter of headers. Raises NotFoundError."""
    from ottla.connect.converters.api import HeaderConverter  # noqa: PLC0415

    found: type[HeaderConverter] = _subclass(_find(PluginType.HEADER_CONVERTER, name), HeaderConverter, name)
    return found


def transformation_class(name: str) -> type[Transformation]:
    """Return the class of a transformation. Raises NotFoundError."""
    from ottla.connect.transforms.api import Transformation  # noqa: PLC0415

    found: type[Transformation] = _subclass(_find(PluginType.TRANSFORMATION, name), Transformation, name)
    return found


def predicate_class(name: str) -> type[Predicate]:
    """Return the class of a predicate. Raises NotFoundError."""
    from ottla.connect.transforms.api import Predicate  # noqa: PLC0415

    found: type[Predicate] = _subclass(_find(PluginType.PREDICATE, name), Predicate, name)
    return found


def _find(kind: PluginType, name: str) -> Any:
    for plugin in (Plugin(kind, each, target) for each, target in _DELIVERED[kind].items()):
        if name in plugin.names:
            return plugin.load()
    if ":" in name:
        return _load(name)
    raise NotFoundError(f"Failed to find any class that implements {_SUFFIXES[kind]} and which name matches {name}")


def _as_connector(found: Any, name: str) -> type[Connector]:
    """Return the class of a connector, also for a function that `source` or `sink` has decorated."""
    from ottla.connect.api import Connector  # noqa: PLC0415

    checked: type[Connector] = _subclass(getattr(found, "connector_class", found), Connector, name)
    return checked


def _subclass(found: Any, base: type[Any], name: str) -> Any:
    if isinstance(found, type) and issubclass(found, base):
        return found
    raise NotFoundError(f"{name} is not a {base.__name__}: it is {_described(found)}")


def _described(found: Any) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        with _import_lock:
            found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _not_imported(target, module, error) from error
    except (Exception, SystemExit) as error:  # the code of a plugin may raise anything
        raise ConnectError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NotFoundError(f"The module {module} has no attribute {attribute}")
        found = getattr(found, part)
    return found


def _not_imported(target: str, module: str, error: ModuleNotFoundError) -> ConnectError:
    missing = error.name or ""
    if module == missing or module.startswith(f"{missing}."):
        return NotFoundError(f"There is no module {module} for {target}; is its directory in PYTHONPATH?")
    return ConnectError(f"{target} needs the package {missing}, which is not installed: {error}")


def names_of(kinds: Iterable[PluginType]) -> list[str]:
    """Return the class names of all plugins of these types."""
    wanted = set(kinds)
    return [plugin.name for plugin in plugins() if plugin.type in wanted]
