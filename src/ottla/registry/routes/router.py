"""Finds the handler of a path in a tree of segments. The cost depends on the depth of the path only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.registry.routes.requests import Request

Handler: TypeAlias = Callable[[Request], "bytes | Awaitable[bytes | None] | None"]
"""Returns the body of the response; None is a response without a body (204)."""

VARIABLE: Final = "{}"


class Route(NamedTuple):
    """A method of a resource: `{}` in the path is any segment."""

    method: str
    path: str
    handler: Handler


class _Node:
    __slots__ = ("children", "methods", "variable")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.methods: dict[str, Handler] = {}


class Router:
    """The tree of all routes."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                if not segment:
                    continue
                node = self._child(node, segment)
            node.methods[route.method] = route.handler

    @staticmethod
    def _child(node: _Node, segment: str) -> _Node:
        if segment == VARIABLE:
            if node.variable is None:
                node.variable = _Node()
            return node.variable
        return node.children.setdefault(segment, _Node())

    def find(self, segments: list[str]) -> tuple[Mapping[str, Any], list[str]]:
        """Return the handlers of a path by method, none if there is no such path, and its variable segments."""
        node: _Node | None = self._root
        values: list[str] = []
        for segment in segments:
            if node is None:
                break
            child = node.children.get(segment)
            if child is None and node.variable is not None:
                values.append(segment)
                child = node.variable
            node = child
        return ({}, values) if node is None else (node.methods, values)

    def handlers(self) -> Iterator[Handler]:
        """Yield the handlers of all routes."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            yield from node.methods.values()
            waiting += node.children.values()
            waiting += [] if node.variable is None else [node.variable]
