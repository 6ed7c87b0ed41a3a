"""Whether data of a writer's Avro schema can be read with a reader's: Apache Avro's SchemaCompatibility.

An incompatibility has the kind, the path and the details that Apache Avro 1.12 gives it; the sentences are Confluent's.
As there, names of types are compared without their namespaces, numbers can be promoted, and a pair of types is compared
once, so that recursive types end. In addition, the list of incompatibilities has a limit, since each use of a named
type repeats the incompatibilities of the type.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ottla.schemas.avro.types import PRIMITIVES, AvroField, AvroType
from ottla.schemas.model import Incompatibility

_MOST: Final = 1000
_MOST_PAIRS: Final = 200_000
_PROMOTIONS: Final = frozenset(
    {
        ("long", "int"),
        ("float", "int"),
        ("float", "long"),
        ("double", "int"),
        ("double", "long"),
        ("double", "float"),
        ("bytes", "string"),
        ("string", "bytes"),
    }
)
_Found = list[Incompatibility]
_NONE: Final[_Found] = []


class _Impossible(Exception):
    """The comparison cannot be made; Java's raises an exception there."""


def incompatibilities(reader: AvroType, writer: AvroType) -> _Found:
    """The reasons why `reader` cannot read data of `writer`."""
    try:
        return list(_Checker().compare(reader, writer))
    except _Impossible as error:
        return [Incompatibility("", "/", f"Unexpected exception during compatibility check: {error}")]


_Pair = tuple[AvroType, AvroType, str]
_Steps = Generator[_Pair, _Found, _Found]
"""A comparison in progress: it yields the pairs that it needs, with their paths, and receives what was found."""


class _Checker:
    """Compares pairs with a stack of its own: recursive types nest deeper than Python's functions can."""

    def __init__(self) -> None:
        self._compared: dict[tuple[int, int], _Found] = {}

    def compare(self, reader: AvroType, writer: AvroType) -> _Found:
        """Compare the roots."""
        found = self._known(reader, writer, "")
        if found is not None:
            return found
        stack = [self._start(reader, writer, "")]
        answer: _Found | None = None
        while True:
            key, steps = stack[-1]
            try:
                # The first value that a generator receives is None.
                pair = next(steps) if answer is None else steps.send(answer)
            except StopIteration as end:
                answer = self._compared[key] = end.value[:_MOST]
                stack.pop()
                if not stack:
                    return self._compared[key]
            else:
                stack.append(self._start(*pair))
                answer = None

    def _start(self, reader: AvroType, writer: AvroType, path: str) -> tuple[tuple[int, int], _Steps]:
        if len(self._compared) >= _MOST_PAIRS:
            raise _Impossible(f"the schemas have more than {_MOST_PAIRS} pairs of types to compare")
        key = (id(reader), id(writer))
        # Until the pair is compared, it counts as compatible: this ends the recursion.
        self._compared[key] = _NONE
        return key, self._compare(reader, writer, path)

    def _known(self, reader: AvroType, writer: AvroType, path: str) -> _Found | None:
        """The incompatibilities of primitive types and of pairs that were compared before."""
        pair = (reader.kind, writer.kind)
        # All schemas share the plain primitive types.
        if writer in reader.branches:
            return _NONE
        if pair[0] in PRIMITIVES and pair[1] in PRIMITIVES:
            return _NONE if pair[0] == pair[1] or pair in _PROMOTIONS else [_type_mismatch(reader, writer, path)]
        return self._compared.get((id(reader), id(writer)))

    def _find(self, reader: AvroType, writer: AvroType, path: str) -> _Steps:
        found = self._known(reader, writer, path)
        return (yield reader, writer, path) if found is None else found

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> _Steps:
        if reader.kind != writer.kind:
            return (yield from self._compare_kinds(reader, writer, path))
        if reader.kind == "record":
            return _check_names(reader, writer, path) + (yield from self._compare_fields(reader, writer, path))
        if reader.kind == "enum":
            return _check_names(reader, writer, path) + _check_symbols(reader, writer, path)
        if reader.kind == "fixed":
            return _check_names(reader, writer, path) + _check_sizes(reader, writer, path)
        if reader.kind == "union":
            found: _Found = []
            for index, branch in enumerate(writer.branches):
                if branch not in reader.branches and (yield from self._find(reader, branch, "")):
                    found.append(_missing_branch(branch, f"{path}/{index}"))
            return found
        assert reader.items is not None
        assert writer.items is not None
        below = "items" if reader.kind == "array" else "values"
        return (yield from self._find(reader.items, writer.items, f"{path}/{below}"))

    def _compare_kinds(self, reader: AvroType, writer: AvroType, path: str) -> _Steps:
        if writer.kind == "union":
            found: _Found = []
            for index, branch in enumerate(writer.branches):
                found += yield from self._find(reader, branch, f"{path}/{index}")
            return found
        if reader.kind == "union":
            for branch in reader.branches:
                if not (yield from self._find(branch, writer, "")):
                    return []
            return [_missing_branch(writer, path)]
        return [_type_mismatch(reader, writer, path)]

    def _compare_fields(self, reader: AvroType, writer: AvroType, path: str) -> _Steps:
        found: _Found = []
        written = {field.name: field for field in writer.fields or ()}
        for index, field in enumerate(reader.fields or ()):
            place = f"{path}/fields/{index}"
            source = _source(field, written)
            if source is not None:
                if field.type is not source.type:
                    found += yield from self._find(field.type, source.type, f"{place}/type")
            elif not field.has_default:
                if field.type.kind == "enum" and field.type.default_symbol is not None:
                    found += yield from self._find(field.type, writer, f"{place}/type")
                else:
                    found.append(_missing_default(field, place))
            if len(found) > _MOST:
                break
        return found


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    """The writer's field that is read into a field of the reader."""
    if not field.aliases:
        return written.get(field.name)
    matches = [written[name] for name in (field.name, *field.aliases) if name in written]
    if len(matches) > 1:
        raise _Impossible(f"Reader record field {field.name} matches multiple fields in writer record schema")
    return matches[0] if matches else None


def _check_names(reader: AvroType, writer: AvroType, path: str) -> _Found:
    if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
        return _NONE
    message = f"The name of the schema has changed (path '{path}/name')"
    return [Incompatibility("NAME_MISMATCH", f"{path}/name", message, f"expected: {writer.name}")]


def _check_symbols(reader: AvroType, writer: AvroType, path: str) -> _Found:
    missing = set(writer.symbols).difference(reader.symbols)
    if not missing or reader.default_symbol is not None:
        return _NONE
    symbols = f"[{', '.join(sorted(missing))}]"
    message = f"The reader schema is missing enum symbols '{symbols}' at path '{path}/symbols' in the writer schema"
    return [Incompatibility("MISSING_ENUM_SYMBOLS", f"{path}/symbols", message, symbols)]


def _check_sizes(reader: AvroType, writer: AvroType, path: str) -> _Found:
    if reader.size == writer.size:
        return _NONE
    message = (
        f"The size of FIXED type field at path '{path}/size' in the reader schema does not match with the writer schema"
    )
    details = f"expected: {writer.size}, found: {reader.size}"
    return [Incompatibility("FIXED_SIZE_MISMATCH", f"{path}/size", message, details)]


def _type_mismatch(reader: AvroType, writer: AvroType, path: str) -> Incompatibility:
    details = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    message = f"The type (path '{path or '/'}') of a field in the reader schema does not match with the writer schema"
    return Incompatibility("TYPE_MISMATCH", path or "/", message, details)


def _missing_branch(writer: AvroType, path: str) -> Incompatibility:
    details = f"reader union lacking writer type: {writer.kind.upper()}"
    message = f"The reader schema is missing a type inside a union field at path '{path or '/'}' in the writer schema"
    return Incompatibility("MISSING_UNION_BRANCH", path or "/", message, details)


def _missing_default(field: AvroField, path: str) -> Incompatibility:
    message = (
        f"The field '{field.name}' at path '{path}' in the reader schema has no default value and is missing in the "
        "writer schema"
    )
    return Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", path, message, field.name)
