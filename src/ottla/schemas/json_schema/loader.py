"""From the JSON of a schema to nodes.

The keywords of a schema object are divided by type: strings, numbers, arrays and objects have a node each, and
`enum`, `const`, `not`, `allOf`, `anyOf`, `oneOf`, `if` make others. More than one is an `allOf`. The order of the nodes
is Confluent's. A keyword whose value has a wrong type is ignored; for new schemas the meta-schema excludes that.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from ottla.schemas.json_schema.documents import Documents, Draft, Place
from ottla.schemas.json_schema.nodes import (
    ArrayNode,
    CombinedNode,
    ConstNode,
    EnumNode,
    Node,
    NotNode,
    Number,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
    canonical,
)
from ottla.schemas.model import InvalidSchema

_STRING: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_NUMBER: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ARRAY: Final = frozenset(
    {"items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems", "unevaluatedItems"}
)
_OBJECT: Final = frozenset(
    {"properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties"}
    | {"additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"}
)
_NEWER: Final = frozenset({"prefixItems", "unevaluatedItems"}) | {
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
}
_ABSENT: Final = {
    Draft.DRAFT_4: _NEWER | {"contains", "propertyNames"},
    Draft.DRAFT_6: _NEWER,
    Draft.DRAFT_7: _NEWER,
    Draft.DRAFT_2019_09: frozenset({"prefixItems"}),
    Draft.DRAFT_2020_12: frozenset({"additionalItems"}),
}
"""Keywords that mean nothing in a draft."""
_CONDITION: Final = ("if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class Loader:
    """Loads the schemas of documents; each schema object becomes one node."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._nodes: dict[int, Node] = {}
        self._unresolved: list[tuple[ReferenceNode, str, str]] = []
        self.patterns: set[str] = set()
        """All regular expressions."""

    def load(self) -> Node:
        """The node of the first document, with all references resolved. Raises InvalidSchema."""
        root = self._node(self._documents.root)
        references = []
        while self._unresolved:
            node, reference, base = self._unresolved.pop()
            references.append(node)
            place = self._documents.find(reference, base)
            node.target = Node("meta-schema", place.base) if place.schema is None else self._node(place)
        _check_ends(references)
        return root

    def _node(self, place: Place) -> Node:
        schema = place.schema
        if isinstance(schema, bool):
            return Node("true" if schema else "false", schema)
        if not isinstance(schema, dict):
            raise InvalidSchema(f"{canonical(schema)[:200]} is not a schema: use an object, true or false")
        node = self._nodes.get(id(schema))
        if node is None:
            own = schema.get(place.draft.id_keyword)
            if isinstance(own, str) and place is not self._documents.root:
                place = place._replace(base=self._documents.base_of(place))
            node = self._nodes[id(schema)] = _Extraction(self, place).node()
        return node

    def child(self, schema: Any, place: Place) -> Node:
        """The node of a schema inside of another one."""
        return self._node(place._replace(schema=schema))

    def reference(self, schema: dict[str, Any], uri: str, base: str) -> ReferenceNode:
        """A node whose target is looked up later."""
        node = ReferenceNode("$ref", schema)
        self._unresolved.append((node, uri, base))
        return node


def _check_ends(references: list[ReferenceNode]) -> None:
    """Let each reference lead to a schema that is not a reference, directly. Raises InvalidSchema."""
    for node in references:
        chain: dict[int, ReferenceNode] = {}
        target: Node | None = node
        while isinstance(target, ReferenceNode):
            if id(target) in chain:
                raise InvalidSchema(f"$ref {canonical(node.source)[:200]} leads back to itself")
            chain[id(target)] = target
            target = target.target
        for each in chain.values():
            each.target = target


class _Extraction:
    """The nodes of one schema object."""

    def __init__(self, loader: Loader, place: Place) -> None:
        self._loader = loader
        self._place = place
        self._schema: dict[str, Any] = place.schema
        self._is_modern = place.draft >= Draft.DRAFT_2019_09
        self._left = set(self._schema)
        self._left -= _ABSENT[place.draft]

    def node(self) -> Node:
        parts = self._parts()
        if len(parts) == 1:
            return parts[0]
        return CombinedNode("allOf", self._schema, tuple(parts)) if parts else Node("empty", self._schema)

    def _parts(self) -> list[Node]:
        schema = self._schema
        parts: list[Node] = []
        for keyword in _REFERENCES if self._is_modern else _REFERENCES[:1]:
            if isinstance(schema.get(keyword), str):
                parts.append(self._loader.reference(schema, schema[keyword], self._place.base))
                if not self._is_modern:
                    return parts
        if isinstance(schema.get("enum"), list):
            parts.append(EnumNode("enum", schema, frozenset(map(canonical, schema["enum"]))))
        parts += [
            CombinedNode(keyword, schema[keyword], tuple(map(self._child, schema[keyword])))
            for keyword in ("allOf", "oneOf", "anyOf")
            if isinstance(schema.get(keyword), list)
        ]
        if "not" in schema:
            parts.append(NotNode("not", schema, self._child(schema["not"])))
        if "const" in schema and self._place.draft is not Draft.DRAFT_4:
            parts.append(ConstNode("const", schema, canonical(schema["const"])))
        if "type" in schema:
            parts.append(self._typed(schema["type"]))
        parts += self._untyped()
        return parts

    def _child(self, schema: Any) -> Node:
        return self._loader.child(schema, self._place)

    def _typed(self, given: Any) -> Node:
        if isinstance(given, list):
            return CombinedNode("anyOf", self._schema, tuple(self._of_type(each) for each in given))
        return self._of_type(given)

    def _of_type(self, name: Any) -> Node:
        if name == "string":
            return self._string()
        if name in ("number", "integer"):
            return self._number(is_integer=name == "integer")
        if name == "array":
            return self._array()
        if name == "object":
            return self._object()
        if name in ("boolean", "null"):
            return Node(name, self._schema)
        raise InvalidSchema(f"unknown type: {canonical(name)[:200]}")

    def _untyped(self) -> list[Node]:
        """Nodes of the keywords that no type has used."""
        parts: list[Node] = []
        if self._left & _ARRAY:
            parts.append(self._array())
        if self._left & _OBJECT:
            parts.append(self._object())
        if self._left & _NUMBER:
            parts.append(self._number(is_integer=False))
        if self._left & _STRING:
            parts.append(self._string())
        if self._place.draft >= Draft.DRAFT_7 and self._left.intersection(_CONDITION):
            for keyword in _CONDITION:
                if keyword in self._schema:
                    self._child(self._schema[keyword])
            parts.append(Node("if", self._schema))
        return parts

    def _string(self) -> StringNode:
        self._left -= _STRING
        pattern = self._schema.get("pattern")
        if isinstance(pattern, str):
            self._loader.patterns.add(pattern)
        else:
            pattern = None
        return StringNode("string", self._schema, self._limit("minLength"), self._limit("maxLength"), pattern)

    def _number(self, *, is_integer: bool) -> NumberNode:
        self._left -= _NUMBER
        names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        minimum, maximum, above, below, multiple_of = map(self._limit, names)
        return NumberNode("number", self._schema, minimum, maximum, above, below, multiple_of, is_integer)

    def _limit(self, keyword: str) -> Number | None:
        value = self._schema.get(keyword)
        return value if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else None

    def _array(self) -> ArrayNode:
        self._left -= _ARRAY
        schema = self._schema
        node = ArrayNode("array", schema)
        if self._place.draft is Draft.DRAFT_2020_12:
            first, more = schema.get("prefixItems", []), schema.get("items")
            all_items = more if not first and not isinstance(more, bool) else None
            more = more if all_items is None else None
        else:
            items = schema.get("items")
            first, all_items = (items, None) if isinstance(items, list) else ([], items)
            more = schema.get("additionalItems") if all_items is None else None
        node.items = tuple(map(self._child, first if isinstance(first, list) else []))
        if isinstance(all_items, (dict, bool)):
            node.all_items = self._child(all_items)
        if isinstance(more, bool):
            node.permits_more = more
        elif isinstance(more, dict):
            node.more = self._child(more)
        node.min_items, node.max_items = self._limit("minItems"), self._limit("maxItems")
        node.is_unique = schema.get("uniqueItems") is True
        node.min_contains, node.max_contains = self._limit("minContains"), self._limit("maxContains")
        if "contains" in schema and self._place.draft is not Draft.DRAFT_4:
            self._child(schema["contains"])
            if self._is_modern and node.min_contains is None:
                node.min_contains = 1
        elif self._is_modern:
            node.min_contains = node.max_contains = None
        if self._is_modern and "unevaluatedItems" in schema:
            node.unevaluated = self._child(schema["unevaluatedItems"])
        return node

    def _object(self) -> ObjectNode:
        self._left -= _OBJECT
        schema = self._schema
        node = ObjectNode("object", schema)
        node.properties = self._children("properties")
        required = schema.get("required")
        if isinstance(required, list):
            node.required = frozenset(each for each in required if isinstance(each, str))
        more = schema.get("additionalProperties")
        if isinstance(more, bool):
            node.permits_more = more
        elif isinstance(more, dict):
            node.more = self._child(more)
        node.patterns = tuple(self._children("patternProperties").items())
        self._loader.patterns.update(pattern for pattern, _ in node.patterns)
        node.min_properties, node.max_properties = self._limit("minProperties"), self._limit("maxProperties")
        if "propertyNames" in schema and self._place.draft is not Draft.DRAFT_4:
            self._child(schema["propertyNames"])
        self._read_dependencies(node)
        if self._is_modern and "unevaluatedProperties" in schema:
            node.unevaluated = self._child(schema["unevaluatedProperties"])
        return node

    def _children(self, keyword: str) -> dict[str, Node]:
        found = self._schema.get(keyword)
        return {key: self._child(each) for key, each in found.items()} if isinstance(found, dict) else {}

    def _read_dependencies(self, node: ObjectNode) -> None:
        keywords = ("dependentRequired", "dependentSchemas") if self._is_modern else ("dependencies",)
        for keyword in keywords:
            found = self._schema.get(keyword)
            for key, each in found.items() if isinstance(found, dict) else ():
                if isinstance(each, list):
                    node.property_dependencies[key] = frozenset(name for name in each if isinstance(name, str))
                else:
                    node.schema_dependencies[key] = self._child(each)
