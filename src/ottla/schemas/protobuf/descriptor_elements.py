"""From a serialized FileDescriptorProto to the elements of a .proto text, as Confluent's registry reads descriptors.

Java's and Python's Protobuf serializers register schemas in this form. Groups and custom options other than Confluent's
metadata have no place in it and are omitted. Types have full names with a leading dot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.descriptor_classes import META_OPTIONS, descriptor_classes
from ottla.schemas.protobuf.elements import (
    EnumConstant,
    EnumType,
    Extend,
    Extensions,
    Field,
    Message,
    OneOf,
    Option,
    OptionKind,
    Primitive,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
)

# The options that are kept, in the order of Confluent's canonical string.
KNOWN_OPTIONS: Final = {
    "FileOptions": [
        "java_package",
        "java_outer_classname",
        "java_multiple_files",
        "java_generate_equals_and_hash",
        "java_string_check_utf8",
        "optimize_for",
        "go_package",
        "cc_generic_services",
        "java_generic_services",
        "py_generic_services",
        "deprecated",
        "cc_enable_arenas",
        "objc_class_prefix",
        "csharp_namespace",
        "swift_prefix",
        "php_class_prefix",
        "php_namespace",
        "php_metadata_namespace",
        "ruby_package",
        "features",
    ],
    "MessageOptions": ["no_standard_descriptor_accessor", "deprecated", "map_entry", "features"],
    "FieldOptions": [
        "ctype",
        "packed",
        "jstype",
        "deprecated",
        "debug_redact",
        "retention",
        "targets",
        "edition_defaults",
        "features",
        "feature_support",
    ],
    "OneofOptions": ["features"],
    "EnumOptions": ["allow_alias", "deprecated", "features"],
    "EnumValueOptions": ["deprecated", "debug_redact", "features", "feature_support"],
    "ExtensionRangeOptions": ["declaration", "features", "verification"],
    "ServiceOptions": ["deprecated", "features"],
    "MethodOptions": ["deprecated", "idempotency_level", "features"],
}
_STRING, _BOOL, _ENUM, _MESSAGE = 9, 8, 14, 11
_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
_TYPES: Final = [
    "-",
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
]


def elements_of(serialized: bytes) -> ProtoFile:
    """The elements of a serialized FileDescriptorProto. Raises InvalidSchema."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        file = descriptor_classes().file.FromString(serialized)
    except DecodeError as error:
        raise InvalidSchema(f"not a descriptor of a file: {error}") from error
    _check_texts(file)
    return _file(file)


def _check_texts(message: Any) -> None:
    """Raise InvalidSchema for a text that is not UTF-8, which the library returns as bytes."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                _check_texts(each)
        elif field.type == _STRING:
            for each in value if field.is_repeated else [value]:
                if not isinstance(each, str):
                    raise InvalidSchema(f"{field.full_name} is not UTF-8")


def _file(file: Any) -> ProtoFile:
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    imports: dict[str, list[str]] = {"private": [], "public": [], "weak": []}
    for index, path in enumerate(file.dependency):
        imports["public" if index in public else "weak" if index in weak else "private"].append(path)
    proto3 = file.syntax == "proto3"
    return ProtoFile(
        file.syntax if file.syntax in {"proto2", "proto3"} else None,
        file.package or None,
        imports["private"],
        imports["public"],
        imports["weak"],
        _options(file.options),
        [*(_message(each, proto3) for each in file.message_type), *(_enum(each) for each in file.enum_type)],
        [_service(each) for each in file.service],
        _extends(file.extension, proto3),
    )


def _message(message: Any, proto3: bool) -> Message:
    fields: list[Field] = []
    members: list[list[Field]] = [[] for _ in message.oneof_decl]
    for each in message.field:
        in_oneof = each.HasField("oneof_index") and not each.proto3_optional
        if in_oneof and each.oneof_index >= len(members):
            raise InvalidSchema(f"field {each.name} has an oneof that does not exist")
        field = _field(each, proto3, in_oneof)
        (members[each.oneof_index] if in_oneof else fields).append(field)
    oneofs = zip(message.oneof_decl, members, strict=True)
    nested = [_message(each, proto3) for each in message.nested_type]
    ranges = [_numbers(each.start, each.end - 1) for each in message.reserved_range]
    return Message(
        message.name,
        [*nested, *(_enum(each) for each in message.enum_type)],
        _options(message.options),
        [Reserved([each]) for each in [*ranges, *message.reserved_name]],
        fields,
        [OneOf(each.name, found, [], _options(each.options)) for each, found in oneofs if found],
        [Extensions([_numbers(each.start, each.end - 1)], _options(each.options)) for each in message.extension_range],
        [],
        _extends(message.extension, proto3),
    )


def _field(field: Any, proto3: bool, in_oneof: bool) -> Field:
    label = None if in_oneof else _label(field, proto3)
    type_name = field.type_name if field.HasField("type_name") else _TYPES[field.type]
    default = field.default_value if field.HasField("default_value") and not proto3 else None
    json_name = field.json_name if field.HasField("json_name") else None
    return Field(label, type_name, field.name, field.number, default, json_name, _options(field.options))


def _label(field: Any, proto3: bool) -> str | None:
    if field.proto3_optional:
        return "optional"
    label = _LABELS[field.label]
    return label if label == "repeated" or not proto3 else None


def _extends(extensions: Iterable[Any], proto3: bool) -> list[Extend]:
    found: dict[str, Extend] = {}
    for each in extensions:
        found.setdefault(each.extendee, Extend(each.extendee, [])).fields.append(_field(each, proto3, False))
    return list(found.values())


def _enum(enum: Any) -> EnumType:
    ranges = [_numbers(each.start, each.end) for each in enum.reserved_range]
    return EnumType(
        enum.name,
        [EnumConstant(each.name, each.number, _options(each.options)) for each in enum.value],
        _options(enum.options),
        [Reserved([each]) for each in [*ranges, *enum.reserved_name]],
    )


def _service(service: Any) -> Service:
    rpcs = [
        Rpc(
            each.name,
            each.input_type,
            each.output_type,
            each.client_streaming,
            each.server_streaming,
            _options(each.options),
        )
        for each in service.method
    ]
    return Service(service.name, rpcs, _options(service.options))


def _numbers(first: int, last: int) -> int | Range:
    return first if first == last else Range(first, last)


def _options(options: Any) -> list[Option]:
    kind = options.DESCRIPTOR.name
    found: list[Option] = []
    for name in KNOWN_OPTIONS[kind]:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            continue
        if field.is_repeated:
            found += [_option(field, each) for each in getattr(options, name)]
        elif options.HasField(name):
            found.append(_option(field, getattr(options, name)))
    if kind in META_OPTIONS:
        extension = descriptor_classes().meta[kind]
        if options.HasExtension(extension):
            meta = _meta(options.Extensions[extension])
            found += [Option(f"confluent.{META_OPTIONS[kind]}", OptionKind.MAP, meta, True)] if meta else []
    return found


def _option(field: Any, value: Any) -> Option:
    if field.type == _MESSAGE:
        entries = {each.name: _primitive(each, found) for each, found in value.ListFields() if not each.is_extension}
        return Option(field.name, OptionKind.MAP, entries)
    found = _primitive(field, value)
    if isinstance(found, Primitive):
        return Option(field.name, found.kind, found.text)
    return Option(field.name, OptionKind.STRING, found)


def _primitive(field: Any, value: Any) -> Primitive | str:
    if field.type == _STRING:
        return str(value)
    if field.type == _BOOL:
        return Primitive(OptionKind.BOOLEAN, "true" if value else "false")
    if field.type == _ENUM:
        named = field.enum_type.values_by_number.get(value)
        return Primitive(OptionKind.ENUM, named.name if named is not None else str(value))
    return Primitive(OptionKind.NUMBER, str(value))


def _meta(meta: Any) -> dict[str, object]:
    """Confluent's metadata as the value of an option. Of the parameters of a decimal the value is first."""
    params = {each.key: each.value for each in meta.params}
    entries: dict[str, object] = {
        "doc": meta.doc,
        "params": [
            {"value": value, "key": key} if key in {"precision", "scale"} else {"key": key, "value": value}
            for key, value in params.items()
        ],
        "tags": list(meta.tags),
        "rules": [
            rule
            for each in meta.rules
            if (rule := {name: getattr(each, name) for name in ("name", "doc", "expr", "sql") if getattr(each, name)})
        ],
    }
    return {key: value for key, value in entries.items() if value}
