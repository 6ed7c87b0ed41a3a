"""How serializers of asyncio clients wait for a registry: they raise `Deferred`, and the client repeats the call."""

from __future__ import annotations

from collections.abc import Callable


class Deferred(Exception):
    """The call needs a request. Call `resolve` in another thread, which blocks and does not raise, and call again."""

    def __init__(self, resolve: Callable[[], None]) -> None:
        super().__init__("The schema is not loaded yet")
        self.resolve = resolve


def bound(given: object, part: str, *, deferring: bool) -> object:
    """Return what `given` provides for a client: for its part of a record, and whether calls may raise Deferred."""
    bind = getattr(given, "for_client", None)
    return given if bind is None else bind(part, deferring=deferring)
