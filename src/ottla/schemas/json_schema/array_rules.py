"""The rule of arrays. As for objects, the content model decides what an item that only one schema has means."""

from __future__ import annotations

from ottla.schemas.json_schema.comparison import Comparison, limits
from ottla.schemas.json_schema.nodes import ArrayNode, Node
from ottla.schemas.json_schema.object_rules import additional, unevaluated


def arrays(comparison: Comparison, original: Node, update: Node) -> None:
    """Compare two arrays."""
    assert isinstance(original, ArrayNode)
    assert isinstance(update, ArrayNode)
    with comparison.at("items"):
        comparison.compare(original.all_items, update.all_items)
    _compare_first_items(comparison, original, update)
    additional(comparison, "ITEMS", original, update)
    unevaluated(comparison, "ITEMS", original.unevaluated, update.unevaluated)
    limits(comparison, "maxItems", "MAX_ITEMS", original.max_items, update.max_items)
    limits(comparison, "minItems", "MIN_ITEMS", original.min_items, update.min_items)
    if update.is_unique and not original.is_unique:
        comparison.add("UNIQUE_ITEMS_ADDED", "uniqueItems")
    limits(comparison, "maxContains", "MAX_CONTAINS", original.max_contains, update.max_contains)
    limits(comparison, "minContains", "MIN_CONTAINS", original.min_contains, update.min_contains)


def _compare_first_items(comparison: Comparison, original: ArrayNode, update: ArrayNode) -> None:
    both = min(len(original.items), len(update.items))
    for index in range(max(len(original.items), len(update.items))):
        with comparison.at(f"items/{index}"):
            if index < both:
                comparison.compare(original.items[index], update.items[index])
            elif index < len(original.items):
                _removed(comparison, original.items[index], update)
            else:
                _added(comparison, update.items[index], original)


def _removed(comparison: Comparison, node: Node, update: ArrayNode) -> None:
    if _is_open(update):
        return
    partial = _partial(update)
    if partial is None:
        if node.kind != "false":
            comparison.add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    elif not comparison.compare(node, partial):
        comparison.add("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _added(comparison: Comparison, node: Node, original: ArrayNode) -> None:
    if _is_open(original):
        if not node.accepts_all:
            comparison.add("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    partial = _partial(original)
    if partial is not None and not comparison.compare(partial, node):
        comparison.add("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _is_open(node: ArrayNode) -> bool:
    return node.permits_more and node.more is None and (node.unevaluated is None or node.unevaluated.accepts_all)


def _partial(node: ArrayNode) -> Node | None:
    """The schema that an item without a schema of its own has to fit; None if no item can fit."""
    if node.more is not None:
        return node.more
    if node.permits_more and node.unevaluated is not None and node.unevaluated.kind not in ("false", "empty", "true"):
        return node.unevaluated
    return None
