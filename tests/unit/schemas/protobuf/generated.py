"""Random Protobuf schemas, and random changes of them: pairs of a writer's and a reader's schema."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Final

from ottla.schemas.model import InvalidSchema, Reference, Schema, SchemaType
from ottla.schemas.protobuf.elements import (
    SCALARS,
    EnumConstant,
    EnumType,
    Field,
    Message,
    OneOf,
    Option,
    OptionKind,
    ProtoFile,
    Reserved,
    map_types,
)
from ottla.schemas.protobuf.schema import parse_protobuf
from ottla.schemas.protobuf.writer import write_file

REFERENCED: Final = """\
syntax = "proto3";
package ref;
message Shared { string a = 1; Inner inner = 2; oneof o { int32 b = 3; string c = 4; } message Inner { int64 x = 1; } }
enum Kind { K0 = 0; K1 = 1; }
"""
CHANGED_REFERENCE: Final = """\
syntax = "proto3";
package ref;
message Shared { int32 a = 1; Inner inner = 2; oneof o { int32 b = 3; string c = 4; } message Inner { int64 x = 1; } }
enum Kind { K0 = 0; K2 = 2; }
"""
FOREIGN: Final = ("google.protobuf.Timestamp", "google.protobuf.Any", ".google.type.Money", "ref.Shared", "ref.Kind")
KEYS: Final = sorted(SCALARS - {"bytes", "double", "float"})


def random_file(random: Random) -> ProtoFile:
    """A valid file: proto2 or proto3, with a package or without, with nested types, oneofs, maps and references."""
    syntax = random.choice(["proto3", "proto3", "proto2"])
    package = random.choice([None, "p", "p.q"])
    imports = ["google/protobuf/timestamp.proto", "google/protobuf/any.proto", "google/type/money.proto", "ref.proto"]
    file = ProtoFile(syntax, package, imports)
    names = [f"M{index}" for index in range(random.randint(1, 3))]
    enums = [f"E{index}" for index in range(random.randint(0, 2))]
    for index, name in enumerate(names):
        file.types.append(_message(random, file, name, [*names, *enums], 0))
        if index == 0:
            file.types += [_enum(random, each) for each in enums]
    return file


def _message(random: Random, file: ProtoFile, name: str, usable: list[str], depth: int) -> Message:
    message = Message(name)
    nested = [f"N{depth}{index}" for index in range(random.randint(0, 2 - depth))]
    inner = f"{name}Enum" if random.random() < 0.3 else None
    usable = [*usable, *nested, *([inner] if inner else [])]
    message.types = [_message(random, file, each, usable, depth + 1) for each in nested]
    if inner:
        message.types.append(_enum(random, inner))
    numbers = random.sample(range(1, 30), random.randint(0, 7))
    message.fields = [random_field(random, file, number, usable) for number in numbers]
    if random.random() < 0.5:
        members = random.sample(range(30, 40), random.randint(1, 3))
        fields = [random_field(random, file, number, usable, plain=True) for number in members]
        message.oneofs.append(OneOf("choice", fields))
    if random.random() < 0.3:
        message.reserved += [Reserved([50]), Reserved(["gone"])]
    return message


def _enum(random: Random, name: str) -> EnumType:
    return EnumType(name, [EnumConstant(f"{name}_{index}", index) for index in range(random.randint(1, 3))])


def random_field(random: Random, file: ProtoFile, number: int, usable: list[str], plain: bool = False) -> Field:
    """A field; `plain` ones, as in a oneof, have no label."""
    kind = random.random()
    type_name = random.choice(sorted(SCALARS)) if kind < 0.5 else random.choice(usable + list(FOREIGN))
    if not plain and kind > 0.9:
        return Field(None, f"map<{random.choice(KEYS)}, {type_name}>", f"f{number}", number)
    options = [Option("deprecated", OptionKind.BOOLEAN, "true")] if random.random() < 0.1 else []
    label = None
    if not plain:
        labels = ["optional", "repeated", None] if file.syntax == "proto3" else ["optional", "required", "repeated"]
        label = random.choice(labels)
    return Field(label, type_name, f"f{number}", number, options=options)


def _messages(types: list[Message | EnumType]) -> list[Message]:
    found = [each for each in types if isinstance(each, Message)]
    return found + [each for message in found for each in _messages(message.types)]


def _change_type(random: Random, file: ProtoFile, message: Message) -> None:
    fields = [*message.fields, *(each for oneof in message.oneofs for each in oneof.fields)]
    if fields:
        field = random.choice(fields)
        if map_types(field.type) is not None:
            field.type = f"map<{random.choice(KEYS)}, {random.choice(sorted(SCALARS))}>"
        else:
            field.type = random.choice([*sorted(SCALARS), "M0", "M1", *FOREIGN])


def _change_label(random: Random, file: ProtoFile, message: Message) -> None:
    fields = [each for each in message.fields if map_types(each.type) is None]
    if fields:
        labels = ["optional", "repeated", None] if file.syntax == "proto3" else ["optional", "required", "repeated"]
        random.choice(fields).label = random.choice(labels)


def _remove_field(random: Random, file: ProtoFile, message: Message) -> None:
    if message.fields:
        message.fields.remove(random.choice(message.fields))


def _add_field(random: Random, file: ProtoFile, message: Message) -> None:
    used = {each.number for each in message.fields}
    number = random.choice([each for each in range(1, 30) if each not in used])
    message.fields.append(random_field(random, file, number, ["M0"]))


def _rename_field(random: Random, file: ProtoFile, message: Message) -> None:
    if message.fields:
        random.choice(message.fields).name += "_renamed"


def _move_into_oneof(random: Random, file: ProtoFile, message: Message) -> None:
    if message.fields:
        field = random.choice(message.fields)
        if map_types(field.type) is not None:
            return
        message.fields.remove(field)
        field.label = None
        if not message.oneofs or random.random() < 0.3:
            message.oneofs.append(OneOf(random.choice(["choice", "other"]), []))
        random.choice(message.oneofs).fields.append(field)


def _move_out_of_oneof(random: Random, file: ProtoFile, message: Message) -> None:
    if message.oneofs:
        oneof = random.choice(message.oneofs)
        field = oneof.fields.pop(random.randrange(len(oneof.fields)))
        if random.random() < 0.5:
            field.label = "optional"
            message.fields.append(field)
        if not oneof.fields:
            message.oneofs.remove(oneof)


def _remove_oneof(random: Random, file: ProtoFile, message: Message) -> None:
    if message.oneofs:
        message.oneofs.remove(random.choice(message.oneofs))


def _rename_oneof(random: Random, file: ProtoFile, message: Message) -> None:
    if message.oneofs:
        random.choice(message.oneofs).name = "renamed"


def _remove_type(random: Random, file: ProtoFile, message: Message) -> None:
    types = random.choice([file.types, message.types])
    if types:
        types.remove(random.choice(types))


def _reorder(random: Random, file: ProtoFile, message: Message) -> None:
    random.shuffle(message.fields)
    random.shuffle(file.types)


def _change_package(random: Random, file: ProtoFile, message: Message) -> None:
    if random.random() < 0.2:
        file.package = random.choice([None, "p", "other"])


CHANGES: Final[tuple[Callable[[Random, ProtoFile, Message], None], ...]] = (
    _change_type,
    _change_label,
    _remove_field,
    _add_field,
    _rename_field,
    _move_into_oneof,
    _move_out_of_oneof,
    _remove_oneof,
    _rename_oneof,
    _remove_type,
    _reorder,
    _change_package,
)


def changed_file(random: Random, file: ProtoFile) -> ProtoFile:
    """The file after one to three changes; it may be invalid."""
    found = copy.deepcopy(file)
    for _ in range(random.randint(1, 3)):
        messages = _messages(found.types)
        if messages:
            random.choice(CHANGES)(random, found, random.choice(messages))
    return found


def schema_of(file: ProtoFile, reference: str = REFERENCED) -> tuple[Schema, dict[str, Schema]]:
    """A schema and those that it uses. The version of the reference depends on its text."""
    version = 1 if reference == REFERENCED else 2
    schema = Schema(SchemaType.PROTOBUF, write_file(file), (Reference("ref.proto", "ref", version),))
    return schema, {"ref.proto": Schema(SchemaType.PROTOBUF, reference)}


def is_valid(file: ProtoFile) -> bool:
    try:
        parse_protobuf(*schema_of(file))
    except InvalidSchema:
        return False
    return True


def random_pair(random: Random) -> tuple[ProtoFile, ProtoFile]:
    """Two valid files, of which the second is a change of the first."""
    while True:
        writer = random_file(random)
        reader = changed_file(random, writer)
        if is_valid(writer) and is_valid(reader):
            return writer, reader
