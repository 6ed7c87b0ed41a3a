"""The canonical string of a .proto file, as Confluent's registry writes it.

The identity of a schema depends on it, so each blank line counts: a block ("reserved", fields, oneofs, ...) begins with
a line break, which after the opening brace ends the line and elsewhere makes an empty line. Messages come before enums.
Comments, weak imports and stray semicolons are omitted. Nested lines get two spaces, also the empty ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.schemas.protobuf.elements import (
    MAX_FIELD_NUMBER,
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
    Primitive,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
)

_ESCAPED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        "'": "\\'",
        '"': '\\"',
    }
)
_NUMERIC: Final = SCALARS - {"bool", "string"}


def write_file(file: ProtoFile) -> str:
    """The canonical string."""
    lines: list[str] = []
    if file.syntax is not None:
        lines.append(f'syntax = "{file.syntax}";')
    if file.package is not None:
        lines.append(f"package {file.package};")
    imports = [f'import "{each}";' for each in file.imports]
    imports += [f'import public "{each}";' for each in file.public_imports]
    blocks = [
        imports,
        _statements(file.options),
        _types(file.types),
        _flat(_extend(each) for each in file.extends),
        _flat(_service(each) for each in file.services),
    ]
    for block in blocks:
        if block:
            lines += ["", *block]
    return "".join(f"{line}\n" for line in lines)


def _flat(blocks: Iterable[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _block(head: str, blocks: Iterable[list[str]]) -> list[str]:
    """A declaration in braces. Its first block follows the brace, an empty line separates the other blocks."""
    lines = [head]
    for block in blocks:
        if block:
            if len(lines) > 1:
                lines.append("")
            lines += [f"  {line}" for line in block]
    if len(lines) == 1:
        return [f"{head}}}"]
    # Empty lines between blocks are not indented at this level; an enclosing declaration indents them.
    return [*lines, "}"]


def _types(types: Sequence[Message | EnumType]) -> list[str]:
    messages = [_message(each) for each in types if isinstance(each, Message)]
    return _flat(messages + [_enum(each) for each in types if isinstance(each, EnumType)])


def _message(message: Message) -> list[str]:
    return _block(
        f"message {message.name} {{",
        [
            _flat(_reserved(each) for each in message.reserved),
            _statements(message.options),
            _fields(message.fields),
            _flat(_oneof(each) for each in message.oneofs),
            _flat(_group(each) for each in message.groups),
            _flat(_extensions(each) for each in message.extensions),
            _flat(_extend(each) for each in message.extends),
            _types(message.types),
        ],
    )


def _enum(enum: EnumType) -> list[str]:
    lines = _flat(_reserved(each) for each in enum.reserved) + _statements(enum.options)
    return _block(f"enum {enum.name} {{", [lines + _flat(_constant(each) for each in enum.constants)])


def _constant(constant: EnumConstant) -> list[str]:
    return _with_options(f"{constant.name} = {constant.number}", constant.options)


def _oneof(oneof: OneOf) -> list[str]:
    groups = _flat(_group(each) for each in oneof.groups)
    return _block(f"oneof {oneof.name} {{", [_statements(oneof.options), _fields(oneof.fields), groups])


def _group(group: Group) -> list[str]:
    label = f"{group.label} " if group.label else ""
    return _block(f"{label}group {group.name} = {group.number} {{", [_fields(group.fields)])


def _extend(extend: Extend) -> list[str]:
    return _block(f"extend {extend.name} {{", [_fields(extend.fields)])


def _service(service: Service) -> list[str]:
    rpcs = _flat(_rpc(each) for each in service.rpcs)
    return _block(f"service {service.name} {{", [_statements(service.options), rpcs])


def _rpc(rpc: Rpc) -> list[str]:
    request = f"stream {rpc.request}" if rpc.request_streaming else rpc.request
    response = f"stream {rpc.response}" if rpc.response_streaming else rpc.response
    head = f"rpc {rpc.name} ({request}) returns ({response})"
    if not rpc.options:
        return [f"{head};"]
    return [f"{head} {{", *(f"  {line}" for line in _statements(rpc.options)), "};"]


def _fields(fields: Iterable[Field]) -> list[str]:
    return _flat(_field(each) for each in fields)


def _field(field: Field) -> list[str]:
    label = f"{field.label} " if field.label else ""
    options = field.options
    if field.default is not None:
        options = [*options, Option("default", default_kind(field.type), field.default)]
    if field.json_name is not None:
        options = [*options, Option("json_name", OptionKind.STRING, field.json_name)]
    return _with_options(f"{label}{field.type} {field.name} = {field.number}", options)


def default_kind(type_name: str) -> OptionKind:
    """Confluent writes a default without quotes unless the type is string, also one of bytes."""
    simple = type_name.rpartition(".")[2]
    if simple == "bool":
        return OptionKind.BOOLEAN
    if simple == "string":
        return OptionKind.STRING
    return OptionKind.NUMBER if simple in _NUMERIC else OptionKind.ENUM


def _reserved(reserved: Reserved) -> list[str]:
    values = (f'"{each}"' if isinstance(each, str) else _numbers(each) for each in reserved.values)
    return f"reserved {', '.join(values)};".split("\n")


def _extensions(extensions: Extensions) -> list[str]:
    return _with_options(f"extensions {', '.join(map(_numbers, extensions.values))}", extensions.options)


def _numbers(numbers: int | Range) -> str:
    if isinstance(numbers, int):
        return str(numbers)
    return f"{numbers.first} to {numbers.last if numbers.last < MAX_FIELD_NUMBER else 'max'}"


def _with_options(statement: str, options: Sequence[Option]) -> list[str]:
    if not options:
        return [f"{statement};"]
    return f"{statement} {_list(options)};".split("\n")


def _statements(options: Iterable[Option]) -> list[str]:
    return _flat(f"option {_option(each)};".split("\n") for each in options)


def _option(option: Option) -> str:
    name = f"({option.name})" if option.parenthesized else option.name
    value = option.value
    if isinstance(value, Option):
        return f"{name}.{_option(value)}"
    if isinstance(value, list):
        return f"{name} = {_list(value)}"
    return f"{name} = {_value(value if option.kind in _QUOTED else Primitive(option.kind, str(value)))}"


_QUOTED: Final = frozenset({OptionKind.STRING, OptionKind.MAP})


def _value(value: object) -> str:
    match value:
        case str():
            return f'"{value.translate(_ESCAPED)}"'
        case Primitive():
            return value.text
        case Option():
            return _option(value)
        case dict():
            entries = [f"{key}: {_value(each)}" for key, each in value.items()]
            return f"{{\n{_indented(entries)}}}"
        case list():
            return f"[\n{_indented([_value(each) for each in value])}]"
        case _:
            return str(value)


def _list(values: Sequence[object]) -> str:
    """The value of an option that is a list, or a list of options: one element stays on the line."""
    if len(values) == 1:
        return f"[{_value(values[0])}]"
    return f"[\n{_indented([_value(each) for each in values])}]"


def _indented(entries: Sequence[str]) -> str:
    lines = ",\n".join(entries).split("\n") if entries else []
    return "".join(f"  {line}\n" for line in lines)
