"""Protobuf messages as Connect's data: one schema, and one function of messages, for each descriptor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.connect import data
from ottla.connect.converters import protobuf_names as names
from ottla.connect.converters.protobuf_logical import READ
from ottla.connect.converters.protobuf_schemas import ProtobufOptions
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.schemas.protobuf.descriptor_classes import descriptor_classes

Convert: TypeAlias = Callable[[Any], Any]
_OPTIONAL_LABEL: Final = 1
# The numbers of types in descriptors.
_NAMES: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_DEEPEST: Final = 100
_MOST_PARTS: Final = 50_000
"""How many parts a schema may have with all of its messages, which may double at each level."""
_ENUM, _MESSAGE = 14, 11
_TYPES: Final = {
    "double": Type.FLOAT64, "float": Type.FLOAT32, "bool": Type.BOOLEAN, "string": Type.STRING, "bytes": Type.BYTES,
    **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32),
    **dict.fromkeys(("int64", "uint32", "fixed32", "uint64", "sint64", "fixed64", "sfixed64"), Type.INT64),
}  # fmt: skip
_SHORT: Final = {"int8": (Type.INT8, 8), "int16": (Type.INT16, 16)}
_LOGICAL: Final = {message: name for name, (message, _) in names.LOGICAL_MESSAGES.items()}
_VARIANT: Final = replace(
    data.struct({"metadata": data.BYTES, "value": data.BYTES}, names.VARIANT, optional=True),
)


class Reading(NamedTuple):
    """The schema of values, and the function that reads them from a message or a field."""

    schema: Schema
    convert: Convert


class ProtobufReader:
    """Makes what reads the messages of one file and its imports."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._files: set[str] = set()
        self._declared: dict[str, Any] = {}
        self._structs: dict[str, Reading | None] = {}
        self._sizes: dict[str, int] = {}
        self._depth = 0

    def read(self, descriptor: Any) -> Reading:
        """Return what reads a root message. Raises DataError."""
        kind = names.WRAPPED_TYPES.get(descriptor.full_name)
        if kind is not None and self._options.wrapper_for_raw_primitives:
            return Reading(Schema(kind), _unwrapped(descriptor))
        return self._struct(descriptor)

    def _struct(self, descriptor: Any) -> Reading:
        name = descriptor.full_name
        if name in self._structs:
            found = self._structs[name]
            if found is None:
                raise DataError(f"Message {name} contains itself, and Connect's schemas cannot")
            return found
        if self._depth >= _DEEPEST:
            raise DataError(f"Message {name} is nested more than {_DEEPEST} deep")
        self._structs[name] = None
        self._depth += 1
        try:
            made = self._structs[name] = self._made(descriptor)
        finally:
            self._depth -= 1
            if self._structs[name] is None:
                # The next record must get the same error.
                del self._structs[name]
        return made

    def _made(self, descriptor: Any) -> Reading:
        name = descriptor.full_name
        fields: dict[str, Schema] = {}
        readers: list[tuple[str, Convert]] = []
        unions = [each for each in descriptor.oneofs if not self._proto(each.fields[0]).proto3_optional]
        for union in unions:
            self._add_union(union, fields, readers)
        for field in descriptor.fields:
            if field.containing_oneof not in unions:
                self._add_field(field, fields, readers)

        def convert(message: Any) -> dict[str, Any]:
            return {field: read(message) for field, read in readers}

        schema = data.struct(fields, name if self._options.enhanced_protobuf_schema_support else descriptor.name)
        self._add_size(descriptor)
        return Reading(schema, convert)

    def _add_size(self, descriptor: Any) -> None:
        """Count the parts of the schema of a message, which has each message as often as it is used."""
        size = 1
        for field in descriptor.fields:
            size += 1 if field.message_type is None else self._size(field.message_type)
        if size > _MOST_PARTS:
            raise DataError(f"Message {descriptor.full_name} has more than {_MOST_PARTS} fields with its messages")
        self._sizes[descriptor.full_name] = size

    def _size(self, descriptor: Any) -> int:
        """The parts of a message that was read, or of a map's entry, which has no reading of its own."""
        if descriptor.GetOptions().map_entry or names.is_map_entry(descriptor.name):
            value = descriptor.fields_by_name.get("value")
            inner = None if value is None else value.message_type
            if inner is not None:
                return 2 + self._sizes.get(inner.full_name, 1)
        return self._sizes.get(descriptor.full_name, 1)

    def _proto(self, field: Any) -> Any:
        """Return the FieldDescriptorProto of a field, with Confluent's metadata."""
        if field.file.name not in self._files:
            self._files.add(field.file.name)
            file = descriptor_classes().file.FromString(field.file.serialized_pb)
            self._declare(file.message_type, f"{file.package}." if file.package else "")
        return self._declared[field.full_name]

    def _declare(self, messages: Any, prefix: str) -> None:
        for message in messages:
            for field in message.field:
                self._declared[f"{prefix}{message.name}.{field.name}"] = field
            self._declare(message.nested_type, f"{prefix}{message.name}.")

    def _metadata(self, field: Any) -> dict[str, str]:
        extension = descriptor_classes().meta["FieldOptions"]
        return {each.key: each.value for each in self._proto(field).options.Extensions[extension].params}

    def _add_union(self, union: Any, fields: dict[str, Schema], readers: list[tuple[str, Convert]]) -> None:
        if self._options.flatten_unions:
            for field in union.fields:
                self._add_field(field, fields, readers, in_oneof=True)
            return
        name = union.name
        if self._options.generalized_sum_type_support:
            schema_name, parameters = name, {names.GENERALIZED_UNION: name}
        else:
            full = union.full_name if self._options.enhanced_protobuf_schema_support else name
            schema_name, parameters = f"{names.UNION}.{full}", {}
        members = {each.name: self._field(each, in_oneof=True) for each in union.fields}
        schema = data.struct({each: found.schema for each, found in members.items()}, schema_name, optional=True)
        if self._options.generate_index_for_unions:
            name = f"{name}_{union.index}"

        def read(message: Any) -> Any:
            chosen = message.WhichOneof(union.name)
            return None if chosen is None else {chosen: members[chosen].convert(getattr(message, chosen))}

        fields[name] = replace(schema, parameters=parameters)
        readers.append((name, read))

    def _add_field(
        self, field: Any, fields: dict[str, Schema], readers: list[tuple[str, Convert]], *, in_oneof: bool = False
    ) -> None:
        name = field.name
        schema, convert = self._field(field, in_oneof=in_oneof)
        proto = self._proto(field)
        is_repeated = proto.label not in {1, 2}
        tracked = proto.proto3_optional or (self._options.optional_for_proto2 and self._has_keyword(field))
        always = (field.type != _MESSAGE or is_repeated) and not tracked and not in_oneof
        if always or (self._options.generate_struct_for_nulls and not in_oneof):
            read: Convert = lambda message: convert(getattr(message, name))  # noqa: E731
        else:
            read = lambda message: convert(getattr(message, name)) if message.HasField(name) else None  # noqa: E731
        fields[name] = schema
        readers.append((name, read))

    def _has_keyword(self, field: Any) -> bool:
        """Whether a field is declared with the keyword `optional`."""
        proto = self._proto(field)
        if proto.proto3_optional:
            return True
        return _is_proto2(field) and proto.label == _OPTIONAL_LABEL and field.containing_oneof is None

    def _field(self, field: Any, *, in_oneof: bool = False) -> Reading:
        proto = self._proto(field)
        schema, convert = self._item(field)
        if proto.label not in {1, 2} and schema.type is not Type.MAP:
            each_of = convert
            schema = data.array(schema.as_optional(), optional=True)
            convert = lambda values: [each_of(each) for each in values]  # noqa: E731
        parameters = {**schema.parameters, names.TAG: str(field.number)}
        options = self._options
        if in_oneof:
            if options.wrapper_for_nullables and field.type == _MESSAGE and _wrapped_type(field) is not None:
                parameters[names.WRAPPER] = "true"
            optional = True
        elif options.optional_for_nullables:
            optional = self._has_keyword(field)
        else:
            optional = not options.wrapper_for_nullables
        return Reading(replace(schema, optional=optional or schema.optional, parameters=parameters), convert)

    def _item(self, field: Any) -> Reading:
        """Return what reads a value of a field, or one of its values if it is repeated."""
        if field.type == _ENUM:
            return self._enum(field.enum_type)
        if field.type == _MESSAGE:
            found = self._message(field)
            return found._replace(schema=found.schema.as_optional())
        kind = _NAMES.get(field.type)
        if kind is None:
            raise DataError(f"Unknown Connect schema type: field {field.full_name} is a group")
        if _TYPES[kind] is Type.INT32:
            short = _SHORT.get(self._metadata(field).get("connect.type", ""))
            if short is not None:
                return Reading(Schema(short[0]), _signed(short[1]))
        parameters = {} if kind == "int32" or kind == "int64" or _TYPES[kind] not in _INTEGERS else {names.TYPE: kind}
        return Reading(Schema(_TYPES[kind], parameters=parameters), _scalar(kind))

    def _enum(self, enum: Any) -> Reading:
        options = self._options
        kind = Type.INT32 if options.int_for_enums else Type.STRING
        prefix = options.enum_parameter()
        symbols = {f"{prefix}.{each.name}": str(each.number) for each in enum.values}
        name = enum.full_name if options.enhanced_protobuf_schema_support else enum.name
        schema = Schema(kind, optional=True, name=name, parameters={prefix: enum.name, **symbols})
        if options.int_for_enums:
            return Reading(schema, _same)
        symbol_of = {number: each.name for number, each in enum.values_by_number.items()}
        unknown = f"UNKNOWN_ENUM_VALUE_{enum.name}"
        return Reading(schema, lambda value: symbol_of.get(value) or f"{unknown}_{value}")

    def _message(self, field: Any) -> Reading:
        descriptor = field.message_type
        logical = _LOGICAL.get(descriptor.full_name)
        if logical == names.VARIANT:
            return Reading(_VARIANT, lambda message: {"metadata": message.metadata, "value": message.value})
        if logical is not None:
            return Reading(self._logical(logical, field), READ[logical])
        kind = _wrapped_type(field)
        if kind is not None and (self._options.wrapper_for_nullables or self._options.wrapper_for_raw_primitives):
            return Reading(Schema(kind, optional=True), _unwrapped(descriptor))
        return self._map(field) if self._is_map(field) else self._struct(descriptor)

    def _logical(self, name: str, field: Any) -> Schema:
        if name == data.DATE:
            return data.date()
        if name == data.TIME:
            return data.time_of_day()
        if name == data.TIMESTAMP:
            return data.timestamp()
        metadata = self._metadata(field)
        schema = data.decimal(_integer(metadata.get("scale")) or 0)
        precision = _integer(metadata.get("precision"))
        more = {} if precision is None else {names.PRECISION: str(precision)}
        return replace(schema, parameters={**schema.parameters, **more})

    def _is_map(self, field: Any) -> bool:
        parts = field.message_type.fields
        return (
            self._proto(field).label not in {1, 2}
            and names.is_map_entry(field.message_type.name)
            and [each.name for each in parts] == ["key", "value"]
            and all(self._proto(each).label in {1, 2} for each in parts)
        )

    def _map(self, field: Any) -> Reading:
        entry = field.message_type
        key, value = (self._field(each) for each in entry.fields)
        name = names.map_field(entry.full_name if self._options.enhanced_protobuf_schema_support else entry.name)
        schema = replace(data.mapping(key.schema, value.schema), name=name)
        if entry.GetOptions().map_entry:
            return Reading(schema, lambda found: {key.convert(each): value.convert(found[each]) for each in found})
        return Reading(schema, lambda entries: {key.convert(each.key): value.convert(each.value) for each in entries})


_INTEGERS: Final = frozenset({Type.INT32, Type.INT64})


def _same(value: Any) -> Any:
    return value


def _signed(bits: int) -> Convert:
    """Return the function that keeps the lowest bits of a number, as Java's casts do."""
    half = 1 << bits - 1
    return lambda value: (value + half & (1 << bits) - 1) - half


def _scalar(kind: str) -> Convert:
    if kind in {"uint64", "fixed64"}:
        return _signed(64)
    return _text if kind == "string" else _same


def _text(value: Any) -> str:
    # The library returns bytes for a text of proto2 that is not UTF-8.
    if not isinstance(value, str):
        raise DataError("A string is not valid UTF-8")
    return value


def _unwrapped(descriptor: Any) -> Convert:
    convert = _scalar(_NAMES[descriptor.fields_by_name["value"].type])
    return lambda message: convert(message.value)


def _wrapped_type(field: Any) -> Type | None:
    return names.WRAPPED_TYPES.get(field.message_type.full_name)


def _is_proto2(field: Any) -> bool:
    file = descriptor_classes().file.FromString(field.file.serialized_pb)
    return file.syntax in {"", "proto2"}


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
