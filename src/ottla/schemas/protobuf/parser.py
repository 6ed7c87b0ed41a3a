"""From a .proto text to its elements: `parse_file`.

Confluent's registry has the same grammar: proto2 and proto3, but no editions, no `<` and `>` around messages in
options, and no space between a sign and its number. Names and types are only read here; `validation` checks them.
"""

from __future__ import annotations

from typing import Final

from ottla.schemas.protobuf.elements import (
    MAX_FIELD_NUMBER,
    EnumConstant,
    EnumType,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
)
from ottla.schemas.protobuf.option_parser import MAX_OPTIONS, parse_option, parse_options
from ottla.schemas.protobuf.tokens import MAX_DEPTH, Tokens

LABELS: Final = frozenset({"optional", "required", "repeated"})


def parse_file(text: str) -> ProtoFile:
    """The elements of a text. Raises InvalidSchema, with the line."""
    return _Parser(Tokens(text)).file()


class _Parser:
    """Reads declarations by recursive descent. A method begins behind the keyword of its declaration."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._file = ProtoFile()

    def file(self) -> ProtoFile:
        """The whole text."""
        tokens = self._tokens
        while tokens.peek():
            if not tokens.skip(";"):
                self._in_file(tokens.word())
        return self._file

    def _in_file(self, keyword: str) -> None:
        tokens, file = self._tokens, self._file
        match keyword:
            case "syntax":
                self._syntax()
            case "package":
                file.package = tokens.name()
                if file.package.count(".") >= MAX_DEPTH:
                    tokens.error(f"a package has more than {MAX_DEPTH} parts", tokens.position - 1)
                tokens.require(";")
            case "import":
                self._import()
            case "option":
                self._option(file.options)
            case "message":
                file.types.append(self._message())
            case "enum":
                file.types.append(self._enum())
            case "service":
                file.services.append(self._service())
            case "extend":
                file.extends.append(self._extend())
            case "edition":
                tokens.error("editions are not supported: declare proto2 or proto3", tokens.position - 1)
            case _:
                tokens.error(f"unexpected {keyword!r}", tokens.position - 1)

    def _syntax(self) -> None:
        tokens = self._tokens
        if tokens.position != 1:
            tokens.error("'syntax' must be the first declaration", tokens.position - 1)
        tokens.require("=")
        syntax = tokens.string()
        if syntax not in {"proto2", "proto3"}:
            tokens.error(f"unexpected syntax {syntax!r}: expected proto2 or proto3", tokens.position - 1)
        self._file.syntax = syntax
        tokens.require(";")

    def _import(self) -> None:
        tokens = self._tokens
        imports = self._file.imports
        if not tokens.at_string():
            match tokens.word():
                case "public":
                    imports = self._file.public_imports
                case "weak":
                    imports = self._file.weak_imports
                case _:
                    tokens.error("expected a quoted string, 'public' or 'weak'", tokens.position - 1)
        imports.append(_path(tokens.string()))
        tokens.require(";")

    def _option(self, options: list[Option]) -> None:
        """Add an `option` statement to the options of its element."""
        options.append(parse_option(self._tokens, "="))
        if len(options) > MAX_OPTIONS:
            self._tokens.error(f"an element has more than {MAX_OPTIONS} options")
        self._tokens.require(";")

    def _message(self) -> Message:
        tokens = self._tokens
        message = Message(tokens.name(), place=tokens.position - 1)
        tokens.enter()
        tokens.require("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                self._in_message(message, tokens.word())
        tokens.depth -= 1
        return message

    def _in_message(self, message: Message, word: str) -> None:
        match word:
            case "option":
                self._option(message.options)
            case "reserved":
                message.reserved.append(self._reserved())
            case "message":
                message.types.append(self._message())
            case "enum":
                message.types.append(self._enum())
            case "extend":
                message.extends.append(self._extend())
            case "oneof":
                message.oneofs.append(self._oneof())
            case "extensions":
                message.extensions.append(self._extensions())
            case _:
                field = self._field_or_group(word)
                if isinstance(field, Group):
                    message.groups.append(field)
                else:
                    message.fields.append(field)

    def _field_or_group(self, word: str) -> Field | Group:
        tokens = self._tokens
        place = tokens.position - 1
        label = None
        proto3 = self._file.syntax == "proto3"
        if word in LABELS:
            label = word
            if label == "required" and proto3:
                tokens.error("'required' is not permitted in proto3", place)
            word = tokens.word()
        elif not proto3 and not (word == "map" and tokens.peek() == "<"):
            tokens.error(f"unexpected {word!r}: a field of proto2 needs a label", place)
        type_name = self._type(word)
        if label is not None and type_name.startswith("map<"):
            tokens.error("a map field cannot have a label", place)
        return self._group(label) if type_name == "group" else self._field(label, type_name)

    def _type(self, word: str) -> str:
        """A type that begins with `word`: a name, or a map."""
        tokens = self._tokens
        if word == "map":
            tokens.enter()
            tokens.require("<")
            key = self._type(tokens.word())
            tokens.require(",")
            value = self._type(tokens.word())
            tokens.require(">")
            tokens.depth -= 1
            return f"map<{key}, {value}>"
        while tokens.peek().startswith("."):
            part = tokens.next()
            word += part if part != "." else f".{tokens.word()}"
        return word

    def _field(self, label: str | None, type_name: str) -> Field:
        tokens = self._tokens
        place = tokens.position
        name = tokens.name()
        if name[0].isdigit():
            tokens.error("the name of a field cannot begin with a digit", place)
        tokens.require("=")
        field = Field(label, type_name, name, tokens.integer(), place=place)
        for option in parse_options(tokens):
            if option.name == "default":
                field.default = _text(option)
            elif option.name == "json_name":
                field.json_name = _text(option)
            else:
                field.options.append(option)
        tokens.require(";")
        return field

    def _group(self, label: str | None) -> Group:
        tokens = self._tokens
        place = tokens.position
        name = tokens.word()
        tokens.require("=")
        group = Group(label, name, tokens.integer(), [], place)
        tokens.require("{")
        while not tokens.skip("}"):
            field = self._field_or_group(tokens.word())
            if isinstance(field, Group):
                tokens.error("a group cannot be inside of a group", field.place)
            group.fields.append(field)
        return group

    def _oneof(self) -> OneOf:
        tokens = self._tokens
        place = tokens.position
        oneof = OneOf(tokens.name(), [], place=place)
        tokens.require("{")
        while not tokens.skip("}"):
            word = self._type(tokens.word())
            if word == "group":
                oneof.groups.append(self._group(None))
            elif word == "option":
                self._option(oneof.options)
            else:
                oneof.fields.append(self._field(None, word))
        return oneof

    def _extend(self) -> Extend:
        tokens = self._tokens
        place = tokens.position
        extend = Extend(tokens.name(), [], place)
        tokens.require("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            field = self._field_or_group(tokens.word())
            if isinstance(field, Group):
                tokens.error("a group cannot be an extension", field.place)
            extend.fields.append(field)
        return extend

    def _reserved(self) -> Reserved:
        tokens = self._tokens
        reserved = Reserved([], tokens.position)
        while True:
            reserved.values.append(tokens.string() if tokens.at_string() else self._numbers())
            if tokens.skip(";"):
                return reserved
            tokens.require(",")

    def _extensions(self) -> Extensions:
        tokens = self._tokens
        extensions = Extensions([], place=tokens.position)
        while True:
            extensions.values.append(self._numbers())
            if tokens.peek() == "[":
                extensions.options = parse_options(tokens)
                tokens.require(";")
                return extensions
            if tokens.skip(";"):
                return extensions
            tokens.require(",")

    def _numbers(self) -> int | Range:
        """A number, `2 to 5`, or `7 to max`."""
        tokens = self._tokens
        first = tokens.integer()
        if not tokens.skip("to"):
            return first
        return Range(first, MAX_FIELD_NUMBER if tokens.skip("max") else tokens.integer())

    def _enum(self) -> EnumType:
        tokens = self._tokens
        enum = EnumType(tokens.name(), place=tokens.position - 1)
        tokens.require("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            place = tokens.position
            name = tokens.word()
            if name == "option":
                self._option(enum.options)
            elif name == "reserved":
                enum.reserved.append(self._reserved())
            else:
                if name[0].isdigit():
                    tokens.error("the name of an enum value cannot begin with a digit", place)
                tokens.require("=")
                enum.constants.append(EnumConstant(name, tokens.integer(), parse_options(tokens), place))
                tokens.require(";")
        return enum

    def _service(self) -> Service:
        tokens = self._tokens
        service = Service(tokens.name(), place=tokens.position - 1)
        tokens.require("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            match tokens.word():
                case "rpc":
                    service.rpcs.append(self._rpc())
                case "option":
                    self._option(service.options)
                case word:
                    tokens.error(f"unexpected {word!r} in a service", tokens.position - 1)
        return service

    def _rpc(self) -> Rpc:
        tokens = self._tokens
        place = tokens.position
        name = tokens.name()
        request_streaming, request = self._rpc_type()
        if not tokens.skip("returns"):
            tokens.error("expected 'returns'")
        response_streaming, response = self._rpc_type()
        rpc = Rpc(name, request, response, request_streaming, response_streaming, place=place)
        if tokens.skip("{"):
            while not tokens.skip("}"):
                if tokens.skip(";"):
                    continue
                if tokens.word() != "option":
                    tokens.error("a method has only options", tokens.position - 1)
                self._option(rpc.options)
        else:
            tokens.require(";")
        return rpc

    def _rpc_type(self) -> tuple[bool, str]:
        tokens = self._tokens
        tokens.require("(")
        word = tokens.word()
        streaming = word == "stream"
        name = self._type(tokens.word() if streaming else word)
        tokens.require(")")
        return streaming, name


def _path(text: str) -> str:
    """An import path without parts that are empty or a dot, as Confluent's registry 8 writes it."""
    parts = [each for each in text.replace("\\", "/").split("/") if each not in {"", "."}]
    return "/".join(["", *parts] if text.startswith("/") else parts)


def _text(option: Option) -> str:
    """The value of `default` and `json_name`, which are written as options."""
    return option.value if isinstance(option.value, str) else ""
