"""The base of requests whose response has one type, so that type checkers know it wherever the request is passed on."""

from __future__ import annotations

from typing import Generic, TypeVar

R = TypeVar("R")


class Request(Generic[R]):
    """A request that is answered by an R. It has no members."""

    __slots__ = ()
