"""The rule of objects. The content model decides what a property that only one schema has means.

An open model permits any other property, a closed one none, a partially open one those that fit a schema: of a pattern,
of additional or of unevaluated properties. The kinds of differences are Confluent's.
"""

from __future__ import annotations

from functools import lru_cache

import jsonschema_rs

from ottla.schemas.json_schema.comparison import Comparison, limits
from ottla.schemas.json_schema.nodes import ArrayNode, Node, ObjectNode


def objects(comparison: Comparison, original: Node, update: Node) -> None:
    """Compare two objects."""
    assert isinstance(original, ObjectNode)
    assert isinstance(update, ObjectNode)
    _compare_required(comparison, original, update)
    for name, node in original.properties.items():
        with comparison.at("properties", name):
            if name in update.properties:
                comparison.compare(node, update.properties[name])
            else:
                _removed(comparison, name, node, update)
    for name, node in update.properties.items():
        if name not in original.properties:
            with comparison.at("properties", name):
                _added(comparison, name, node, original, is_required=name in update.required)
    _compare_dependencies(comparison, original, update)
    additional(comparison, "PROPERTIES", original, update)
    unevaluated(comparison, "PROPERTIES", original.unevaluated, update.unevaluated)
    limits(comparison, "maxProperties", "MAX_PROPERTIES", original.max_properties, update.max_properties)
    limits(comparison, "minProperties", "MIN_PROPERTIES", original.min_properties, update.min_properties)


def _compare_required(comparison: Comparison, original: ObjectNode, update: ObjectNode) -> None:
    for name in original.properties:
        node = update.properties.get(name)
        if node is not None and name in update.required and name not in original.required and not node.has_default:
            comparison.add("REQUIRED_ATTRIBUTE_ADDED", "required", name)


def _removed(comparison: Comparison, name: str, node: Node, update: ObjectNode) -> None:
    if _is_open(update):
        return
    partial = _partial(update, name)
    if partial is None:
        if node.kind != "false":
            comparison.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    elif not comparison.compare(node, partial):
        comparison.add("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _added(comparison: Comparison, name: str, node: Node, original: ObjectNode, *, is_required: bool) -> None:
    if _is_open(original):
        if node.accepts_all:
            return
        if not is_required:
            comparison.add("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
        elif node.has_default:
            comparison.add("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL")
        else:
            comparison.add("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    partial = _partial(original, name)
    if partial is not None and not comparison.compare(partial, node):
        comparison.add("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    if is_required and not node.has_default:
        comparison.add("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL")


def _is_open(node: ObjectNode) -> bool:
    """Whether any additional property is permitted."""
    if not node.permits_more or node.more is not None or node.patterns:
        return False
    return node.unevaluated is None or node.unevaluated.accepts_all


def _partial(node: ObjectNode, name: str) -> Node | None:
    """The schema that a property without a schema of its own has to fit; None if none is needed or none can fit."""
    for pattern, each in node.patterns:
        if _matches(pattern, name):
            return each
    if node.more is not None:
        return node.more
    if node.permits_more and node.unevaluated is not None and node.unevaluated.kind not in ("false", "empty", "true"):
        return node.unevaluated
    return None


def _matches(pattern: str, name: str) -> bool:
    validator = _pattern(pattern)
    return validator is not None and validator.is_valid(name)


@lru_cache(maxsize=1000)
def _pattern(pattern: str) -> jsonschema_rs.Validator | None:
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern})
    except ValueError:
        return None


def is_pattern(pattern: str) -> bool:
    """Whether a text is a regular expression."""
    return _pattern(pattern) is not None


def _compare_dependencies(comparison: Comparison, original: ObjectNode, update: ObjectNode) -> None:
    for name, needed in update.property_dependencies.items():
        known = original.property_dependencies.get(name)
        if known is None:
            comparison.add("DEPENDENCY_ARRAY_ADDED", "dependencies", name)
        elif not needed <= known:
            kind = "DEPENDENCY_ARRAY_EXTENDED" if needed > known else "DEPENDENCY_ARRAY_CHANGED"
            comparison.add(kind, "dependencies", name)
    for name, node in update.schema_dependencies.items():
        if name not in original.schema_dependencies:
            comparison.add("DEPENDENCY_SCHEMA_ADDED", "dependencies", name)
        else:
            with comparison.at("dependencies", name):
                comparison.compare(original.schema_dependencies[name], node)


def additional(
    comparison: Comparison, what: str, original: ObjectNode | ArrayNode, update: ObjectNode | ArrayNode
) -> None:
    """Compare `additionalProperties` or `additionalItems`; `what` is PROPERTIES or ITEMS."""
    with comparison.at(f"additional{what.capitalize()}"):
        if original.permits_more != update.permits_more:
            if original.permits_more:
                comparison.add(f"ADDITIONAL_{what}_REMOVED")
        elif original.more is None and update.more is not None:
            comparison.add(f"ADDITIONAL_{what}_NARROWED")
        else:
            comparison.compare(original.more, update.more)


def unevaluated(comparison: Comparison, what: str, original: Node | None, update: Node | None) -> None:
    """Compare `unevaluatedProperties` or `unevaluatedItems`; `what` is PROPERTIES or ITEMS."""
    if update is None:
        return
    with comparison.at(f"unevaluated{what.capitalize()}"):
        if update.kind == "false" and (original is None or original.kind != "false"):
            comparison.add(f"UNEVALUATED_{what}_REMOVED")
        elif original is None or (original.accepts_all and not update.accepts_all):
            comparison.add(f"UNEVALUATED_{what}_NARROWED")
        elif original.kind != "false" and not update.accepts_all:
            comparison.compare(original, update)
