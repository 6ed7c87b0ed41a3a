"""Whole Arrow columns of values with schemas in a registry: the common part of all formats. Needs pyarrow.

All values of a column are resolved to one reader's schema: the given one, or the latest version of the subject when
the first column is decoded. So the type of the column does not change while a program runs. Values of several schema
ids are decoded id by id, and put in their order again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import InvalidValue, arrow_type
from ottla.clients.errors import ConfigurationError
from ottla.clients.serializers.base import References, Resolving
from ottla.clients.serializers.settings import Settings
from ottla.clients.serializers.wire import PREFIX_SIZE
from ottla.registry_client.errors import SchemaRegistryError
from ottla.schemas.model import Schema, SchemaType
from ottla.serde._builders import Plan

ReadColumn: TypeAlias = Callable[[Any], tuple[Any, list[InvalidValue]]]
"""Reads binary values of one schema, with their prefixes: a column whose invalid rows are null, and these rows."""


class NoColumnType(ValueError):
    """No column has the type of a schema, or the values of a schema cannot become such a column."""


class Known(NamedTuple):
    """How to read the values of a schema id; None, and a reason, if they cannot be read."""

    read: ReadColumn | None
    reason: str = ""


class RegistryColumns(Resolving[Known]):
    """Decodes columns of values. `arrow_type` is known after the first `decode`, or with a reader's schema."""

    type: ClassVar[SchemaType]

    def __init__(self, settings: Settings, reader: References | None = None, arrow: Any = None) -> None:
        """`arrow` is a type of the reader's layout, such as Spark's; default: a type with nullable fields."""
        super().__init__(settings)
        self._reader: References | None = None
        self._arrow = arrow
        self.has_given_reader = reader is not None or self._ttl != float("inf")
        """Whether the reader's schema was chosen: given, or the latest version by a setting."""
        if reader is not None:
            self._read_as(reader)

    @property
    def arrow_type(self) -> Any:
        return pa.null() if self._arrow is None else self._arrow

    @abstractmethod
    def _prepare(self, reader: References) -> Plan | None:
        """Take the reader's schema, and return the layout of the columns if it is known now. Raises NoColumnType."""

    @abstractmethod
    def _read_written_with(self, writer: References) -> ReadColumn:
        """Return a function that reads the values of a schema. Raises NoColumnType."""

    @abstractmethod
    def _record_name(self, schema: Schema) -> str | None:
        """Return the full name of the schema's record, for the subject; None if it has none."""

    def decode(self, values: Any, topic: str) -> tuple[Any, list[InvalidValue]]:
        """Return a column with a row for each of the binary `values`; and row, field and reason of each invalid value.

        The rows of invalid values are null. Blocks while schemas are requested, or raises Deferred. Raises
        RegistryClientError if the registry cannot be reached, and ConfigurationError if no column has the type.
        """
        prefixes = pc.binary_slice(values, 0, PREFIX_SIZE).dictionary_encode()
        distinct = prefixes.dictionary.to_pylist()
        known = [self._known(prefix, topic) for prefix in distinct]
        if len(distinct) == 1:
            return self._decoded(values, known[0])
        parts, places, bad = [], [], []
        for index, each in enumerate(known):
            rows = pc.indices_nonzero(pc.equal(prefixes.indices, index))
            part, found = self._decoded(values.take(rows), each)
            parts.append(part)
            places.append(rows)
            bad += [(rows[row].as_py(), field, reason) for row, field, reason in found]
        rows = pc.indices_nonzero(values.is_null())
        parts.append(pa.nulls(len(rows), self.arrow_type))
        places.append(rows)
        # Until a value was read, the type of the column may be unknown: then all rows of a part are null.
        kind = self.arrow_type
        parts = [part if part.type == kind else pa.nulls(len(part), kind) for part in parts]
        return pa.concat_arrays(parts).take(pc.sort_indices(pa.concat_arrays(places))), sorted(bad)

    def _known(self, prefix: bytes, topic: str) -> Known:
        if len(prefix) < PREFIX_SIZE or prefix[0] != 0:
            return Known(None, "does not begin with the header of Confluent's wire format")
        return self._get((int.from_bytes(prefix[1:], "big"), topic))

    def _decoded(self, values: Any, known: Known) -> tuple[Any, list[InvalidValue]]:
        if known.read is not None:
            return known.read(values)
        rows = pc.indices_nonzero(values.is_valid()).to_pylist()
        return pa.nulls(len(values), self.arrow_type), [(row, "", known.reason) for row in rows]

    def _resolve(self, key: Any) -> Known:
        schema_id, topic = key
        subject = self._strategy(topic, self.part, "?")
        try:
            writer = self._registry.get_schema(schema_id, subject=subject if subject.startswith(":.") else None)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
            return Known(None, f"was written with the schema {schema_id}, which the registry does not have")
        if writer.type is not self.type:
            return Known(None, f"was written with the schema {schema_id} of type {writer.type}, not {self.type}")
        references = self._with_references(writer)
        if self._reader is None:
            self._read_as(self._latest_or(references, topic))
        try:
            return Known(self._read_written_with(references))
        except NoColumnType as error:
            return Known(None, f"was written with the schema {schema_id}: {error}")

    def _latest_or(self, writer: References, topic: str) -> References:
        """Return the latest version of the subject; the writer's schema if the registry does not have the subject."""
        try:
            subject = self._strategy(topic, self.part, self._record_name(writer.schema))
            latest = self._latest(subject) or self._registry.get_latest_version(subject)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
            return writer
        if latest.schema.type is not self.type:
            return writer
        return self._with_references(latest.schema)

    def _read_as(self, reader: References) -> None:
        try:
            plan = self._prepare(reader)
        except NoColumnType as error:
            raise ConfigurationError(f"The reader's schema cannot be a column: {error}") from error
        if self._arrow is None and plan is not None:
            self._arrow = arrow_type(plan)
        self._reader = reader
