"""How the result of a method derives from its plan's result: of one thing, or of several by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.clients.admin.core import Call, Outcome, Plan, several

T = TypeVar("T")


def optional(name: str, given: Iterable[T] | None) -> list[T] | None:
    return None if given is None else several(name, given)


def every(call: Call[Any, Any]) -> Plan[Any]:
    return (yield call).all()


def only(call: Call[Any, Any]) -> Plan[Any]:
    return (yield call).one()


def every_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).all()


def only_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).one()
