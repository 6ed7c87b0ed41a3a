"""Whole Arrow columns of Protobuf messages. Needs pyarrow, and Google's package `protobuf`.

All messages of a column are of one type: the given one, or the type of the first message that is read. Fields are
resolved by their numbers, as Protobuf does: the values of any version are read with the reader's version of the type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import InvalidValue, arrow_type
from ottla.clients.errors import ConfigurationError
from ottla.clients.message_columns import MessageColumns
from ottla.clients.serializers import base
from ottla.clients.serializers.base import References
from ottla.clients.serializers.protobuf import first_message, parsed, read_path
from ottla.clients.serializers.registry_columns import NoColumnType, ReadColumn, RegistryColumns
from ottla.clients.serializers.settings import Settings
from ottla.clients.serializers.wire import PREFIX_SIZE
from ottla.schemas.model import InvalidSchema, Schema, SchemaType
from ottla.schemas.protobuf.schema import ProtobufSchema
from ottla.serde.protobuf_fields import NoColumn, message_plan


class ProtobufColumns(RegistryColumns):
    __doc__ = RegistryColumns.__doc__

    type = SchemaType.PROTOBUF
    _schema: ProtobufSchema | None = None
    _columns: MessageColumns | None = None

    def __init__(
        self, settings: Settings, reader: References | None = None, arrow: Any = None, *, message: str | Any = None
    ) -> None:
        """`message` is the full name of the messages, or their generated class."""
        self._message: str | None = message if isinstance(message, str) else None
        self._class: Any = None
        super().__init__(settings, reader, arrow)
        if message is not None and not isinstance(message, str):
            self._use(message)
        elif self._message is not None and self._schema is not None:
            self._use(_class(self._schema, self._message))

    def _record_name(self, schema: Schema) -> str | None:
        return self._message or first_message(schema)

    def _prepare(self, reader: References) -> None:
        # The first message decides the layout.
        self._schema = _parsed(reader)

    def _use(self, message_class: Any) -> None:
        """Read messages as this class."""
        try:
            plan = message_plan(message_class.DESCRIPTOR)
        except NoColumn as error:
            raise ConfigurationError(f"The reader's schema cannot be a column: {error}") from error
        self._class, self._message = message_class, message_class.DESCRIPTOR.full_name
        if self._arrow is None:
            self._arrow = arrow_type(plan)
        self._columns = MessageColumns(message_class.DESCRIPTOR, self._arrow)

    def _class_of(self, name: str) -> Any:
        """Return the reader's class for messages of this name. Raises NoColumnType for another message."""
        if self._class is None:
            assert self._schema is not None
            self._use(_class(self._schema, self._message or name))
        if name != self._message:
            raise NoColumnType(f"is a message {name}, not {self._message}")
        return self._class

    def _read_written_with(self, writer: References) -> ReadColumn:
        written = _parsed(writer)
        paths: dict[tuple[int, ...], Any] = {}
        first: tuple[tuple[int, ...], int] = (0,), PREFIX_SIZE + 1

        def parse(data: bytes) -> Any:
            path, begin = first if data[PREFIX_SIZE : PREFIX_SIZE + 1] == b"\0" else read_path(data, PREFIX_SIZE)
            found = paths.get(path)
            if found is None:
                found = paths[path] = self._class_of(written.message_name(path)).FromString
            return found(data[begin:])

        def read(values: Any) -> tuple[Any, list[InvalidValue]]:
            messages: list[Any] = []
            bad: list[InvalidValue] = []
            for row, data in enumerate(values.to_pylist()):
                message = None
                try:
                    message = None if data is None else parse(data)
                except DecodeError:
                    bad.append((row, "", f"is not a message {self._message}"))
                except (InvalidSchema, base.InvalidValue, NoColumnType) as error:
                    bad.append((row, "", str(error)))
                messages.append(message)
            if self._columns is None:
                return pa.nulls(len(messages), self.arrow_type), bad
            column, refused = self._columns.column(messages)
            return column, sorted([*bad, *refused])

        return read


def _parsed(references: References) -> ProtobufSchema:
    try:
        return parsed(references)
    except base.InvalidValue as error:
        raise NoColumnType(str(error)) from error


def _class(schema: ProtobufSchema, name: str) -> Any:
    try:
        return schema.message_class(name)
    except InvalidSchema as error:
        raise NoColumnType(str(error)) from error
