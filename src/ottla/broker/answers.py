"""Answering once the controller has: a completion of its outcome becomes a completion of the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError

T = TypeVar("T")
R = TypeVar("R")


def answer(outcome: Completion[T], succeeded: Callable[[T], R], failed: Callable[[KafkaError], R]) -> Completion[R]:
    """The response made of the outcome, or of the KafkaError that it failed with."""
    response: Completion[R] = Completion()

    def finish(done: Completion[T]) -> None:
        try:
            made = succeeded(done.result())
        except KafkaError as error:
            made = failed(error)
        response.complete(made)

    outcome.on_done(finish)
    return response


def same(response: R) -> R:
    """For an outcome that is the response already."""
    return response
