"""Classes made by `value` and `state` behave like dataclasses with slots."""

from __future__ import annotations

import copy
import pickle
import time
from dataclasses import asdict, fields, is_dataclass, replace
from typing import ClassVar, Generic, TypeVar

import pytest

from ottla.common.values import state, value

T = TypeVar("T")


@value
class Point:
    """A place."""

    kind: ClassVar = "point"
    x: int
    y: int = 0
    label: str = "here"

    @property
    def total(self) -> int:
        return self.x + self.y


@value
class Other:
    x: int
    y: int = 0
    label: str = "here"


@value
class Empty:
    """Nothing."""


@value
class Box(Generic[T]):
    content: T


@state
class Counter:
    count: int = 0


def test_fields_have_defaults_and_can_be_passed_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(1).label) == (1, 0, "here")
    point = Point(label="there", x=1, y=2)
    assert (point.x, point.y, point.label, point.total, point.kind) == (1, 2, "there", 3, "point")
    assert Box(1).content == 1
    assert Point.__doc__ == "A place."


def test_wrong_arguments_are_a_type_error_that_names_the_class() -> None:
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_equal_fields_of_the_same_class_are_equal() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(1, 3)
    assert Point(1) != Other(1)
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert len({Point(1), Point(1), Other(1), Empty(), Empty()}) == 3
    assert Empty() == Empty()
    assert Box([1]) == Box([1])


def test_states_change_and_have_no_hash() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_instances_have_only_their_fields() -> None:
    with pytest.raises(AttributeError):
        Counter().other = 1  # type: ignore[attr-defined]
    assert not hasattr(Point(1), "__dict__")


def test_repr_shows_the_fields() -> None:
    assert repr(Point(1, label="a")) == "Point(x=1, y=0, label='a')"
    assert repr(Empty()) == "Empty()"


def test_patterns_match_fields_in_order() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_copies_and_replacements_are_equal() -> None:
    point = Point(1, 2, "a")
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert replace(point, y=3) == Point(1, 3, "a")
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        replace(point, z=1)
    assert asdict(point) == {"x": 1, "y": 2, "label": "a"}
    assert [(each.name, each.type) for each in fields(point)] == [("x", "int"), ("y", "int"), ("label", "str")]
    assert is_dataclass(Empty)


def test_a_class_costs_little() -> None:
    """A dataclass takes 0.4 ms, and the start of a broker defines about a hundred."""

    def define() -> None:
        @value
        class Defined:
            a: int
            b: int
            c: int = 0

    started = time.thread_time()
    for _ in range(100):
        define()
    assert time.thread_time() - started < 0.02
