"""Answers made of others: every one is done in the end, with a response or an error."""

from __future__ import annotations

import pytest

from ottla.broker.answers import answer, gather
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError


def test_what_was_refused_is_answered_with_its_code() -> None:
    refused: Completion[int] = Completion.failed(KafkaError(ErrorCode.NOT_CONTROLLER))
    assert answer(refused, str, lambda error: error.code.name).result() == "NOT_CONTROLLER"


def test_an_outcome_that_is_a_mistake_fails_the_answer() -> None:
    outcome: Completion[int] = Completion()
    response = answer(outcome, str, str)
    outcome.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        response.result()


def test_a_response_that_cannot_be_made_fails_the_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        answer(Completion.of(0), lambda value: 1 // value, str).result()


def test_parts_are_merged_in_their_order() -> None:
    parts: list[Completion[int]] = [Completion(), Completion()]
    whole = gather(parts, list)
    parts[1].complete(2)
    assert not whole.done
    parts[0].complete(1)
    assert whole.result() == [1, 2]


def test_a_part_that_fails_fails_the_whole() -> None:
    parts: list[Completion[int]] = [Completion(), Completion.of(2)]
    whole = gather(parts, list)
    parts[0].fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        whole.result()
