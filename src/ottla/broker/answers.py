"""Answers made of what others answer: completions of outcomes become a completion of the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.frames import MAX_FRAME

MAX_ANSWER_BYTES = MAX_FRAME - 1024
"""What the four bytes of a frame's size can say, with room for its header."""

T = TypeVar("T")
R = TypeVar("R")


def answer(outcome: Completion[T], succeeded: Callable[[T], R], failed: Callable[[KafkaError], R]) -> Completion[R]:
    """The response made of the outcome, or of the KafkaError that it failed with. Any other error fails it."""
    response: Completion[R] = Completion()

    def finish(done: Completion[T]) -> None:
        try:
            try:
                made = succeeded(done.result())
            except KafkaError as error:
                made = failed(error)
        except Exception as error:  # noqa: BLE001 - not swallowed: the connection gets it and closes
            response.fail(error)
        else:
            response.complete(made)

    outcome.on_done(finish)
    return response


def check_answer_size(size: int) -> None:
    """Raise INVALID_REQUEST, which closes the connection, if the answer does not fit into a frame."""
    if size > MAX_ANSWER_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The answer would have more than {MAX_ANSWER_BYTES} bytes")


def same(response: R) -> R:
    """For an outcome that is the response already."""
    return response


def gather(parts: list[Completion[Any]], merge: Callable[[list[Any]], Any]) -> Completion[Any]:
    """Complete with `merge` of all results, in their order, when the last part is done; a part's error fails it."""
    whole: Completion[Any] = Completion()
    left = len(parts)
    if not left:
        whole.complete(merge([]))
        return whole

    def one_done(_part: Completion[Any]) -> None:
        nonlocal left
        left -= 1
        if left:
            return
        try:
            merged = merge([part.result() for part in parts])
        except Exception as error:  # noqa: BLE001 - not swallowed: the connection gets it and closes
            whole.fail(error)
        else:
            whole.complete(merged)

    for part in parts:
        part.on_done(one_done)
    return whole
