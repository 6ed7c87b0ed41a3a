"""The canonical string of an Avro schema: what `Schema.toString` of Java writes; and the normalized string.

The canonical string keeps documentation, aliases, defaults and unknown attributes, in Java's order of the keys. It
writes a named type at its first use and its name afterwards. The types of references are written as names.

Normalization drops what has no meaning: the order of aliases and attributes, an empty documentation, the difference
between `error` and `record`, and the form of numbers in defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.schemas.avro.defaults import normalized_default
from ottla.schemas.avro.types import MISSING, NAMED, PRIMITIVES, TYPE_NAMES, AvroField, AvroType
from ottla.schemas.json_text import dump, text_of
from ottla.schemas.model import InvalidSchema

_DEEPEST: Final = 100
"""Types that are used before their definition nest deeper in the output than in the input."""


def canonical_text(node: AvroType, referenced: Iterable[str], *, normalize: bool = False) -> str:
    """Write a type. `referenced` are the full names of types that a reference defines.

    Raises InvalidSchema for types that nest too deeply.
    """
    writer = _Writer(set(referenced), normalize)
    writer.write(node, "", 0)
    return "".join(writer.parts)


class _Writer:
    def __init__(self, known: set[str], normalize: bool) -> None:
        self.parts: list[str] = []
        self._known = known
        self._normalize = normalize

    def write(self, node: AvroType, space: str, depth: int) -> None:
        kind, parts = node.kind, self.parts
        if kind in PRIMITIVES and not node.attributes:
            parts.append(f'"{kind}"')
            return
        if depth > _DEEPEST:
            raise InvalidSchema(f"types are nested deeper than {_DEEPEST} levels")
        if kind in NAMED:
            self._write_named(node, space, depth)
        elif kind == "union":
            mark = "["
            for branch in node.branches:
                parts.append(mark)
                self.write(branch, space, depth + 1)
                mark = ","
            parts.append("]" if node.branches else "[]")
        elif node.items is not None:
            parts.append('{"type":"array","items":' if kind == "array" else '{"type":"map","values":')
            self.write(node.items, space, depth + 1)
            self._write_attributes(node)
            parts.append("}")
        else:
            parts.append(f'{{"type":"{kind}"')
            self._write_attributes(node)
            parts.append("}")

    def _write_named(self, node: AvroType, space: str, depth: int) -> None:
        if node.name in self._known:
            self.parts.append(f'"{qualified(node.name, space)}"')
            return
        self._known.add(node.name)
        kind = "error" if node.is_error and not self._normalize else node.kind
        head = f'{{"type":"{kind}","name":"{node.simple_name}"'
        if node.space != space:
            head += f',"namespace":{text_of(node.space)}'
        if node.doc is not None and not (self._normalize and not node.doc):
            head += f',"doc":{text_of(node.doc)}'
        self.parts.append(head)
        if node.kind == "record":
            mark = ',"fields":['
            for field in node.fields or ():
                self.parts.append(mark)
                self._write_field(field, node.space, depth)
                mark = ","
            self.parts.append("]" if node.fields else ',"fields":[]')
        elif node.kind == "enum":
            symbols = ",".join(f'"{symbol}"' for symbol in node.symbols)
            self.parts.append(f',"symbols":[{symbols}]')
            if node.default_symbol is not None:
                self.parts.append(f',"default":"{node.default_symbol}"')
        else:
            self.parts.append(f',"size":{node.size}')
        self._write_attributes(node)
        if node.aliases:
            aliases = sorted(set(node.aliases)) if self._normalize else dict.fromkeys(node.aliases)
            self._write_texts("aliases", (qualified(alias, node.space) for alias in aliases))
        self.parts.append("}")

    def _write_field(self, field: AvroField, space: str, depth: int) -> None:
        parts = self.parts
        parts.append(f'{{"name":"{field.name}","type":')
        self.write(field.type, space, depth + 1)
        if field.doc is not None:
            parts.append(f',"doc":{text_of(field.doc)}')
        if field.has_default:
            default = normalized_default(field.type, field.default) if self._normalize else field.default
            if default is not MISSING:
                parts.append(f',"default":{dump(default)}')
        if field.order != "ascending":
            parts.append(f',"order":"{field.order}"')
        if field.aliases:
            self._write_texts("aliases", sorted(field.aliases) if self._normalize else field.aliases)
        if field.attributes:
            for key, value in self._ordered(field.attributes):
                parts.append(f",{text_of(key)}:{dump(value)}")
        parts.append("}")

    def _write_texts(self, key: str, values: Iterable[str]) -> None:
        self.parts.append(f',"{key}":[{",".join(map(text_of, values))}]')

    def _write_attributes(self, node: AvroType) -> None:
        attributes = node.attributes
        if self._normalize and attributes and node.logical:
            first = {"logicalType": node.logical}
            if node.logical == "decimal":
                first |= {key: attributes[key] for key in ("precision", "scale") if attributes.get(key)}
            attributes = first | dict(self._ordered(attributes))
            for key, value in attributes.items():
                self.parts.append(f",{text_of(key)}:{dump(value)}")
            return
        for key, value in self._ordered(attributes):
            self.parts.append(f",{text_of(key)}:{dump(value)}")

    def _ordered(self, attributes: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        if not self._normalize:
            return attributes.items()
        return [(key, normalized_default(None, attributes[key])) for key in sorted(attributes)]


def qualified(name: str, space: str) -> str:
    """A full name as it is written inside a namespace: without it if it is the same and the rest is not a type."""
    own, _, simple = name.rpartition(".")
    return simple if own and own == space and simple not in TYPE_NAMES else name
