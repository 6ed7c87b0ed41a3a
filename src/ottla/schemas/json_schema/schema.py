"""A valid JSON Schema: its nodes with its canonical string."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

from ottla.schemas.json_schema.array_rules import arrays
from ottla.schemas.json_schema.comparison import (
    Rule,
    TooComplex,
    combinations,
    compare,
    consts,
    enums,
    negations,
    numbers,
    strings,
)
from ottla.schemas.json_schema.documents import Documents
from ottla.schemas.json_schema.loader import Loader
from ottla.schemas.json_schema.nodes import (
    ArrayNode,
    CombinedNode,
    ConstNode,
    EnumNode,
    Node,
    NotNode,
    NumberNode,
    ObjectNode,
    StringNode,
    canonical,
)
from ottla.schemas.json_schema.object_rules import is_pattern, objects
from ottla.schemas.json_schema.sentences import incompatibility
from ottla.schemas.json_text import dump, load
from ottla.schemas.model import Incompatibility, InvalidSchema

_RULES: Final[dict[type[Node], Rule]] = {
    StringNode: strings,
    NumberNode: numbers,
    EnumNode: enums,
    ConstNode: consts,
    NotNode: negations,
    CombinedNode: combinations,
    ObjectNode: objects,
    ArrayNode: arrays,
}


class JsonSchema:
    """A schema of type JSON. `root` is its node, in which references are resolved."""

    __slots__ = ("_normalized", "_value", "canonical", "root")

    def __init__(self, text: str, references: Mapping[str, str] | None = None, *, is_new: bool = True) -> None:
        """Parse a text; `references` has the texts of the schemas that it uses, directly or not, by URI.

        Raises InvalidSchema. `is_new=False` omits the comparison with the meta-schema.
        """
        self._value: Any = _load(text)
        documents = Documents(self._value, {name: _load(each) for name, each in (references or {}).items()})
        if is_new:
            _check(text, documents)
        loader = Loader(documents)
        self.root: Node = loader.load()
        for pattern in loader.patterns if is_new else ():
            if not is_pattern(pattern):
                raise InvalidSchema(f"{pattern[:200]!r} is not a regular expression")
        self.canonical: str = dump(self._value)
        self._normalized: str | None = None

    def normalized(self) -> str:
        """The canonical text with the keys of all objects in order."""
        if self._normalized is None:
            self._normalized = canonical(self._value)
        return self._normalized

    def incompatibilities(self, writer: JsonSchema) -> list[Incompatibility]:
        """The reasons why data that is valid for `writer` may be invalid for this schema."""
        try:
            found = compare(_RULES, writer.root, self.root)
        except TooComplex as error:
            return [Incompatibility("", "#/", f"Unexpected exception during compatibility check: {error}")]
        return [incompatibility(kind, path) for kind, path in found]


def _load(text: str) -> Any:
    value = load(text, exact=True)
    if not isinstance(value, (dict, bool)):
        raise InvalidSchema("Invalid JSON schema: expected an object or boolean at the root")
    return value


def _check(text: str, documents: Documents) -> None:
    """Compare the schema with the meta-schema of its draft."""
    value = json.loads(text)
    if isinstance(value, dict):
        value["$schema"] = documents.root.draft.uri
        try:
            jsonschema_rs.meta.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(str(step) for step in error.instance_path)
            raise InvalidSchema(f"{error.message[:500]} (at #/{place})") from None
