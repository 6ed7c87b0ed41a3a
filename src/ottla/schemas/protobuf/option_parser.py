"""Options of a .proto text: `[packed = true]`, `option java_package = "a";`, `(custom).field = {a: 1}`."""

from __future__ import annotations

from typing import Final

from ottla.schemas.protobuf.elements import Option, OptionKind, Primitive
from ottla.schemas.protobuf.tokens import Tokens

# Options of one extension are merged one by one, so that their number must have a limit.
MAX_OPTIONS: Final = 256
_UNQUOTED: Final = frozenset({OptionKind.BOOLEAN, OptionKind.ENUM, OptionKind.NUMBER})


def parse_options(tokens: Tokens) -> list[Option]:
    """The options in brackets; an empty list if there are no brackets."""
    if not tokens.skip("["):
        return []
    options = []
    while True:
        options.append(parse_option(tokens, "="))
        if len(options) > MAX_OPTIONS:
            tokens.error(f"an element has more than {MAX_OPTIONS} options")
        if tokens.skip("]"):
            return options
        if not tokens.skip(","):
            tokens.error("expected ',' or ']' after an option")


def parse_option(tokens: Tokens, separator: str) -> Option:
    """A name, the separator, and a value. In a map (separator `:`), a value in braces needs no separator."""
    first = tokens.peek()
    name = tokens.name()
    if first == "[":
        name = f"[{name}]"
    nested = _nested_names(tokens)
    if not (separator == ":" and tokens.peek() == "{"):
        tokens.require(separator)
    kind, value = _value(tokens)
    for each in reversed(nested):
        parenthesized = each.startswith("(")
        value = Option(each.strip("()"), kind, value, parenthesized)
        kind = OptionKind.OPTION
    return Option(name, kind, value, first == "(")


def _nested_names(tokens: Tokens) -> list[str]:
    """The names behind the first: `b` and `(c.d)` in `(a).b.(c.d)`. Parenthesized names keep their parentheses."""
    names: list[str] = []
    while tokens.peek().startswith("."):
        parts = tokens.next()[1:].split(".")
        if not parts[-1]:
            parts.pop()
            opening = tokens.peek()
            name = tokens.name()
            parts.append({"(": f"({name})", "[": f"[{name}]"}.get(opening, name))
        if not all(parts):
            tokens.error("expected a name between the dots of an option")
        names += parts
        if len(names) > 32:
            tokens.error("an option has more than 32 nested names")
    return names


def _value(tokens: Tokens) -> tuple[OptionKind, object]:
    if tokens.peek() == "{":
        return OptionKind.MAP, _map(tokens)
    if tokens.peek() == "[":
        return OptionKind.LIST, _list(tokens)
    if tokens.at_string():
        return OptionKind.STRING, tokens.string()
    word = tokens.word()
    if word[0].isdigit() or word[0] == "-":
        return OptionKind.NUMBER, word
    return OptionKind.BOOLEAN if word in {"true", "false"} else OptionKind.ENUM, word


def _map(tokens: Tokens) -> dict[str, object]:
    """The entries in braces. The values of a key that occurs again become a list."""
    tokens.require("{")
    tokens.enter()
    result: dict[str, object] = {}
    while not tokens.skip("}"):
        name, kind, value, _ = parse_option(tokens, ":")
        if isinstance(value, Option):
            nested = result.setdefault(name, {})
            if not isinstance(nested, dict):
                tokens.error(f"option {name} has a value and nested options")
            nested[value.name] = value.value
        else:
            _add(result, name, Primitive(kind, str(value)) if kind in _UNQUOTED else value)
        if not tokens.skip(","):
            tokens.skip(";")
    tokens.depth -= 1
    return result


def _add(result: dict[str, object], name: str, value: object) -> None:
    if name not in result:
        result[name] = value
        return
    previous = result[name]
    values = previous if isinstance(previous, list) else [previous]
    values.extend(value if isinstance(value, list) else [value])
    result[name] = values


def _list(tokens: Tokens) -> list[object]:
    tokens.require("[")
    tokens.enter()
    result: list[object] = []
    while not tokens.skip("]"):
        kind, value = _value(tokens)
        result.append(Primitive(kind, str(value)) if kind in _UNQUOTED else value)
        if not tokens.skip(",") and tokens.peek() != "]":
            tokens.error("expected ',' or ']' in a list")
    tokens.depth -= 1
    return result
