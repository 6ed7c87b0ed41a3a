"""From records to bytes and back: transformations with their predicates, and converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ottla.clients.consumer.record import Record, TimestampType
from ottla.connect import plugins
from ottla.connect.converters.api import Converter, HeaderConverter, Plain
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.records import (
    ConnectRecord,
    EncodedBatch,
    EncodedRecord,
    Header,
    PlainRecords,
    SinkRecord,
    SourceRecord,
)
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.tolerance import Failure, Stage, Tolerance

Apply: TypeAlias = Callable[[Any], Any]
_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


class Serialized(NamedTuple):
    """A record for the producer."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None


class SerializedBatch(NamedTuple):
    """Records for the producer that have all but their values in common."""

    topic: str
    partition: int | None
    key: bytes | None
    values: Sequence[bytes | None]
    timestamp: int | None


@dataclass(slots=True)
class DeliveredRecord(SinkRecord):
    """A record of a sink that remembers its bytes, for the dead letter topic."""

    raw: Record[bytes, bytes] | None = None


class Chain:
    """The transformations of a task, in order, and its converters."""

    def __init__(self, worker: WorkerSettings, config: Mapping[str, str]) -> None:
        """Create and configure the plugins. Raises NotFoundError, SettingError and errors of the plugins."""
        with ExitStack() as stack:
            self.transformations = [
                _transformation(alias, config, stack) for alias in _listed(config.get("transforms", ""))
            ]
            self.key: Converter = _converter("key.converter", worker, config, stack)
            self.value: Converter = _converter("value.converter", worker, config, stack)
            self.header: HeaderConverter = _converter("header.converter", worker, config, stack)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close all plugins."""
        self._stack.close()

    def plugin_of(self, stage: Stage) -> str:
        """Return the name of the class that works in a stage, as far as there is only one."""
        by_stage: dict[Stage, object] = {
            Stage.KEY_CONVERTER: self.key,
            Stage.VALUE_CONVERTER: self.value,
            Stage.HEADER_CONVERTER: self.header,
        }
        found = by_stage.get(stage)
        return "a transformation" if found is None else type(found).__name__


def _listed(given: str) -> list[str]:
    return [each.strip() for each in given.split(",") if each.strip()]


def _below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def _transformation(alias: str, config: Mapping[str, str], stack: ExitStack) -> Apply:
    """Create a transformation; with a predicate it changes only the records that the predicate selects (KIP-585)."""
    own = _below(config, f"transforms.{alias}.")
    if "type" not in own:
        raise ConnectError(f"transforms.{alias}.type is missing: it names the class of the transformation")
    transformation = plugins.transformation_class(own.pop("type"))()
    predicate_alias, negate = own.pop("predicate", None), own.pop("negate", "false").strip().lower() == "true"
    transformation.configure(own)
    stack.callback(transformation.close)
    apply: Apply = transformation.apply
    if not predicate_alias:
        return apply
    settings = _below(config, f"predicates.{predicate_alias}.")
    if "type" not in settings:
        raise ConnectError(f"predicates.{predicate_alias}.type is missing: transforms.{alias} uses this predicate")
    predicate = plugins.predicate_class(settings.pop("type"))()
    predicate.configure(settings)
    stack.callback(predicate.close)
    return lambda record: apply(record) if predicate.test(record) is not negate else record


def _converter(name: str, worker: WorkerSettings, config: Mapping[str, str], stack: ExitStack) -> Any:
    """Create a converter: the connector's, or else the worker's with the worker's settings, as in stock."""
    source: Mapping[str, str] = config if config.get(name) else worker.given
    find: Callable[[str], type[HeaderConverter]] = plugins.converter_class
    if name == "header.converter":
        find = plugins.header_converter_class
    converter = find(config.get(name) or worker.get(name))()
    kind = name.partition(".")[0]
    converter.configure({**_below(source, f"{name}."), "converter.type": kind}, is_key=kind == "key")
    stack.callback(converter.close)
    return converter


class SourceConversion:
    """Turns the records of a source task into bytes."""

    def __init__(self, chain: Chain, tolerance: Tolerance) -> None:
        self._chain = chain
        self._tolerance = tolerance

    def convert(self, record: SourceRecord) -> Serialized | SerializedBatch | None:
        """Return the record or batch in bytes; None: it was dropped or skipped. Raises an error that stops the task."""
        if not record.topic:  # it has just an offset
            return None
        if not self._chain.transformations:
            if type(record) is EncodedRecord:
                return Serialized(record.topic, record.partition, record.key, record.value, [], record.timestamp)
            if type(record) is EncodedBatch:
                return SerializedBatch(record.topic, record.partition, record.key, record.value, record.timestamp)
            return self._converted(record, record)
        return self._converted(record, copy(record))  # transformations may change the record itself

    def _converted(self, original: SourceRecord, record: Any) -> Serialized | None:
        chain, stage = self._chain, Stage.TRANSFORMATION
        try:
            for apply in chain.transformations:
                record = apply(record)
                if record is None:
                    return None
            topic, headers = record.topic, record.headers
            if headers:
                stage = Stage.HEADER_CONVERTER
                from_header = chain.header.from_header
                headers = [(name, from_header(topic, name, schema, value)) for name, value, schema in headers]
            stage = Stage.KEY_CONVERTER
            key = chain.key.from_connect(topic, record.key_schema, record.key, headers)
            stage = Stage.VALUE_CONVERTER
            value = chain.value.from_connect(topic, record.value_schema, record.value, headers)
            return Serialized(topic, record.partition, key, value, headers, record.timestamp)
        except RetriableError as error:
            return self._tolerance.repeat(lambda: self._converted(original, copy(original)), error)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; `failed` reports it or raises
            self._tolerance.failed(Failure(stage, chain.plugin_of(stage), error, source=original))
            return None


class SinkConversion:
    """Turns the bytes of a topic into records for a sink task."""

    def __init__(self, chain: Chain, tolerance: Tolerance) -> None:
        self._chain = chain
        self._tolerance = tolerance
        self._is_plain = not chain.transformations and None not in (chain.key.plain, chain.value.plain)

    def convert_all(self, raw: Sequence[Any]) -> Sequence[SinkRecord]:
        """Return the records of a poll that are not dropped. Raises the error that stops the task."""
        convert = self.convert
        if self._is_plain and not any(each.headers for each in raw):
            is_text = self._chain.value.plain is Plain.TEXT
            return PlainRecords(raw, cast("Callable[[Any], SinkRecord]", convert), is_text=is_text)
        return [record for each in raw if (record := convert(each)) is not None]

    def convert(self, raw: Any) -> SinkRecord | None:
        """Return the record; None: it was dropped or skipped. Raises the error that stops the task."""
        chain, stage = self._chain, Stage.VALUE_CONVERTER
        topic = raw.topic
        try:
            stage = Stage.KEY_CONVERTER
            key_schema, key = chain.key.to_connect(topic, raw.key, raw.headers)
            stage = Stage.VALUE_CONVERTER
            value_schema, value = chain.value.to_connect(topic, raw.value, raw.headers)
            headers: list[Header] = []
            if raw.headers:
                stage = Stage.HEADER_CONVERTER
                for name, data in raw.headers:
                    schema, found = chain.header.to_header(topic, name, data)
                    headers.append(Header(name, found, schema))
            stage = Stage.TRANSFORMATION
            offset, partition = raw.offset, raw.partition
            record: Any = DeliveredRecord(
                topic, partition, key_schema, key, value_schema, value, raw.timestamp, headers, offset,
                _TIMESTAMP_TYPES[raw.timestamp_type], topic, partition, offset, raw,
            )  # fmt: skip
            for apply in chain.transformations:
                record = apply(record)
                if record is None:
                    return None
            return _with_origin(record, raw)
        except RetriableError as error:
            return self._tolerance.repeat(lambda: self.convert(raw), error)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; `failed` reports it or raises
            self._tolerance.failed(Failure(stage, chain.plugin_of(stage), error, raw=raw))
            return None


def _with_origin(record: ConnectRecord, raw: Record[bytes, bytes]) -> SinkRecord:
    """Return a record that knows its origin, also if a transformation has created a plain SinkRecord."""
    if type(record) is DeliveredRecord:
        return record
    timestamp_type = getattr(record, "timestamp_type", "NoTimestampType")
    return DeliveredRecord(
        record.topic, record.partition, record.key_schema, record.key, record.value_schema, record.value,
        record.timestamp, record.headers, raw.offset, timestamp_type, raw.topic, raw.partition, raw.offset, raw,
    )  # fmt: skip
