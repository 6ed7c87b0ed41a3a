"""The JSON objects in requests of v2, checked as Confluent's proxy checks them.

An unknown field or a missing value is 422, a value of the wrong type 400. Numbers may be given as text.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from ottla.common.ids import TopicPartition
from ottla.web.errors import HttpError

LONGEST_NUMBER: Final = 19


def unprocessable(message: str) -> HttpError:
    """Return the error of a request with the right types and wrong values."""
    return HttpError(422, 422, message)


def fields(given: Any, known: AbstractSet[str]) -> dict[str, Any]:
    """Return an object that has only known fields. Raises HttpError."""
    if not isinstance(given, dict):
        raise HttpError(400, 400, "The body must be an object.")
    unknown = given.keys() - known
    if unknown:
        raise unprocessable(f"Unrecognized field: {min(unknown)}")
    return given


def rows(given: dict[str, Any], name: str) -> list[Any]:
    """Return the array in a field. Raises HttpError."""
    found = given.get(name)
    if found is None:
        raise unprocessable(f"{name} may not be null")
    if not isinstance(found, list):
        raise HttpError(400, 400, f"{name} must be an array.")
    return found


def number(given: Any, name: str) -> int:
    """Return a number from 0 on. Raises HttpError."""
    if given is None:
        raise unprocessable(f"{name} may not be null")
    found = as_int(given, name)
    if found < 0:
        raise unprocessable(f"{name} must be greater than or equal to 0")
    return found


def as_int(given: Any, name: str) -> int:
    """Return a whole number, which may be text. Raises HttpError."""
    if isinstance(given, str):
        text = given.strip()
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_NUMBER:
            given = int(text)
    if type(given) is not int or not -(2**63) <= given < 2**63:
        raise HttpError(400, 400, f"{name} must be a whole number.")
    return given


def text(given: Any, name: str) -> str:
    """Return a text that is not empty. Raises HttpError."""
    if given is None or given == "":
        raise unprocessable(f"{name} may not be empty")
    if not isinstance(given, str):
        raise HttpError(400, 400, f"{name} must be a string.")
    return given


def partition(given: Any, known: AbstractSet[str] = frozenset({"topic", "partition"})) -> TopicPartition:
    """Return the partition that an object names. Raises HttpError."""
    found = fields(given, known)
    return TopicPartition(text(found.get("topic"), "topic"), number(found.get("partition"), "partition"))


def partitions(given: Any) -> list[TopicPartition]:
    """Return the partitions of a body {"partitions": [...]}. Raises HttpError."""
    return [partition(row) for row in rows(fields(given, {"partitions"}), "partitions")]
