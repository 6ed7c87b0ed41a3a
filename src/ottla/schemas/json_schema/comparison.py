"""The differences between two JSON Schemas that make a reader unable to read, by the rules of Confluent's SchemaDiff.

`compare(rules, original, update)` returns the kinds and paths of the changes that make `update` unable to read data of
`original`; compatible changes are not collected.

Schemas can be recursive, and alternatives are compared all with all. Therefore each pair of nodes is evaluated on its
own: a rule asks whether the pairs below are compatible, and a pair that is not evaluated yet counts as compatible. A
pair that turns out incompatible makes the pairs that asked for it be evaluated again, until nothing changes: the result
is the largest set of compatible pairs that is consistent. Then the differences are collected from the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Final

from ottla.schemas.json_schema.nodes import (
    CombinedNode,
    ConstNode,
    EnumNode,
    Node,
    NotNode,
    Number,
    NumberNode,
    ReferenceNode,
    StringNode,
)

Pair = tuple[int, int]
Path = tuple[str, ...]
Difference = tuple[str, Path]
"""A kind and a path."""
Rule = Callable[["Comparison", Node, Node], None]
_MOST: Final = 1000
_MOST_PAIRS: Final = 100_000
_MOST_QUESTIONS: Final = 2_000_000
_NO_PAIR: Final[Pair] = (0, 0)
"""The asker of the root pair."""


class TooComplex(Exception):
    """The comparison would take too long."""


class Comparison:
    """The pairs of a comparison. Rules call `compare`, `is_compatible` and `add`, with paths relative to their pair."""

    def __init__(self, rules: dict[type[Node], Rule]) -> None:
        self._rules = rules
        self._nodes: dict[Pair, tuple[Node, Node]] = {}
        self._found: dict[Pair, list[tuple[str | Pair, Path]]] = {}
        """The differences of each pair: kinds, and other pairs that are incompatible."""
        self._askers: dict[Pair, set[Pair]] = {}
        self._new: list[Pair] = []
        self._questions = 0
        self._pair = _NO_PAIR
        self._path: list[str] = []

    def add(self, kind: str, *more: str) -> None:
        """Record a difference here, or at a place below."""
        self._found[self._pair].append((kind, (*self._path, *more)))

    @contextmanager
    def at(self, *steps: str) -> Iterator[None]:
        """Add steps to the path."""
        self._path += steps
        yield
        del self._path[-len(steps) :]

    def compare(self, original: Node | None, update: Node | None) -> bool:
        """Whether a pair is compatible; if not, its differences are differences here. A missing schema accepts all."""
        if update is None:
            return True
        if original is None:
            self.add("SCHEMA_ADDED")
            return False
        if self.is_compatible(original, update):
            return True
        pair = id(_target(original)), id(_target(update))
        self._found[self._pair].append((pair, tuple(self._path)))
        return False

    def is_compatible(self, original: Node, update: Node) -> bool:
        """Whether a pair is compatible, as far as it is known."""
        self._questions += 1
        if self._questions > _MOST_QUESTIONS or len(self._nodes) > _MOST_PAIRS:
            raise TooComplex("the schemas have too many pairs of parts to compare")
        original, update = _target(original), _target(update)
        if original is update:
            return True
        pair = id(original), id(update)
        if pair not in self._nodes:
            self._nodes[pair] = original, update
            self._found[pair] = []
            self._askers[pair] = set()
            self._new.append(pair)
        self._askers[pair].add(self._pair)
        return not self._found[pair]

    def run(self, original: Node, update: Node) -> list[Difference]:
        """The differences of two schemas. Raises TooComplex."""
        self.is_compatible(original, update)
        again: set[Pair] = set()
        while self._new or again:
            # New pairs first: then most pairs are evaluated again only once.
            batch = [self._new.pop()] if self._new else list(again)
            again.difference_update(batch)
            for pair in batch:
                if self._evaluate(pair):
                    again |= self._askers[pair]
        root = id(_target(original)), id(_target(update))
        return self._collect(root) if self._found.get(root) else []

    def _evaluate(self, pair: Pair) -> bool:
        """Evaluate a pair; returns whether it has become incompatible."""
        if pair == _NO_PAIR:
            return False
        before = self._found[pair]
        self._pair, self._found[pair] = pair, []
        self._compare(*self._nodes[pair])
        return bool(self._found[pair]) and not before

    def _collect(self, root: Pair) -> list[Difference]:
        """The differences with their paths from the root, in order; a pair is not repeated below itself."""
        collected: list[Difference] = []
        waiting: list[tuple[str | Pair, Path, frozenset[Pair]]] = [(root, (), frozenset())]
        for _ in range(_MOST * 3):
            if not waiting or len(collected) >= _MOST:
                break
            what, path, above = waiting.pop()
            if isinstance(what, str):
                collected.append((what, path))
            elif what not in above:
                below = self._found[what]
                waiting += [(each, path + more, above | {what}) for each, more in reversed(below[:_MOST])]
        if not collected:
            raise TooComplex("the differences are nested too deeply")
        return collected

    def _compare(self, original: Node, update: Node) -> None:
        is_combined = isinstance(original, CombinedNode), isinstance(update, CombinedNode)
        if is_combined == (False, True) and self._is_among(original, update):
            return
        if is_combined == (True, False) and self._has(original, update):
            return
        if type(original) is not type(update) or (is_combined != (True, True) and original.kind != update.kind):
            if original.kind == "false" or update.accepts_all:
                return
            if not (original.is_connect_bytes and update.is_connect_bytes):
                self.add("TYPE_CHANGED")
            return
        rule = self._rules.get(type(original))
        if rule is not None:
            rule(self, original, update)

    def _is_among(self, original: Node, update: Node) -> bool:
        """Whether one of the alternatives of `update` reads `original`."""
        assert isinstance(update, CombinedNode)
        if len(update.parts) > 1 and update.kind == "allOf":
            return False
        return any(self.is_compatible(original, part) for part in update.parts)

    def _has(self, original: Node, update: Node) -> bool:
        """Whether one of the conditions of `original` is enough for `update`."""
        assert isinstance(original, CombinedNode)
        if len(original.parts) > 1 and original.kind != "allOf":
            return False
        return any(self.is_compatible(part, update) for part in original.parts)


def compare(rules: dict[type[Node], Rule], original: Node, update: Node) -> list[Difference]:
    """The differences that make `update` unable to read data of `original`. Raises TooComplex."""
    return Comparison(rules).run(original, update)


def _target(node: Node) -> Node:
    while isinstance(node, ReferenceNode):
        assert node.target is not None
        node = node.target
    return node


def limits(comparison: Comparison, keyword: str, kind: str, original: Number | None, update: Number | None) -> None:
    """Compare an upper (`MAX...`) or lower limit: a reader must not have a stricter one."""
    if update is None or original == update:
        return
    if original is None:
        comparison.add(f"{kind}_ADDED", keyword)
    elif "MAX" in kind and update < original:
        comparison.add(f"{kind}_DECREASED", keyword)
    elif "MIN" in kind and update > original:
        comparison.add(f"{kind}_INCREASED", keyword)


def strings(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of strings."""
    assert isinstance(original, StringNode)
    assert isinstance(update, StringNode)
    limits(comparison, "maxLength", "MAX_LENGTH", original.max_length, update.max_length)
    limits(comparison, "minLength", "MIN_LENGTH", original.min_length, update.min_length)
    if update.pattern is not None and original.pattern != update.pattern:
        comparison.add("PATTERN_ADDED" if original.pattern is None else "PATTERN_CHANGED", "pattern")


def numbers(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of numbers."""
    assert isinstance(original, NumberNode)
    assert isinstance(update, NumberNode)
    limits(comparison, "maximum", "MAXIMUM", original.maximum, update.maximum)
    limits(comparison, "minimum", "MINIMUM", original.minimum, update.minimum)
    exclusive = original.exclusive_maximum, update.exclusive_maximum
    limits(comparison, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", *exclusive)
    exclusive = original.exclusive_minimum, update.exclusive_minimum
    limits(comparison, "exclusiveMinimum", "EXCLUSIVE_MINIMUM", *exclusive)
    old, new = original.multiple_of, update.multiple_of
    if new is not None and old != new:
        if old is None:
            comparison.add("MULTIPLE_OF_ADDED", "multipleOf")
        elif _divides(old, new):
            comparison.add("MULTIPLE_OF_EXPANDED", "multipleOf")
        elif not _divides(new, old):
            comparison.add("MULTIPLE_OF_CHANGED", "multipleOf")
    if update.is_integer and not original.is_integer:
        comparison.add("TYPE_NARROWED")


def _divides(divisor: Number, value: Number) -> bool:
    """Whether a value is a multiple. Extreme numbers are not divided, which bounds the time."""
    if not divisor or _is_extreme(divisor) or _is_extreme(value):
        return False
    return (Fraction(value) / Fraction(divisor)).denominator == 1


def _is_extreme(value: Number) -> bool:
    _, digits, exponent = Decimal(value).as_tuple()
    return len(digits) > 1000 or not isinstance(exponent, int) or abs(exponent) > 1000


def enums(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of `enum`."""
    assert isinstance(original, EnumNode)
    assert isinstance(update, EnumNode)
    if not original.values <= update.values:
        comparison.add("ENUM_ARRAY_NARROWED" if update.values <= original.values else "ENUM_ARRAY_CHANGED", "enum")


def consts(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of `const`."""
    assert isinstance(original, ConstNode)
    assert isinstance(update, ConstNode)
    if original.value != update.value:
        comparison.add("ENUM_ARRAY_CHANGED", "const")


def negations(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of `not`: the writer must exclude all values that the reader excludes."""
    assert isinstance(original, NotNode)
    assert isinstance(update, NotNode)
    assert original.inner is not None
    assert update.inner is not None
    if not comparison.is_compatible(update.inner, original.inner):
        comparison.add("NOT_TYPE_EXTENDED", "not")


def combinations(comparison: Comparison, original: Node, update: Node) -> None:
    """The rule of `allOf`, `anyOf` and `oneOf`: each part of the smaller one needs a partner that is compatible."""
    assert isinstance(original, CombinedNode)
    assert isinstance(update, CombinedNode)
    if _is_other_combination(original, update):
        comparison.add("COMBINED_TYPE_CHANGED")
        return
    old = list({part.key: part for part in original.parts}.values())
    new = list({part.key: part for part in update.parts}.values())
    if len(old) < len(new) and update.kind == "allOf":
        comparison.add("PRODUCT_TYPE_EXTENDED")
    elif len(old) > len(new) and original.kind != "allOf":
        comparison.add("SUM_TYPE_NARROWED")
    edges = [
        [index for index, part in enumerate(new) if comparison.is_compatible(each, part)]
        for each in old
    ]  # fmt: skip
    if _largest_matching(edges) < min(len(old), len(new)):
        comparison.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")


def _is_other_combination(original: CombinedNode, update: CombinedNode) -> bool:
    is_single = len(original.parts) == 1, len(update.parts) == 1
    return not (
        original.kind == update.kind
        or update.kind == "anyOf"
        or all(is_single)
        or (is_single[0] and update.kind == "oneOf")
        or (is_single[1] and original.kind == "allOf")
    )


def _largest_matching(edges: list[list[int]]) -> int:
    """The size of the largest matching of a bipartite graph, by augmenting paths without recursion."""
    partner: dict[int, int] = {}
    for start in range(len(edges)):
        origin, end = _search(edges, partner, start)
        matched = {left: right for right, left in partner.items()}
        while end is not None:
            left = origin[end]
            partner[end], end = left, matched.get(left)
    return len(partner)


def _search(edges: list[list[int]], partner: dict[int, int], start: int) -> tuple[dict[int, int], int | None]:
    """Find a free node on the right side; returns from where each right node was reached, and the free node."""
    origin: dict[int, int] = {}
    waiting = [start]
    while waiting:
        left = waiting.pop()
        for right in edges[left]:
            if right in origin:
                continue
            origin[right] = left
            if right not in partner:
                return origin, right
            waiting.append(partner[right])
    return origin, None
