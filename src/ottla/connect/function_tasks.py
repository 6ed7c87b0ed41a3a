"""Connectors and tasks that call functions; see `functions`."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Final

from ottla.connect.api import (
    Config,
    Connector,
    ConnectorContext,
    ExactlyOnce,
    Kind,
    SinkTask,
    SinkTaskContext,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, non_empty
from ottla.connect.data import Schema
from ottla.connect.dataclass_schemas import key_schema, schema_of, value_of
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.function_declarations import Batch, Errors, FunctionSink, FunctionSource
from ottla.connect.records import Position, SinkRecord, SourceRecord

_PARTITIONS: Final = "ottla.partitions"
_OFFSET: Final = "after"
_TICK_S: Final = 0.1


def source_connector(declared: FunctionSource) -> type[Connector]:
    """Return the class of a source connector that calls a function."""
    topic = Setting("topic", SettingType.STRING, "The topic to write to.", importance=Importance.HIGH,
                    validator=non_empty)  # fmt: skip
    if declared.topic is not None:
        topic = replace(topic, default=declared.topic if isinstance(declared.topic, str) else None)
    rows = [
        topic,
        Setting("batch.size", SettingType.INT, "How many rows a call may return.", 1000, Importance.LOW, between(1)),
        Setting("partitions.refresh.ms", SettingType.LONG, "How often the parts of the source are listed again.",
                60_000, Importance.LOW, between(1)),
    ]  # fmt: skip
    task = type(f"{declared.name}-task", (FunctionSourceTask,), {"declared": declared})
    members = {
        "declared": declared,
        "task_class": task,
        "config_def": declared.settings.definition.plus(rows),
        "version": _version(declared.function),
        "__module__": declared.function.__module__,
        "__doc__": declared.function.__doc__,
    }
    return type(declared.name, (FunctionSourceConnector,), members)


def sink_connector(declared: FunctionSink) -> type[Connector]:
    """Return the class of a sink connector that calls a function."""
    members = {
        "declared": declared,
        "task_class": type(f"{declared.name}-task", (FunctionSinkTask,), {"declared": declared}),
        "config_def": declared.settings.definition,
        "version": _version(declared.function),
        "__module__": declared.function.__module__,
        "__doc__": declared.function.__doc__,
    }
    return type(declared.name, (FunctionSinkConnector,), members)


def _version(function: Any) -> str:
    module = importlib.import_module(function.__module__)
    return str(getattr(module, "__version__", "0"))


def _call(function: Any, retry_on: Errors, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ConnectError:
        raise
    except retry_on as error:
        raise RetriableError(f"{type(error).__name__}: {error}") from error


class FunctionSourceConnector(Connector):
    """Divides the parts of a source over tasks, and watches for new ones."""

    kind: ClassVar[Kind] = Kind.SOURCE
    declared: ClassVar[FunctionSource]
    task_class: ClassVar[type[SourceTask | SinkTask]]
    config_def: ClassVar[ConfigDef]

    def start(self, context: ConnectorContext, config: Config) -> None:
        """Begin to watch the parts."""
        super().start(context, config)
        self._stopping = threading.Event()
        self._parts: list[Any] = []
        if self.declared.partitions is not None:
            threading.Thread(target=self._watch, name=f"partitions-{context.name}", daemon=True).start()

    def _watch(self) -> None:
        interval_s = self.config_def.parse(self.config)["partitions.refresh.ms"] / 1000
        while not self._stopping.wait(interval_s):
            try:
                changed = self._list() != self._parts
            except RetriableError:
                continue  # listed again after the interval
            except Exception as error:  # noqa: BLE001 - the function may raise anything; the connector fails with it
                self.context.fail(error)
                return
            if changed:
                self.context.request_task_reconfiguration()

    def _list(self) -> list[Any]:
        declared = self.declared
        return list(_call(declared.partitions, declared.retry_on, declared.settings.read(self.config)))

    def task_configs(self, most_tasks: int) -> Sequence[Config]:
        """Return the settings of each task with its parts."""
        if self.declared.partitions is None:
            return [self.config]
        self._parts = self._list()
        tasks = [self._parts[number::most_tasks] for number in range(min(most_tasks, len(self._parts)))]
        return [{**self.config, _PARTITIONS: json.dumps(parts)} for parts in tasks]

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """A function that returns the same rows for an offset supports exactly once."""
        del config
        return ExactlyOnce.SUPPORTED


class FunctionSourceTask(SourceTask):
    """Calls a function for each part in turn."""

    declared: ClassVar[FunctionSource]

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Read the settings and the offsets."""
        self._context = context
        self._config = self.declared.settings.read(config)
        self._limit = int(config.get("batch.size") or 1000)
        self._topic = config.get("topic") or (self.declared.topic if isinstance(self.declared.topic, str) else "")
        parts = json.loads(config[_PARTITIONS]) if _PARTITIONS in config else [None]
        self._parts: list[Position] = [{"connector": context.connector, "partition": each} for each in parts]
        if self.declared.partitions is not None:
            self._parts = [each if isinstance(each, dict) else {"partition": each} for each in parts]
        self._given = parts
        self._after = [_offset(context.offset(each)) for each in self._parts]
        self._next = 0
        self._schema = None if self.declared.schema is None else schema_of(self.declared.schema)

    def poll(self) -> Sequence[SourceRecord]:
        """Return the rows of the next part that has some; wait if none has."""
        for _ in self._parts:
            number, self._next = self._next, (self._next + 1) % len(self._parts)
            records = self._call(number)
            if records or self._context.is_stopping():
                return records
        deadline = time.monotonic() + self.declared.wait_s
        while time.monotonic() < deadline and not self._context.is_stopping():
            time.sleep(min(_TICK_S, self.declared.wait_s))
        return ()

    def _call(self, number: int) -> list[SourceRecord]:
        declared, after = self.declared, self._after[number]
        part = () if declared.partitions is None else (self._given[number],)
        outcome = _call(declared.function, declared.retry_on, self._config, *part, after, self._limit)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise ConnectError(f"{declared.name} must return rows and the next offset, not {type(outcome).__name__}")
        rows, following = outcome
        offset = {_OFFSET: following}
        records = [self._record(each, self._parts[number], offset) for each in rows]
        self._after[number] = following
        return records

    def _record(self, row: Any, partition: Position, offset: Position) -> SourceRecord:
        if type(row) is not dict and isinstance(row, SourceRecord):
            row.source_partition, row.source_offset = partition, offset
            return row
        schema, value = _typed(row, self._schema)
        topic, key = self.declared.topic, self.declared.key
        return SourceRecord(
            topic(row) if callable(topic) else self._topic,
            None,
            key_schema(schema, key) if isinstance(key, str) and schema is not None else None,
            _key(row, value, key),
            schema,
            value,
            source_partition=partition,
            source_offset=offset,
        )


def _offset(offset: Position | None) -> Any:
    return None if offset is None else offset.get(_OFFSET)


def _typed(row: Any, declared: Schema | None) -> tuple[Schema | None, Any]:
    if type(row) is dict:  # the most common rows first: each further check costs as much as a conversion
        return declared, row
    if is_dataclass(row) and not isinstance(row, type):
        return schema_of(type(row)), value_of(row)
    if isinstance(row, Mapping):
        return declared, dict(row)
    raise DataError(f"A row is a {type(row).__name__}: rows are dicts, dataclasses or SourceRecords")


def _key(row: Any, value: Mapping[str, Any], key: Any) -> Any:
    if key is None:
        return None
    if callable(key):
        return key(row)
    if key not in value:
        raise DataError(f"A row has no field {key}, which is the key: its fields are {', '.join(value)}")
    return value[key]


class FunctionSinkConnector(Connector):
    """Has the same settings for each task; the group divides the partitions."""

    kind: ClassVar[Kind] = Kind.SINK
    declared: ClassVar[FunctionSink]
    task_class: ClassVar[type[SourceTask | SinkTask]]
    config_def: ClassVar[ConfigDef]


class FunctionSinkTask(SinkTask):
    """Calls a function for the records of each partition."""

    declared: ClassVar[FunctionSink]

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the settings."""
        self._context = context
        self._config = self.declared.settings.read(config)

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Go on where the other system says."""
        if self.declared.resume is None:
            return
        found = {tp: _call(self.declared.resume, self.declared.retry_on, self._config, *tp) for tp in partitions}
        self._context.seek({tp: offset for tp, offset in found.items() if offset is not None})

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Call the function. Records of earlier partitions may be written when a later call fails: at least once."""
        in_order = sorted(records, key=_place)  # stable: the order of each partition stays
        for (topic, partition), group in groupby(in_order, key=_place):
            rows = list(group)
            batch = Batch(topic, partition, rows[0].original_offset, rows[-1].original_offset)
            given = _arrow(rows) if self.declared.as_arrow else rows
            _call(self.declared.function, self.declared.retry_on, self._config, given, batch)


def _place(record: SinkRecord) -> tuple[str, int]:
    return record.original_topic, record.original_partition


def _arrow(rows: Iterable[SinkRecord]) -> Any:
    import pyarrow as pa

    values = [each.value for each in rows]
    for each in values:
        if not isinstance(each, dict):
            raise DataError(f"rows='arrow' needs values with fields, not {type(each).__name__}")
    return pa.RecordBatch.from_pylist(values)
