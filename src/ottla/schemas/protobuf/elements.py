"""The elements of a .proto text, in the order and with the details that Confluent's canonical string keeps.

Comments are not kept. Each list has the order of the text, but the lists are apart: a message does not record whether a
field stood before or after a oneof. `place` is the number of an element's first token, from which an error message
finds the line. Elements of a descriptor have place 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

MAX_FIELD_NUMBER: Final = 536_870_911
SCALARS: Final = frozenset(
    [
        "bool",
        "bytes",
        "double",
        "fixed32",
        "fixed64",
        "float",
        "int32",
        "int64",
        "sfixed32",
        "sfixed64",
        "sint32",
        "sint64",
        "string",
        "uint32",
        "uint64",
    ]
)


class OptionKind(Enum):
    """The form of an option's value."""

    STRING = auto()
    BOOLEAN = auto()
    NUMBER = auto()
    ENUM = auto()
    MAP = auto()
    LIST = auto()
    OPTION = auto()


class Primitive(NamedTuple):
    """A value inside of a map or list that is written without quotes."""

    kind: OptionKind
    text: str


class Option(NamedTuple):
    """An option. A parenthesized option is an extension; `(a).b = 1` is a, of kind OPTION, with the option b.

    `value` is an Option for the kind OPTION, a dict for MAP, a list for LIST, and the text for the other kinds. Inside
    of dict and list, a str was quoted, and a `Primitive` was not.
    """

    name: str
    kind: OptionKind
    value: object
    parenthesized: bool = False


class Range(NamedTuple):
    """Numbers `first` to `last`, both included."""

    first: int
    last: int


@dataclass(slots=True)
class Field:
    """A field of a message, oneof, group or `extend`. `type` is a scalar, a name, or `map<key, value>`."""

    label: str | None
    type: str
    name: str
    number: int
    default: str | None = None
    json_name: str | None = None
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class Group:
    """A group of proto2: a field and its message in one declaration."""

    label: str | None
    name: str
    number: int
    fields: list[Field]
    place: int = 0


@dataclass(slots=True)
class OneOf:
    """A oneof of a message."""

    name: str
    fields: list[Field]
    groups: list[Group] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class Reserved:
    """A `reserved` statement: names, numbers and ranges."""

    values: list[str | int | Range]
    place: int = 0


@dataclass(slots=True)
class Extensions:
    """An `extensions` statement: the numbers that other files may use."""

    values: list[int | Range]
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class Extend:
    """An `extend` block: fields of another message."""

    name: str
    fields: list[Field]
    place: int = 0


@dataclass(slots=True)
class EnumConstant:
    """A value of an enum."""

    name: str
    number: int
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class EnumType:
    """An enum."""

    name: str
    constants: list[EnumConstant] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[Reserved] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class Message:
    """A message. `types` has its nested messages and enums."""

    name: str
    types: list[Message | EnumType] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[Reserved] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    oneofs: list[OneOf] = field(default_factory=list)
    extensions: list[Extensions] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    place: int = 0

    def is_map_entry(self) -> bool:
        """Whether this is the message that a descriptor has for a map field."""
        return any(each.name == "map_entry" and str(each.value).lower() == "true" for each in self.options)


@dataclass(slots=True)
class Rpc:
    """A method of a service."""

    name: str
    request: str
    response: str
    request_streaming: bool = False
    response_streaming: bool = False
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class Service:
    """A service."""

    name: str
    rpcs: list[Rpc] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    place: int = 0


@dataclass(slots=True)
class ProtoFile:
    """A .proto file. `syntax` is None when the text does not say it, which means proto2."""

    syntax: str | None = None
    package: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    weak_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    types: list[Message | EnumType] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)


def map_types(type_name: str) -> tuple[str, str] | None:
    """The types of key and value of `map<key, value>`, or None for another type."""
    if not type_name.startswith("map<"):
        return None
    key, _, value = type_name[4:-1].partition(",")
    return key.strip(), value.strip()
