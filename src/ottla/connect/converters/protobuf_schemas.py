"""Connect's schemas as protobuf files, with the texts of Confluent's ProtobufData, so that schema ids agree.

A struct is a message in the message that uses it, a map a repeated message of entries, and a struct whose name says
that it is a union is a oneof. The numbers of fields are in a parameter; fields without it are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from ottla.connect import data
from ottla.connect.converters import protobuf_names as names
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.schemas.protobuf.elements import EnumConstant, EnumType, Field, Message, OneOf, Option, OptionKind, ProtoFile
from ottla.schemas.protobuf.well_known import well_known_files
from ottla.schemas.protobuf.writer import write_file

_DEFAULT_NAME: Final = "ConnectDefault"
_DEEPEST: Final = 60
"""How deep messages may be nested: the protobuf library reads 100 messages in each other."""
SCALARS: Final = {
    Type.INT8: "int32", Type.INT16: "int32", Type.INT32: "int32", Type.INT64: "int64", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "bool", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_SHORT: Final = {Type.INT8: "int8", Type.INT16: "int16"}
_WRAPPERS: Final = {
    "int32": "google.protobuf.Int32Value", "int64": "google.protobuf.Int64Value",
    "float": "google.protobuf.FloatValue", "double": "google.protobuf.DoubleValue",
    "bool": "google.protobuf.BoolValue", "string": "google.protobuf.StringValue",
    "bytes": "google.protobuf.BytesValue", "uint32": "google.protobuf.UInt32Value",
    "fixed32": "google.protobuf.UInt32Value", "uint64": "google.protobuf.UInt64Value",
    "fixed64": "google.protobuf.UInt64Value",
}  # fmt: skip


class ProtobufOptions(NamedTuple):
    """The settings of ProtobufConverter by their names, with underscores, and their defaults."""

    enhanced_protobuf_schema_support: bool = False
    generalized_sum_type_support: bool = False
    ignore_default_for_nullables: bool = False
    scrub_invalid_names: bool = False
    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = False
    wrapper_for_raw_primitives: bool = True
    generate_struct_for_nulls: bool = False
    generate_index_for_unions: bool = True
    flatten_unions: bool = False

    def scrubbed(self, name: str) -> str:
        """Return a name, valid if `scrub.invalid.names` is set."""
        return names.scrubbed(name) if self.scrub_invalid_names else name

    def is_wrapped(self, schema: Schema, *, in_oneof: bool) -> bool:
        """Whether a primitive is in a wrapper message. Members of a oneof may be absent without one."""
        marked = schema.parameters.get(names.WRAPPER, "").lower() == "true"
        return self.wrapper_for_nullables and schema.optional and (not in_oneof or marked)

    def enum_parameter(self) -> str:
        """The parameter with the name of an enum, and the beginning of those with its values."""
        return names.GENERALIZED_ENUM if self.generalized_sum_type_support else names.ENUM


def is_union(schema: Schema) -> bool:
    """Whether a STRUCT is a oneof."""
    named = schema.name is not None and schema.name.startswith(names.UNION)
    return named or names.GENERALIZED_UNION in schema.parameters


def enum_type(schema: Schema) -> str | None:
    """The name of the enum that a schema of strings or integers is; None for others."""
    found = schema.parameters.get(names.ENUM)
    if schema.type is Type.STRING:
        return schema.parameters.get(names.GENERALIZED_ENUM, found)
    return found if schema.type is Type.INT32 else None


def scalar_type(schema: Schema) -> str:
    """The type of a primitive field without wrapper."""
    kind = SCALARS[schema.type]
    return schema.parameters.get(names.TYPE, kind) if schema.type in {Type.INT32, Type.INT64} else kind


class ProtobufFile(NamedTuple):
    """The text of a schema, and the full name of the message in it."""

    text: str
    message: str


def wrappers_text() -> str:
    """The text that Java's serializers register for the file of wrapper messages."""
    file = well_known_files()[names.WRAPPERS_FILE]
    types: list[Message | EnumType] = [
        replace(each, fields=[replace(field, json_name=field.name) for field in each.fields])
        for each in file.types
        if isinstance(each, Message)
    ]
    return write_file(replace(file, types=types))


class ProtobufSchemaWriter:
    """Writes one schema; unnamed structs and maps get numbers."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._unnamed = 0
        self._depth = 0
        self._imports: dict[str, None] = {}

    def written(self, schema: Schema) -> ProtobufFile:
        """Return the file of a root schema. Raises DataError for a schema that cannot be a root."""
        if schema.name in names.LOGICAL_MESSAGES and schema.type is not Type.STRUCT:
            raise DataError(f"A whole key or value cannot be a {schema.name} in protobuf: put it in a struct")
        if schema.type in SCALARS:
            return ProtobufFile(wrappers_text(), _WRAPPERS[SCALARS[schema.type]])
        if schema.type is not Type.STRUCT:
            raise DataError(f"A whole key or value cannot be of type {schema.type} in protobuf: put it in a struct")
        parts = [self._options.scrubbed(each) for each in self._named(schema.name).split(".")]
        package, name = ".".join(parts[:-1]), parts[-1]
        message = self._message(name, schema)
        file = ProtoFile("proto3", package or None, list(self._imports), types=[message])
        return ProtobufFile(write_file(file), ".".join(parts))

    def _named(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"{_DEFAULT_NAME}{self._unnamed}"

    def _unqualified(self, name: str | None) -> str:
        return self._options.scrubbed(self._named(name).rpartition(".")[2])

    def _message(self, name: str, schema: Schema) -> Message:
        if self._depth >= _DEEPEST:
            raise DataError(f"The schema has structs that are nested more than {_DEEPEST} deep")
        self._depth += 1
        message = Message(name)
        counted = 0
        for field in schema.fields:
            number = _number(field.schema)
            if number is None:
                number = counted = counted + 1
            made = self._field(message, field.schema, self._options.scrubbed(field.name), number)
            if made is not None:
                message.fields.append(made)
        self._depth -= 1
        return message

    def _field(
        self, message: Message, schema: Schema, name: str, number: int, *, in_oneof: bool = False
    ) -> Field | None:
        """Return a field; None for a oneof, which is added to the message."""
        label = self._label(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            schema = schema.value_schema
        metadata: dict[str, str] = {}
        kind = self._type(schema, name, metadata, in_oneof=in_oneof)
        if schema.name in names.LOGICAL_MESSAGES:
            self._imports[names.LOGICAL_MESSAGES[schema.name][1]] = None
        elif schema.type is Type.STRUCT:
            if is_union(schema):
                message.oneofs.append(self._oneof(message, schema))
                return None
            self._add_message(message, kind, schema)
        elif schema.type is Type.MAP:
            message.types.append(self._map_entry(kind, schema))
        elif enum_type(schema) is not None:
            self._add_enum(message, schema)
        elif kind in names.WRAPPED_TYPES:
            self._imports[names.WRAPPERS_FILE] = None
        return Field(label, kind, name, number, options=_metadata(metadata))

    def _label(self, schema: Schema) -> str | None:
        if schema.type in {Type.ARRAY, Type.MAP}:
            return "repeated"
        return "optional" if self._options.optional_for_nullables and schema.optional else None

    def _type(self, schema: Schema, field_name: str, metadata: dict[str, str], *, in_oneof: bool) -> str:
        if schema.name in names.LOGICAL_MESSAGES:
            if schema.name == data.DECIMAL:
                for name, parameter in (("precision", names.PRECISION), ("scale", "scale")):
                    if parameter in schema.parameters:
                        metadata[name] = schema.parameters[parameter]
            return names.LOGICAL_MESSAGES[schema.name][0]
        if schema.type is Type.ARRAY:
            raise DataError("An array of arrays cannot be written in protobuf: put the inner array in a struct")
        if schema.type is Type.MAP:
            return names.map_entry(self._unqualified(schema.name))
        if schema.type is Type.STRUCT:
            name = self._unqualified(schema.name)
            # A message and a field of the same name would be in conflict.
            return f"{name}Message" if name == field_name else name
        if schema.type in _SHORT:
            metadata["connect.type"] = _SHORT[schema.type]
        kind = enum_type(schema)
        if kind is not None:
            return kind
        kind = scalar_type(schema)
        if not self._options.is_wrapped(schema, in_oneof=in_oneof):
            return kind
        return _WRAPPERS.get(kind, _WRAPPERS[SCALARS[schema.type]])

    def _add_message(self, message: Message, name: str, schema: Schema) -> None:
        """Add the message of a struct. The same name in a message, or its own, is the same type."""
        if name != message.name and all(each.name != name for each in message.types):
            message.types.append(self._message(name, schema))

    def _map_entry(self, name: str, schema: Schema) -> Message:
        entry = Message(name)
        for number, (field, each) in enumerate((("key", schema.key_schema), ("value", schema.value_schema)), 1):
            assert each is not None
            made = self._field(entry, each, field, number)
            if made is None:
                raise DataError("A map of unions cannot be written in protobuf: put the union in a struct")
            made.label = "repeated" if made.label == "repeated" else None
            entry.fields.append(made)
        return entry

    def _oneof(self, message: Message, schema: Schema) -> OneOf:
        if self._options.generalized_sum_type_support:
            name = schema.parameters.get(names.GENERALIZED_UNION, schema.name or "")
        else:
            name = self._unqualified((schema.name or "").removeprefix(f"{names.UNION}."))
        members: list[Field] = []
        for field in schema.fields:
            number = _number(field.schema)
            if number is None:
                raise DataError(f"Field {field.name} of union {name} has no number in the parameter {names.TAG}")
            member = self._field(message, field.schema, self._options.scrubbed(field.name), number, in_oneof=True)
            if member is None or member.label == "repeated":
                raise DataError(f"Field {field.name} of union {name} is an array, a map or a union")
            member.label = None
            members.append(member)
        return OneOf(name, members)

    def _add_enum(self, message: Message, schema: Schema) -> None:
        name = self._unqualified(schema.name)
        if any(each.name == name for each in message.types):
            return
        prefix = f"{self._options.enum_parameter()}."
        constants = [
            EnumConstant(symbol.removeprefix(prefix), _integer(number, symbol))
            for symbol, number in schema.parameters.items()
            if symbol.startswith(prefix)
        ]
        message.types.append(EnumType(name, constants))


def _number(schema: Schema) -> int | None:
    found = schema.parameters.get(names.TAG)
    return None if found is None else _integer(found, names.TAG)


def _integer(text: str, parameter: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataError(f"The parameter {parameter} is {text!r}, which is not a number") from error


def _metadata(parameters: dict[str, str]) -> list[Option]:
    if not parameters:
        return []
    # As Confluent's registry writes them: of the parameters of a decimal the value is first.
    entries: list[Any] = [
        {"key": key, "value": value} if key == "connect.type" else {"value": value, "key": key}
        for key, value in parameters.items()
    ]
    return [Option("confluent.field_meta", OptionKind.MAP, {"params": entries}, True)]
