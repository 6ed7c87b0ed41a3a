"""The classes of connectors that are Spark queries: what the herder and the worker see. Does not import Spark."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from ottla.connect.api import Config, Connector, ExactlyOnce, Kind, Life, SinkTask, SourceOffset, SourceTask
from ottla.connect.config.definition import ConfigDef, SettingError
from ottla.connect.errors import BadRequestError, ConnectError
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.spark import checkpoints
from ottla.connect.spark.settings import FUNCTION, SINK, SOURCE, SparkSettings, checkpoint_of

_VERSION = "1.0"


class SparkSourceTask(SourceTask):
    """Stands for a query in the REST API. Spark runs it: the worker never calls this class."""

    def start(self, context: object, config: Config) -> None:
        """Raise an error."""
        del context, config
        raise ConnectError("This task is a Spark query")

    def poll(self) -> Sequence[SourceRecord]:
        """Return nothing."""
        return ()


class SparkSinkTask(SinkTask):
    """Stands for a query in the REST API. Spark runs it: the worker never calls this class."""

    def start(self, context: object, config: Config) -> None:
        """Raise an error."""
        del context, config
        raise ConnectError("This task is a Spark query")

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Do nothing."""


class _SparkConnector(Connector):
    """One task, whose work Spark divides."""

    version: ClassVar[str] = _VERSION
    plain: ClassVar[str] = ""
    """The name of the plugin whose functions Spark calls; empty for a format."""

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return one task."""
        del most_tasks
        return [self.config]

    @classmethod
    def life(cls, environment: Any) -> Life:
        """Create a life; Spark is imported only now. Raises ConnectError."""
        try:
            module = importlib.import_module("ottla.connect.spark.life")
        except ImportError as error:
            raise ConnectError(f"Spark connectors need pyspark: pip install 'ottla[spark]' ({error})") from error
        created: Life = module.SparkLife(environment)
        return created

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check the settings together."""
        try:
            settings = SparkSettings.read(config, {})
        except SettingError as error:
            return {"connector.class": [str(error)]}
        if cls.kind is Kind.SINK and settings.select and settings.partition_by and settings.format == "ottla":
            return {"spark.partition.by": ["A topic has no directories"]}
        return {}


class SparkSource(_SparkConnector):
    """Reads a Spark format, and writes each row to a topic exactly once."""

    kind: ClassVar[Kind] = Kind.SOURCE
    task_class: ClassVar[type[SourceTask | SinkTask]] = SparkSourceTask
    config_def: ClassVar[ConfigDef] = SOURCE

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Micro-batches are replayable, and written in transactions."""
        del config
        return ExactlyOnce.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Move the checkpoint aside; only a function's offsets may be set. Raises BadRequestError."""
        if offsets is not None and not cls.plain:
            raise BadRequestError(
                "The offsets of a Spark source are in its checkpoint and cannot be set; a reset starts again"
            )
        checkpoints.move_aside(checkpoint_of(config))


class SparkSink(_SparkConnector):
    """Writes topics by a Spark format."""

    kind: ClassVar[Kind] = Kind.SINK
    task_class: ClassVar[type[SourceTask | SinkTask]] = SparkSinkTask
    config_def: ClassVar[ConfigDef] = SINK

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Move the checkpoint aside: the next query starts at the offsets of the group. Raises BadRequestError."""
        del offsets
        settings = SparkSettings.read(config, {})
        checkpoints.check_output(settings)
        checkpoints.move_aside(settings.checkpoint)


@lru_cache(maxsize=64)
def source_class(format_: str) -> type[Connector]:
    """Return the source of a format."""
    return type(f"spark:{format_}", (SparkSource,), {"__module__": __name__, "__doc__": SparkSource.__doc__})


@lru_cache(maxsize=64)
def sink_class(format_: str) -> type[Connector]:
    """Return the sink of a format."""
    return type(f"spark:{format_}", (SparkSink,), {"__module__": __name__, "__doc__": SparkSink.__doc__})


@lru_cache(maxsize=64)
def function_class(plain: str, found: type[Connector]) -> type[Connector]:
    """Return the connector that calls the function of another one on Spark. Raises ConnectError."""
    if not hasattr(found, "declared"):
        raise ConnectError(f"ottla.runtime=spark is for connectors that are functions; {plain} is a class")
    base = SparkSource if found.kind is Kind.SOURCE else SparkSink
    members = {
        "plain": plain,
        "config_def": found.config_def.plus(FUNCTION),
        "version": found.version,
        "__module__": found.__module__,
        "__doc__": found.__doc__,
    }
    return type(found.__name__, (base,), members)
