"""Frozen values behave as frozen dataclasses with slots do, and are declared in a fraction of the time."""

from __future__ import annotations

import copy
import inspect
import pickle
import time
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from ottla.common.frozen import frozen, replace

T = TypeVar("T")


@frozen
class Point:
    """A place."""

    x: int
    y: int = 0
    LIMIT: ClassVar[int] = 7

    @property
    def total(self) -> int:
        return self.x + self.y


@frozen
class Other:
    x: int
    y: int = 0


@frozen
class Nothing:
    """No fields at all."""


@frozen
class Box(Generic[T]):
    inside: T


def test_equality_and_hash_are_of_class_and_fields() -> None:
    assert Point(1, 2) == Point(1, y=2)
    assert Point(1) != Point(1, 2)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert Nothing() == Nothing()
    assert len({Point(1, 2), Point(1, 2), Point(2, 1)}) == 2
    assert Nothing()  # unlike an empty tuple


def test_repr_defaults_and_methods_are_those_of_a_dataclass() -> None:
    assert repr(Point(1)) == "Point(x=1, y=0)"
    assert repr(Box("a")) == "Box(inside='a')"
    assert (Point(3, 4).total, Point.LIMIT, Point.__doc__) == (7, 7, "A place.")
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 0) -> None"
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_the_signature_is_there_before_the_first_value_is() -> None:
    @frozen
    class Fresh:
        a: int
        b: str = ""

    class Child(Fresh):
        """With the same fields."""

    assert str(inspect.signature(Child)) == "(a: 'int', b: 'str' = '') -> None"
    assert str(inspect.signature(Fresh)) == "(a: 'int', b: 'str' = '') -> None"
    assert (Child(1).b, Fresh(b="x", a=2)) == ("", Fresh(2, "x"))


@pytest.mark.parametrize(
    "change", [lambda p: setattr(p, "x", 2), lambda p: setattr(p, "z", 2), lambda p: delattr(p, "x")]
)
def test_nothing_can_be_changed(change: Any) -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match=r"Point\.. cannot be changed"):
        change(point)
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_values_can_be_copied_pickled_and_matched() -> None:
    point = Point(1, 2)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert point.__replace__(y=3) == replace(point, y=3) == Point(1, 3)  # type: ignore[attr-defined]
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_a_class_keeps_its_own_methods() -> None:
    @frozen
    class Loud:
        text: str

        def __repr__(self) -> str:
            return self.text.upper()

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loud) and other.text.lower() == self.text.lower()

    assert repr(Loud("a")) == "A"
    assert Loud("a") == Loud("A")
    assert hash(Loud("a")) == hash(Loud("a"))


def test_a_mapping_that_nobody_can_change_may_be_a_default() -> None:
    @frozen
    class Named:
        value: Mapping[str, int] = MappingProxyType({})

    assert Named().value == {}
    assert replace(Named(), value={"a": 1}).value == {"a": 1}


def test_what_only_a_dataclass_can_do_is_refused() -> None:
    with pytest.raises(TypeError, match="could change"):

        @frozen
        class _List:
            items: list[int] = []

    with pytest.raises(TypeError, match="or a field"):

        @frozen
        class _Field:
            items: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match="base class"):

        @frozen
        class _Child(Point):
            z: int

    with pytest.raises(SyntaxError, match="non-default"):

        @frozen
        class _Order:
            a: int = 0
            b: int


def test_it_is_declared_several_times_as_quickly() -> None:
    class Plain:
        """A class that is declared anew each time."""

        a: int
        b: str
        c: bytes = b""

    def cost_of(decorate: Any) -> float:
        times = []
        for _ in range(20):
            body = {k: v for k, v in Plain.__dict__.items() if k not in ("__dict__", "__weakref__")}
            cls = type("Plain", (), body)
            start = time.process_time()
            decorate(cls)
            times.append(time.process_time() - start)
        return min(times)

    assert cost_of(frozen) * 3 < cost_of(dataclass(frozen=True, slots=True))
