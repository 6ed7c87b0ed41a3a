"""The differences between a writer's and a reader's schema that make them incompatible, by Confluent's rules.

Fields are compared by number, regardless of their name and place in the message. Removing a field is compatible, unless
it is required or a member of a oneof that remains. Types of the same group, such as int32, bool and enums, can replace
each other. A path has the names of the messages and the numbers of the fields: `#/Order/Line/3`.

Messages that are used from several fields are compared once, so time is linear in the size of both schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from ottla.schemas.model import Incompatibility
from ottla.schemas.protobuf.elements import SCALARS, EnumType, Field, Message, OneOf, ProtoFile, map_types
from ottla.schemas.protobuf.names import DeclaredType, Names, Resolver

# Messages of references that are compared inside of each other. Each takes a few frames of Python's stack.
_MAX_DEPTH: Final = 40
# Types that can replace each other. Enums are numbers.
_NUMBER: Final = "number"
_SCALAR_KINDS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), _NUMBER),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
_TYPES: Final = "Field {name} has the type {new} in the reader schema and {old} in the writer schema"
_MESSAGES: Final = {
    "PACKAGE_CHANGED": "The package of the reader schema is {new}, and the package of the writer schema is {old}",
    "MESSAGE_REMOVED": "The reader schema has no message {name}",
    "FIELD_KIND_CHANGED": f"{_TYPES}: a scalar, a message and a map cannot replace each other",
    "FIELD_SCALAR_KIND_CHANGED": f"{_TYPES}, which is encoded otherwise",
    "FIELD_NAMED_TYPE_CHANGED": f"{_TYPES}, which is another message or has an incompatible version",
    "FIELD_NUMERIC_LABEL_CHANGED": "Number {name} is {new} in the reader schema and {old} in the writer schema",
    "REQUIRED_FIELD_ADDED": "The required field {name} does not exist in the writer schema",
    "REQUIRED_FIELD_REMOVED": "The required field {name} does not exist in the reader schema",
    "ONEOF_FIELD_REMOVED": "Field {name} of oneof {old} does not exist in the reader schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "The writer schema has several fields of oneof {name} outside of a oneof",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "The writer schema has a field of oneof {name} outside of that oneof",
}


class Compared(Protocol):
    """A schema with the names that it can use."""

    file: ProtoFile
    names: Names


def incompatibilities(writer: Compared, reader: Compared) -> list[Incompatibility]:
    """The reasons why data of `writer` cannot be read with `reader`, each once."""
    shared = _Shared()
    comparison = _Comparison(
        Resolver(writer.names, writer.file.package), Resolver(reader.names, reader.file.package), [], shared
    )
    if writer.file.package != reader.file.package:
        comparison.add("PACKAGE_CHANGED", old=writer.file.package or "absent", new=reader.file.package or "absent")
    comparison.compare_types(writer.file.types, reader.file.types)
    while shared.waiting:
        scope, old, new = shared.waiting.pop()
        scope.compare_messages(old, new)
        shared.known[id(old), id(new)] = scope.found
        comparison.found.update(scope.found)
    return list(comparison.found)


_Differences = dict[Incompatibility, None]


class _Shared:
    """The state that the comparisons of one pair of schemas share.

    `known` has the differences of messages that are compared, or that are finished. `waiting` has the messages that
    are too deep to compare them at once; fields of their type do not repeat that they differ.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], _Differences] = {}
        self.waiting: list[tuple[_Comparison, Message, Message]] = []
        self.depth = 0


class _Comparison:
    """A comparison in one scope."""

    def __init__(self, writer: Resolver, reader: Resolver, path: list[str], shared: _Shared) -> None:
        self._writer = writer
        self._reader = reader
        self._path = path
        self._shared = shared
        self.found: _Differences = {}

    def add(self, kind: str, name: str = "", *, old: str | None = None, new: str | None = None) -> None:
        """Add a difference at the current path."""
        path = f"#/{'/'.join(self._path)}"
        message = _MESSAGES[kind].format(name=name, old=old, new=new)
        self.found[Incompatibility(kind, path, f"{message} (at '{path}')")] = None

    @contextmanager
    def _at(self, *parts: str) -> Iterator[None]:
        self._path.extend(parts)
        yield
        del self._path[-len(parts) :]

    def compare_types(self, writer: Sequence[Message | EnumType], reader: Sequence[Message | EnumType]) -> None:
        """Compare the messages of a file, or inside of a message, by name."""
        readers = {each.name: each for each in reader if isinstance(each, Message)}
        for each in writer:
            if not isinstance(each, Message):
                continue
            with self._at(each.name):
                if each.name in readers:
                    self._enter(each.name)
                    self.compare_messages(each, readers[each.name])
                    self._leave()
                elif not each.is_map_entry():
                    self.add("MESSAGE_REMOVED", each.name)

    def _enter(self, name: str) -> None:
        self._writer.enter(name)
        self._reader.enter(name)

    def _leave(self) -> None:
        self._writer.leave()
        self._reader.leave()

    def compare_messages(self, writer: Message, reader: Message) -> None:
        """Compare two messages in their own scope."""
        old, new = _Fields(writer), _Fields(reader)
        for oneof in reader.oneofs:
            self._compare_origins(oneof, old)
        # A oneof that is removed with all its members is compatible.
        remaining = {each.name for each in reader.oneofs}
        remaining |= {name for name, members in old.members.items() if any(each in new.by_number for each in members)}
        for number in sorted(old.by_number.keys() | new.by_number.keys()):
            if number not in new.by_number:
                self._compare_removed(old, number, remaining)
            elif number not in old.by_number:
                field = new.by_number[number]
                if field.label == "required" and number not in new.oneof_of:
                    with self._at(str(number)):
                        self.add("REQUIRED_FIELD_ADDED", field.name)
            else:
                place = (new.oneof_of[number], str(number)) if number in new.oneof_of else (str(number),)
                with self._at(*place):
                    self._compare_fields(old.by_number[number], new.by_number[number])
        self.compare_types(writer.types, reader.types)

    def _compare_origins(self, oneof: OneOf, old: _Fields) -> None:
        """Fields that were independent must not become exclusive."""
        existing = [each.number for each in oneof.fields if each.number in old.by_number]
        origins = {old.oneof_of.get(number, number) for number in existing}
        if len(origins) > 1:
            moved = sum(number not in old.oneof_of for number in existing)
            with self._at(oneof.name):
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(kind, oneof.name)

    def _compare_removed(self, old: _Fields, number: int, remaining: set[str]) -> None:
        field, oneof = old.by_number[number], old.oneof_of.get(number)
        if oneof is None:
            if field.label == "required":
                with self._at(str(number)):
                    self.add("REQUIRED_FIELD_REMOVED", field.name)
        elif oneof in remaining:
            with self._at(oneof, str(number)):
                self.add("ONEOF_FIELD_REMOVED", field.name, old=oneof)

    def _compare_fields(self, writer: Field, reader: Field) -> None:
        self._compare_typed(reader.name, (writer.type, writer.label), (reader.type, reader.label))

    def _compare_typed(self, name: str, writer: tuple[str, str | None], reader: tuple[str, str | None]) -> None:
        old, new = _Type(self._writer, writer[0]), _Type(self._reader, reader[0])
        if old.kind != new.kind:
            self.add("FIELD_KIND_CHANGED", name, old=writer[0], new=reader[0])
        elif old.scalar is not None:
            labels = {writer[1], reader[1]}
            if old.scalar != new.scalar:
                self.add("FIELD_SCALAR_KIND_CHANGED", name, old=writer[0], new=reader[0])
            elif len(labels) > 1 and None not in labels and old.scalar != "string or bytes":
                self.add("FIELD_NUMERIC_LABEL_CHANGED", name, old=writer[1], new=reader[1])
        elif old.entry is not None and new.entry is not None:
            for old_type, new_type in zip(old.entry, new.entry, strict=True):
                self._compare_typed(name, (old_type, None), (new_type, None))
        else:
            self._compare_message_types(name, writer[0], reader[0])

    def _compare_message_types(self, name: str, writer: str, reader: str) -> None:
        old_name, new_name = self._writer.resolve(writer), self._reader.resolve(reader)
        if old_name is None or new_name is None:
            if writer != reader:
                self.add("FIELD_NAMED_TYPE_CHANGED", name, old=writer, new=reader)
            return
        old, new = self._writer.declared(old_name), self._reader.declared(new_name)
        assert old is not None
        assert new is not None
        local = _local_name(old_name, old.package)
        if local != _local_name(new_name, new.package):
            self.add("FIELD_NAMED_TYPE_CHANGED", name, old=writer, new=reader)
        elif old.element is not new.element and (old.origin is None or old.origin != new.origin):
            nested = self._compare_declared(local, old, new)
            self.found.update(nested)
            if nested:
                self.add("FIELD_NAMED_TYPE_CHANGED", name, old=writer, new=reader)

    def _compare_declared(self, local_name: str, old: DeclaredType, new: DeclaredType) -> _Differences:
        """Compare types of which at least one comes from a reference. A type inside of itself has no differences."""
        key = id(old.element), id(new.element)
        known = self._shared.known
        if key not in known:
            known[key] = {}
            scope = _Comparison(
                self._writer.at(old.package, local_name),
                self._reader.at(new.package, local_name),
                local_name.split("."),
                self._shared,
            )
            assert isinstance(old.element, Message)
            assert isinstance(new.element, Message)
            if self._shared.depth == _MAX_DEPTH:
                self._shared.waiting.append((scope, old.element, new.element))
                return {}
            self._shared.depth += 1
            scope.compare_messages(old.element, new.element)
            self._shared.depth -= 1
            known[key] = scope.found
        return known[key]


class _Fields:
    """The fields of a message by number, and the oneofs of those that are in one."""

    def __init__(self, message: Message) -> None:
        self.by_number = {each.number: each for each in message.fields}
        self.oneof_of: dict[int, str] = {}
        self.members = {each.name: [field.number for field in each.fields] for each in message.oneofs}
        for oneof in message.oneofs:
            self.by_number.update({each.number: each for each in oneof.fields})
            self.oneof_of.update(dict.fromkeys(self.members[oneof.name], oneof.name))


class _Type:
    """The meaning of a type in a scope: `scalar` is the group of a scalar or enum, `entry` key and value of a map."""

    def __init__(self, resolver: Resolver, name: str) -> None:
        declared = resolver.type(name)
        element = None if declared is None else declared.element
        self.scalar = _SCALAR_KINDS.get(name)
        self.entry = map_types(name)
        if isinstance(element, EnumType):
            self.scalar = _NUMBER if name not in SCALARS else self.scalar
        elif element is not None and element.is_map_entry():
            self.entry = _entry_types(element.fields)
        self.kind = "scalar" if self.scalar is not None else "map" if self.entry is not None else "message"


def _entry_types(fields: Iterable[Field]) -> tuple[str, str]:
    types = {each.name: each.type for each in fields}
    return types.get("key", ""), types.get("value", "")


def _local_name(full_name: str, package: str) -> str:
    """The name without its package."""
    return full_name.removeprefix(f"{package}.") if package else full_name
