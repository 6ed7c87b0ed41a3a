"""Connect's values as protobuf messages. One function is made for each schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.connect.converters import protobuf_names as names
from ottla.connect.converters.protobuf_logical import WRITE
from ottla.connect.converters.protobuf_schemas import SCALARS, ProtobufOptions, enum_type, is_union, scalar_type
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError

Fill: TypeAlias = Callable[[Any, Any], None]
"""Sets what a message has of a value that is not None."""
_WRONG: Final = (TypeError, ValueError, AttributeError, ArithmeticError)
_BITS: Final = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}


class _Item(NamedTuple):
    """How one value is written: `convert` returns a scalar, or `fill` fills a message."""

    convert: Callable[[Any], Any] | None = None
    fill: Fill | None = None


class ProtobufEncoder:
    """Makes the functions from values to messages. They raise DataError."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options

    def encoder(self, schema: Schema, message_class: Any) -> Callable[[Any], Any]:
        """Return the function that returns the message of a root value."""
        fill = _wrapped(_scalar(schema)) if schema.type in SCALARS else self._struct(schema)

        def encode(value: Any) -> Any:
            message = message_class()
            try:
                fill(message, value)
            except _WRONG as error:
                raise DataError(f"Invalid value for {schema.type}: {error}") from error
            return message

        return encode

    def _struct(self, schema: Schema) -> Fill:
        has_defaults = not self._options.ignore_default_for_nullables
        fields = [
            (each.name, each.schema.default if each.schema.has_default and has_defaults else None,
             self._field(each.schema, self._options.scrubbed(each.name)))
            for each in schema.fields
        ]  # fmt: skip

        def fill(message: Any, value: Any) -> None:
            if not isinstance(value, Mapping):
                raise DataError(f"Invalid type for STRUCT: {type(value).__name__}")
            for name, default, put in fields:
                found = value.get(name)
                if found is None:
                    found = default
                if found is not None:
                    try:
                        put(message, found)
                    except _WRONG as error:
                        raise DataError(f"Invalid value of field {name!r}: {error}") from error

        return fill

    def _field(self, schema: Schema, name: str, *, in_oneof: bool = False) -> Fill:
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return _list(name, self._item(schema.value_schema))
        if schema.type is Type.MAP:
            return self._map(schema, name)
        if schema.type is Type.STRUCT and schema.name != names.VARIANT and is_union(schema):
            return self._union(schema)
        item = self._item(schema, in_oneof=in_oneof)
        convert, fill = item
        if convert is not None:
            return lambda message, value: setattr(message, name, convert(value))
        assert fill is not None

        def put(message: Any, value: Any) -> None:
            inner = getattr(message, name)
            inner.SetInParent()
            fill(inner, value)

        return put

    def _item(self, schema: Schema, *, in_oneof: bool = False) -> _Item:
        write = WRITE.get(schema.name or "")
        if write is not None:
            return _Item(fill=lambda message, value: write(message, schema, value))
        if schema.type is Type.STRUCT:
            return _Item(fill=self._struct(schema))
        kind = enum_type(schema)
        if kind is not None:
            return _Item(convert=_enum(schema, kind, f"{self._options.enum_parameter()}."))
        if schema.type not in SCALARS:
            raise DataError(f"A {schema.type} cannot be the item of an array in protobuf")
        convert = _scalar(schema)
        wrapped = self._options.is_wrapped(schema, in_oneof=in_oneof)
        return _Item(fill=_wrapped(convert)) if wrapped else _Item(convert=convert)

    def _map(self, schema: Schema, name: str) -> Fill:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        put_key, put_value = self._field(schema.key_schema, "key"), self._field(schema.value_schema, "value")

        def put(message: Any, value: Any) -> None:
            entries = getattr(message, name)
            # In the converter's own schemas, a map is a repeated message; in other schemas it may be a map.
            is_map = not hasattr(entries, "add")
            for key, each in value.items():
                entry = entries.GetEntryClass()() if is_map else entries.add()
                if key is not None:
                    put_key(entry, key)
                if each is not None:
                    put_value(entry, each)
                if is_map:
                    _put_entry(entries, entry)

        return put

    def _union(self, schema: Schema) -> Fill:
        members = [
            (each.name, self._field(each.schema, self._options.scrubbed(each.name), in_oneof=True))
            for each in schema.fields
        ]

        def put(message: Any, value: Any) -> None:
            for name, put_member in members:
                if value.get(name) is not None:
                    put_member(message, value[name])
                    return
            raise DataError("Cannot find non-null field of a union")

        return put


def _put_entry(entries: Any, entry: Any) -> None:
    if entry.DESCRIPTOR.fields_by_name["value"].message_type is None:
        entries[entry.key] = entry.value
    else:
        entries[entry.key].CopyFrom(entry.value)


def _scalar(schema: Schema) -> Callable[[Any], Any]:
    bits = _BITS.get(scalar_type(schema))
    if bits is not None:
        mask = (1 << bits) - 1
        return lambda value: value & mask
    return lambda value: value


def _wrapped(convert: Callable[[Any], Any]) -> Fill:
    def fill(message: Any, value: Any) -> None:
        message.value = convert(value)

    return fill


def _enum(schema: Schema, kind: str, prefix: str) -> Callable[[Any], Any]:
    if schema.type is Type.INT32:
        return lambda value: value
    numbers = {
        symbol.removeprefix(prefix): int(number)
        for symbol, number in schema.parameters.items()
        if symbol.startswith(prefix)
    }

    def convert(value: Any) -> int:
        found = numbers.get(value)
        if found is None:
            raise DataError(f"{value!r} is not a value of enum {kind}")
        return found

    return convert


def _list(name: str, item: _Item) -> Fill:
    convert, fill = item

    def put(message: Any, value: Any) -> None:
        found = getattr(message, name)
        for each in value:
            if each is None:
                raise DataError("A repeated field of protobuf cannot have a null")
            if convert is not None:
                found.append(convert(each))
            elif fill is not None:
                fill(found.add(), each)

    return put
