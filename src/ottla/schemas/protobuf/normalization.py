"""The normalized form of a file, as Confluent's registry has it for `normalize=true`.

What has no meaning gets one order: imports, fields by number, enum values, reserved numbers and options by name.
Types get full names, map entries become map fields, options of the same name are merged. Messages and enums keep
their order, since the indexes in front of each record depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.elements import (
    SCALARS,
    EnumConstant,
    EnumType,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    OneOf,
    Option,
    OptionKind,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    map_types,
)
from ottla.schemas.protobuf.names import Names, Resolver
from ottla.schemas.protobuf.normalized_options import normalized_options
from ottla.schemas.protobuf.writer import default_kind


def normalized_file(file: ProtoFile, names: Names) -> ProtoFile:
    """The file in normalized form; `file` is not changed. Raises InvalidSchema for a type that does not exist."""
    return _Normalization(Resolver(names, file.package)).file(file)


class _Normalization:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def file(self, file: ProtoFile) -> ProtoFile:
        return ProtoFile(
            file.syntax if file.syntax == "proto3" else None,
            file.package,
            sorted(set(file.imports)),
            sorted(set(file.public_imports)),
            [],
            self._options(file.options),
            self._types(file.types),
            [self._service(each) for each in file.services],
            self._extends(file.extends),
        )

    def _options(self, options: Sequence[Option]) -> list[Option]:
        return normalized_options(options, self._resolver) if options else []

    def _types(self, types: Iterable[Message | EnumType]) -> list[Message | EnumType]:
        return [
            self._message(each) if isinstance(each, Message) else self._enum(each)
            for each in types
            if not (isinstance(each, Message) and each.is_map_entry())
        ]

    def _message(self, message: Message) -> Message:
        self._resolver.enter(message.name)
        found = Message(
            message.name,
            self._types(message.types),
            self._options(message.options),
            _reserved(message.reserved),
            self._fields(message.fields),
            self._oneofs(message.oneofs),
            self._extensions(message.extensions),
            self._groups(message.groups),
            self._extends(message.extends),
        )
        self._resolver.leave()
        return found

    def _enum(self, enum: EnumType) -> EnumType:
        self._resolver.enter(enum.name)
        constants = sorted(enum.constants, key=lambda each: (each.number, each.name))
        found = EnumType(
            enum.name,
            [EnumConstant(each.name, each.number, self._options(each.options)) for each in constants],
            self._options(enum.options),
            _reserved(enum.reserved),
        )
        self._resolver.leave()
        return found

    def _oneofs(self, oneofs: Iterable[OneOf]) -> list[OneOf]:
        found = [
            OneOf(each.name, self._fields(each.fields), self._groups(each.groups), self._options(each.options))
            for each in oneofs
            if each.fields
        ]
        return sorted(found, key=lambda each: each.fields[0].number)

    def _groups(self, groups: Iterable[Group]) -> list[Group]:
        ordered = sorted(groups, key=lambda each: each.number)
        return [replace(each, fields=self._fields(each.fields)) for each in ordered]

    def _fields(self, fields: Iterable[Field]) -> list[Field]:
        return [self._field(each) for each in sorted(fields, key=lambda each: each.number)]

    def _field(self, field: Field) -> Field:
        type_name = self._type(field.type)
        options = list(field.options)
        if field.default is not None:
            options.append(Option("default", default_kind(type_name), field.default))
        if field.json_name is not None:
            options.append(Option("json_name", OptionKind.STRING, field.json_name))
        label = None if type_name.startswith("map<") else field.label
        return Field(label, type_name, field.name, field.number, options=self._options(options))

    def _type(self, name: str) -> str:
        if name in SCALARS:
            return name
        types = map_types(name)
        if types is None:
            name = self._full_name(name)
            declared = self._resolver.declared(name[1:])
            if declared is None or not (isinstance(declared.element, Message) and declared.element.is_map_entry()):
                return name
            entry = {each.name: each.type for each in declared.element.fields}
            types = entry.get("key", ""), entry.get("value", "")
        key, value = types
        resolved = self._resolver.resolve(value)
        return f"map<{key}, {value if resolved is None else f'.{resolved}'}>"

    def _full_name(self, name: str) -> str:
        resolved = self._resolver.resolve(name)
        if resolved is None:
            raise InvalidSchema(f"type {name} is not defined")
        return f".{resolved}"

    def _extensions(self, extensions: Iterable[Extensions]) -> list[Extensions]:
        single = [(value, self._options(each.options)) for each in extensions for value in each.values]
        ordered = sorted(single, key=lambda each: _first(each[0]))
        return [Extensions([_collapsed(value)], options) for value, options in ordered]

    def _extends(self, extends: Iterable[Extend]) -> list[Extend]:
        fields: dict[str, list[Field]] = {}
        for extend in extends:
            for each in extend.fields:
                fields.setdefault(self._full_name(extend.name), []).append(each)
        return [Extend(name, self._fields(found)) for name, found in fields.items()]

    def _service(self, service: Service) -> Service:
        return Service(service.name, [self._rpc(each) for each in service.rpcs], self._options(service.options))

    def _rpc(self, rpc: Rpc) -> Rpc:
        request, response = self._full_name(rpc.request), self._full_name(rpc.response)
        return replace(rpc, request=request, response=response, options=self._options(rpc.options))


def _reserved(reserved: Iterable[Reserved]) -> list[Reserved]:
    values = [value for each in reserved for value in each.values]
    ordered = sorted(values, key=lambda each: (_first(each), _text(each)))
    return [Reserved([each if isinstance(each, str) else _collapsed(each)]) for each in ordered]


def _first(value: str | int | Range) -> int:
    """Names come behind all numbers."""
    if isinstance(value, Range):
        return value.first
    return value if isinstance(value, int) else 0x7FFFFFFF


def _text(value: str | int | Range) -> str:
    return f"{value.first}..{value.last}" if isinstance(value, Range) else str(value)


def _collapsed(value: int | Range) -> int | Range:
    return value.first if isinstance(value, Range) and value.first == value.last else value
