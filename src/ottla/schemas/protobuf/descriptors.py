"""From the elements of a .proto file to its FileDescriptorProto, without a compiler.

The result is what Confluent's registry returns for `format=serialized`, with groups, which Confluent omits. Fields of
oneofs come before other fields, and the messages of map fields behind nested messages. A file whose types are used
without an import becomes a dependency, so that a pool accepts the descriptor.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.defaults import default_text
from ottla.schemas.protobuf.descriptor_classes import descriptor_classes
from ottla.schemas.protobuf.descriptor_options import set_options
from ottla.schemas.protobuf.elements import (
    EnumType,
    Extend,
    Field,
    Group,
    Message,
    ProtoFile,
    Range,
    Rpc,
    Service,
    map_types,
)
from ottla.schemas.protobuf.names import Names, Resolver
from ottla.schemas.protobuf.validation import map_entry_name

_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_LABELS: Final = {"optional": _OPTIONAL, "required": _REQUIRED, "repeated": _REPEATED}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_TYPES: Final = {
    name: number
    for number, name in enumerate(
        (
            *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
            *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
        ),
        1,
    )
    if name not in {"group", "message", "enum"}
}


def file_descriptor(file: ProtoFile, names: Names, path: str, importable: Container[str]) -> Any:
    """The FileDescriptorProto with the name `path`. Imports that are not `importable` are omitted.

    Raises InvalidSchema for a type that does not exist.
    """
    return _Descriptors(file, names).file(path, importable)


class _Descriptors:
    def __init__(self, file: ProtoFile, names: Names) -> None:
        self._file = file
        self._resolver = Resolver(names, file.package)
        self._proto3 = file.syntax == "proto3"
        self._used: dict[str, None] = {}

    def file(self, path: str, importable: Container[str]) -> Any:
        file = self._file
        found = descriptor_classes().file(name=path)
        if file.package is not None:
            found.package = file.package
        if file.syntax is not None:
            found.syntax = file.syntax
        for each in file.types:
            if isinstance(each, Message):
                self._message(found.message_type.add(), each)
            else:
                self._enum(found.enum_type.add(), each)
        for service in file.services:
            self._service(found.service.add(), service)
        self._extends(found.extension, file.extends)
        set_options(found, file.options)
        self._imports(found, path, importable)
        return found

    def _imports(self, found: Any, path: str, importable: Container[str]) -> None:
        file = self._file
        public = dict.fromkeys(file.public_imports)
        imports = {**dict.fromkeys(file.imports), **public, **dict.fromkeys(file.weak_imports), **self._used}
        for each in imports:
            if each and each != path and each in importable:
                if each in public:
                    found.public_dependency.append(len(found.dependency))
                found.dependency.append(each)

    def _message(self, found: Any, message: Message) -> None:
        found.name = message.name
        self._resolver.enter(message.name)
        for each in message.types:
            if isinstance(each, Message):
                self._message(found.nested_type.add(), each)
            else:
                self._enum(found.enum_type.add(), each)
        for index, oneof in enumerate(message.oneofs):
            set_options(found.oneof_decl.add(name=oneof.name), oneof.options)
            for field in oneof.fields:
                self._field(found.field.add(oneof_index=index), field, found)
            for group in oneof.groups:
                self._group(found.field.add(oneof_index=index), group, found)
        for field in message.fields:
            self._field(found.field.add(), field, found)
        for group in message.groups:
            self._group(found.field.add(), group, found)
        self._extends(found.extension, message.extends)
        self._add_synthetic_oneofs(found)
        for extensions in message.extensions:
            for value in extensions.values:
                first, last = _bounds(value)
                set_options(found.extension_range.add(start=first, end=last + 1), extensions.options)
        for reserved in message.reserved:
            for name_or_number in reserved.values:
                if isinstance(name_or_number, str):
                    found.reserved_name.append(name_or_number)
                else:
                    first, last = _bounds(name_or_number)
                    found.reserved_range.add(start=first, end=last + 1)
        set_options(found, message.options)
        self._resolver.leave()

    def _add_synthetic_oneofs(self, found: Any) -> None:
        """An optional field of proto3 is the only member of an oneof behind the declared oneofs."""
        used = {each.name for each in (*found.field, *found.oneof_decl, *found.nested_type, *found.enum_type)}
        for field in found.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in used:
                    name = f"X{name}"
                used.add(name)
                field.oneof_index = len(found.oneof_decl)
                found.oneof_decl.add(name=name)

    def _field(self, found: Any, field: Field, parent: Any) -> None:
        """`parent` gets the message of a map field; it is None for an extension, which cannot be a map."""
        found.name = field.name
        found.number = field.number
        found.label = _LABELS[field.label or "optional"]
        types = map_types(field.type)
        if types is not None:
            self._map(found, field, types, parent)
        else:
            self._type(found, field.type)
        if field.label == "optional" and self._proto3 and parent is not None:
            found.proto3_optional = True
        if field.default is not None:
            found.default_value = self._default(field)
        if field.json_name is not None:
            found.json_name = field.json_name
        set_options(found, field.options)

    def _map(self, found: Any, field: Field, types: Sequence[str], parent: Any) -> None:
        entry = parent.nested_type.add(name=map_entry_name(field.name))
        entry.options.map_entry = True
        for number, (name, type_name) in enumerate(zip(("key", "value"), types, strict=True), 1):
            self._type(entry.field.add(name=name, number=number, label=_OPTIONAL), type_name)
        found.label = _REPEATED
        found.type = _MESSAGE
        found.type_name = ".".join(["", *self._resolver.scope, entry.name])

    def _type(self, found: Any, name: str) -> None:
        if name in _TYPES:
            found.type = _TYPES[name]
            return
        full_name = self._resolver.resolve(name)
        declared = self._resolver.type(name)
        if full_name is None or declared is None:
            raise InvalidSchema(f"type {name} of field {found.name} is not defined")
        self._used[declared.path] = None
        found.type = _ENUM if isinstance(declared.element, EnumType) else _MESSAGE
        found.type_name = f".{full_name}"

    def _default(self, field: Field) -> str:
        declared = self._resolver.type(field.type) if field.type not in _TYPES else None
        enum = None if declared is None or not isinstance(declared.element, EnumType) else declared.element
        constants = None if enum is None else {each.name for each in enum.constants}
        text = default_text(field.type, field.default or "", constants)
        if text is None:
            raise InvalidSchema(f"{field.default!r} is not a default of type {field.type}")
        return text

    def _group(self, found: Any, group: Group, parent: Any) -> None:
        found.name = group.name.lower()
        found.number = group.number
        found.label = _LABELS[group.label or "optional"]
        found.type = _GROUP
        found.type_name = ".".join(["", *self._resolver.scope, group.name])
        nested = parent.nested_type.add(name=group.name)
        for field in group.fields:
            self._field(nested.field.add(), field, nested)

    def _enum(self, found: Any, enum: EnumType) -> None:
        found.name = enum.name
        for each in enum.constants:
            set_options(found.value.add(name=each.name, number=each.number), each.options)
        for reserved in enum.reserved:
            for value in reserved.values:
                if isinstance(value, str):
                    found.reserved_name.append(value)
                else:
                    first, last = _bounds(value)
                    found.reserved_range.add(start=first, end=last)
        set_options(found, enum.options)

    def _extends(self, found: Any, extends: Iterable[Extend]) -> None:
        for extend in extends:
            full_name = self._resolver.resolve(extend.name)
            declared = self._resolver.type(extend.name)
            if full_name is None or declared is None:
                raise InvalidSchema(f"message {extend.name} to extend is not defined")
            self._used[declared.path] = None
            for field in extend.fields:
                self._field(found.add(extendee=f".{full_name}"), field, None)

    def _service(self, found: Any, service: Service) -> None:
        found.name = service.name
        for rpc in service.rpcs:
            method = found.method.add(name=rpc.name, input_type=self._rpc_type(rpc, rpc.request))
            method.output_type = self._rpc_type(rpc, rpc.response)
            if rpc.request_streaming:
                method.client_streaming = True
            if rpc.response_streaming:
                method.server_streaming = True
            set_options(method, rpc.options)
        set_options(found, service.options)

    def _rpc_type(self, rpc: Rpc, name: str) -> str:
        full_name = self._resolver.resolve(name)
        declared = self._resolver.type(name)
        if full_name is None or declared is None:
            raise InvalidSchema(f"message {name} of method {rpc.name} is not defined")
        self._used[declared.path] = None
        return f".{full_name}"


def _bounds(value: int | Range) -> tuple[int, int]:
    return (value.first, value.last) if isinstance(value, Range) else (value, value)
