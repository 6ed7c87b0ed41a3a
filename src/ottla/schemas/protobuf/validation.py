"""The errors of a .proto file beyond its syntax: names and numbers that are used twice, and types that do not exist.

Types may come from files that are not imported, and imports may be absent if no type of theirs is used, as in
Confluent's registry. Its default configuration also accepts duplicate numbers and names; no program could use such a
schema, so they are errors here, as they are for protoc.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.defaults import default_text
from ottla.schemas.protobuf.elements import (
    MAX_FIELD_NUMBER,
    SCALARS,
    EnumConstant,
    EnumType,
    Extend,
    Field,
    Group,
    Message,
    OneOf,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    map_types,
)
from ottla.schemas.protobuf.names import Names, Resolver
from ottla.schemas.protobuf.tokens import MAX_MESSAGE, line_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PROTOBUF_NUMBERS: Final = Range(19_000, 19_999)
_MAP_ENTRY: Final = {"key": 1, "value": 2}
_MAP_KEYS: Final = SCALARS - {"bytes", "double", "float"}


def validate(file: ProtoFile, names: Names, text: str) -> None:
    """Raise InvalidSchema, with the line in `text`, if the file has an error."""
    _Validation(file, names, text).check()


def map_entry_name(field_name: str) -> str:
    """The name of the message that a map field has: `MapFieldEntry` for `map_field`."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


class _Numbers:
    """A set of ranges of numbers."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for each in sorted(ranges):
            if self._lasts and each.first <= self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], each.last)
            else:
                self._firsts.append(each.first)
                self._lasts.append(each.last)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number <= self._lasts[index]


class _Validation:
    def __init__(self, file: ProtoFile, names: Names, text: str) -> None:
        self._file = file
        self._resolver = Resolver(names, file.package)
        self._text = text
        self._proto3 = file.syntax == "proto3"
        self._extended: dict[tuple[str, int], str] = {}
        self._extension_numbers: dict[str, _Numbers] = {}

    def check(self) -> None:
        file = self._file
        if file.package is not None:
            for part in file.package.split("."):
                self._check_name(part, 0)
        symbols: dict[str, int] = {}
        self._check_types(file.types, symbols)
        self._check_extends(file.extends, symbols)
        for service in file.services:
            self._declare(symbols, service.name, service.place)
            self._check_service(service)

    def _fail(self, message: str, place: int) -> NoReturn:
        message = message[:MAX_MESSAGE]
        raise InvalidSchema(f"line {line_of(self._text, place)}: {message}" if place else message)

    def _check_name(self, name: str, place: int) -> None:
        if not _NAME.match(name):
            self._fail(f"{name!r} is not a name", place)

    def _declare(self, symbols: dict[str, int], name: str, place: int) -> None:
        """Add a name to a scope."""
        self._check_name(name, place)
        if name in symbols:
            self._fail(f"{name} is already defined", place)
        symbols[name] = place

    def _check_types(self, types: Iterable[Message | EnumType], symbols: dict[str, int]) -> None:
        for each in types:
            self._declare(symbols, each.name, each.place)
            if isinstance(each, EnumType):
                # The values of an enum are names of the scope that has the enum.
                for constant in each.constants:
                    self._declare(symbols, constant.name, constant.place)
                self._check_enum(each)
            else:
                self._check_message(each)

    def _check_enum(self, enum: EnumType) -> None:
        if not enum.constants:
            self._fail(f"enum {enum.name} has no values", enum.place)
        if self._proto3 and enum.constants[0].number != 0:
            self._fail(f"the first value of enum {enum.name} must be zero in proto3", enum.constants[0].place)
        aliases = any(each.name == "allow_alias" and str(each.value) == "true" for each in enum.options)
        numbers: dict[int, EnumConstant] = {}
        reserved = self._reserved(enum.reserved, -0x80000000)
        for each in enum.constants:
            if each.number in numbers and not aliases:
                self._fail(f"number {each.number} of {each.name} is used by {numbers[each.number].name}", each.place)
            numbers[each.number] = each
            self._check_reserved(reserved, each.name, each.number, each.place)

    def _check_message(self, message: Message) -> None:
        self._resolver.enter(message.name)
        symbols: dict[str, int] = {}
        self._check_types(message.types, symbols)
        self._check_extends(message.extends, symbols)
        for oneof in message.oneofs:
            self._check_oneof(oneof, symbols)
        fields = [*message.fields, *(each for oneof in message.oneofs for each in oneof.fields)]
        groups = [*message.groups, *(each for oneof in message.oneofs for each in oneof.groups)]
        self._check_fields(fields, groups, message, symbols)
        if message.is_map_entry() and {each.name: each.number for each in message.fields} != _MAP_ENTRY:
            self._fail(f"message {message.name} for a map needs the fields key = 1 and value = 2", message.place)
        self._resolver.leave()

    def _check_oneof(self, oneof: OneOf, symbols: dict[str, int]) -> None:
        self._declare(symbols, oneof.name, oneof.place)
        if not oneof.fields and not oneof.groups:
            self._fail(f"oneof {oneof.name} has no fields", oneof.place)
        for each in oneof.fields:
            if map_types(each.type) is not None:
                self._fail(f"map field {each.name} cannot be in a oneof", each.place)

    def _check_fields(
        self, fields: Sequence[Field], groups: Sequence[Group], message: Message, symbols: dict[str, int]
    ) -> None:
        """The fields of a message. Numbers must differ, and be neither reserved nor for extensions."""
        reserved = self._reserved(message.reserved, 1)
        extensions = [value for each in message.extensions for value in each.values]
        if extensions and self._proto3:
            self._fail(f"message {message.name} of proto3 cannot have extensions", message.extensions[0].place)
        extension_numbers = _Numbers(self._range(each, message.place, 1) for each in extensions)
        numbers: dict[int, str] = {}
        members: list[Field | Group] = [*fields, *groups]
        for each in members:
            name = each.name.lower() if isinstance(each, Group) else each.name
            self._check_number(each.number, name, each.place)
            if each.number in numbers:
                self._fail(f"number {each.number} of field {name} is used by {numbers[each.number]}", each.place)
            numbers[each.number] = name
            self._declare(symbols, name, each.place)
            self._check_reserved(reserved, name, each.number, each.place)
            if each.number in extension_numbers:
                self._fail(f"number {each.number} of field {name} is one of the extensions", each.place)
            if isinstance(each, Group):
                self._check_group(each, symbols)
            else:
                self._check_field(each, symbols)

    def _check_group(self, group: Group, symbols: dict[str, int]) -> None:
        if self._proto3:
            self._fail(f"group {group.name} is not permitted in proto3", group.place)
        self._declare(symbols, group.name, group.place)
        self._check_fields(group.fields, [], Message(group.name), {})

    def _check_number(self, number: int, name: str, place: int) -> None:
        if not 1 <= number <= MAX_FIELD_NUMBER:
            self._fail(f"number {number} of field {name} is not between 1 and {MAX_FIELD_NUMBER}", place)
        if _PROTOBUF_NUMBERS.first <= number <= _PROTOBUF_NUMBERS.last:
            self._fail(f"number {number} of field {name} is reserved for Protobuf: 19000 to 19999", place)

    def _check_field(self, field: Field, symbols: dict[str, int]) -> None:
        types = map_types(field.type)
        if types is not None:
            self._declare(symbols, map_entry_name(field.name), field.place)
            if types[0] not in _MAP_KEYS:
                self._fail(f"{types[0]} cannot be the key of map field {field.name}", field.place)
            if types[1].startswith("map<"):
                self._fail(f"the values of map field {field.name} cannot be maps", field.place)
            self._enum_or_none(types[1], field)
            return
        enum = self._enum_or_none(field.type, field)
        if field.default is None:
            return
        if self._proto3:
            self._fail(f"field {field.name} of proto3 cannot have a default", field.place)
        constants = None if enum is None else {each.name for each in enum.constants}
        if default_text(field.type, field.default, constants) is None:
            self._fail(f"{field.default!r} is not a default of type {field.type}", field.place)

    def _enum_or_none(self, name: str, field: Field) -> EnumType | None:
        """The enum that a type name means, or None for scalars and messages."""
        if name in SCALARS:
            return None
        declared = self._resolver.type(name)
        if declared is None:
            self._fail(f"type {name} of field {field.name} is not defined", field.place)
        return declared.element if isinstance(declared.element, EnumType) else None

    def _check_extends(self, extends: Iterable[Extend], symbols: dict[str, int]) -> None:
        for extend in extends:
            full_name = self._resolver.resolve(extend.name)
            declared = self._resolver.type(extend.name)
            if full_name is None or declared is None or not isinstance(declared.element, Message):
                self._fail(f"message {extend.name} to extend is not defined", extend.place)
            if full_name not in self._extension_numbers:
                values = [value for each in declared.element.extensions for value in each.values]
                ranges = [value if isinstance(value, Range) else Range(value, value) for value in values]
                self._extension_numbers[full_name] = _Numbers(ranges)
            numbers = self._extension_numbers[full_name]
            for each in extend.fields:
                self._declare(symbols, each.name, each.place)
                self._check_number(each.number, each.name, each.place)
                if each.number not in numbers:
                    self._fail(f"{extend.name} has no extension number {each.number}", each.place)
                other = self._extended.setdefault((full_name, each.number), each.name)
                if other != each.name:
                    self._fail(f"extension {each.number} of {extend.name} is used by {other}", each.place)
                if map_types(each.type) is not None:
                    self._fail(f"extension {each.name} cannot be a map", each.place)
                self._check_field(each, symbols)

    def _check_service(self, service: Service) -> None:
        symbols: dict[str, int] = {}
        for each in service.rpcs:
            self._declare(symbols, each.name, each.place)
            self._check_rpc_type(each, each.request)
            self._check_rpc_type(each, each.response)

    def _check_rpc_type(self, rpc: Rpc, name: str) -> None:
        declared = self._resolver.type(name)
        if declared is None or not isinstance(declared.element, Message):
            self._fail(f"message {name} of method {rpc.name} is not defined", rpc.place)

    def _reserved(self, reserved: Iterable[Reserved], least: int) -> tuple[set[str], _Numbers]:
        names: set[str] = set()
        ranges: list[Range] = []
        for each in reserved:
            for value in each.values:
                if isinstance(value, str):
                    names.add(value)
                else:
                    ranges.append(self._range(value, each.place, least))
        return names, _Numbers(ranges)

    def _range(self, value: int | Range, place: int, least: int) -> Range:
        found = value if isinstance(value, Range) else Range(value, value)
        most = MAX_FIELD_NUMBER if least == 1 else 0x7FFFFFFF
        if not least <= found.first <= found.last <= most:
            self._fail(f"{found.first} to {found.last} is not a range of numbers", place)
        return found

    def _check_reserved(self, reserved: tuple[set[str], _Numbers], name: str, number: int, place: int) -> None:
        names, numbers = reserved
        if name in names:
            self._fail(f"name {name} is reserved", place)
        if number in numbers:
            self._fail(f"number {number} of {name} is reserved", place)
