"""Completion: completed once, callbacks run at once, and every derived completion gets a value or an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.completion import Completion, gather
from ottla.common.errors import ErrorCode, KafkaError
from tests.garbage import garbage_of


def test_first_result_counts_and_callbacks_run_at_once() -> None:
    seen: list[int] = []
    completion: Completion[int] = Completion()
    completion.on_done(lambda done: seen.append(done.result()))
    with pytest.raises(RuntimeError):
        completion.result()
    assert completion.complete(7)
    assert seen == [7]
    assert not completion.complete(8)
    assert not completion.fail(OSError())
    completion.on_done(lambda done: seen.append(done.result()))
    assert seen == [7, 7]


def test_then_completes_with_the_derived_value() -> None:
    number: Completion[int] = Completion()
    text = number.then(str).then(lambda value: value + "!")
    assert not text.done
    number.complete(7)
    assert text.result() == "7!"
    assert Completion.of(8).then(str).result() == "8"


def test_then_fails_with_the_original_error_or_its_functions_error() -> None:
    made: list[int] = []
    failed: Completion[int] = Completion.failed(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        failed.then(made.append).result()
    assert made == []
    with pytest.raises(ZeroDivisionError):
        Completion.of(0).then(lambda value: 1 // value).result()


def test_exception_of_a_callback_does_not_fail_the_derived_completion() -> None:
    number: Completion[int] = Completion()
    text = number.then(str)

    def mistaken(_: Completion[str]) -> None:
        raise ZeroDivisionError

    text.on_done(mistaken)
    with pytest.raises(ZeroDivisionError):
        number.complete(7)
    assert text.result() == "7"


def test_kafka_error_becomes_a_response() -> None:
    refused: Completion[str] = Completion.failed(KafkaError(ErrorCode.NOT_CONTROLLER))
    assert refused.otherwise(lambda error: error.code.name).result() == "NOT_CONTROLLER"
    assert Completion.of("value").otherwise(lambda error: error.code.name).result() == "value"


def test_unhandled_error_does_not_become_a_response() -> None:
    outcome: Completion[str] = Completion()
    response = outcome.otherwise(str)
    outcome.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        response.result()


def test_exception_while_a_response_is_made_fails_the_completion() -> None:
    refused: Completion[float] = Completion.failed(KafkaError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(ZeroDivisionError):
        refused.otherwise(lambda _: 1 / 0).result()


def test_complete_with_takes_the_value_or_the_exception_of_a_function() -> None:
    whole, failed = Completion[int](), Completion[int]()
    whole.complete_with(int, "7")
    failed.complete_with(int, "seven")
    assert whole.result() == 7
    assert isinstance(failed.error, ValueError)


def test_follow_copies_the_result_when_it_is_there() -> None:
    first: Completion[int] = Completion()
    second, third = Completion[int](), Completion[int]()
    second.follow(first)
    assert not second.done
    first.complete(7)
    assert second.result() == 7
    third.follow(Completion.failed(OSError("disk")))
    assert isinstance(third.error, OSError)


def test_gathered_results_keep_the_order_of_their_parts() -> None:
    parts: list[Completion[int]] = [Completion(), Completion()]
    whole = gather(parts, list)
    parts[1].complete(2)
    assert not whole.done
    parts[0].complete(1)
    assert whole.result() == [1, 2]
    no_parts: list[Completion[int]] = []
    assert gather(no_parts, list).result() == []


def test_failed_part_fails_the_gathered_completion() -> None:
    parts: list[Completion[int]] = [Completion(), Completion.of(2)]
    whole = gather(parts, list)
    parts[0].fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        whole.result()


def refuse() -> int:
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def take_result(done: Completion[int]) -> None:
    try:
        done.result()
    except KafkaError:
        return


def fail_before(completion: Completion[int]) -> None:
    completion.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    completion.on_done(take_result)


def fail_after(completion: Completion[int]) -> None:
    completion.on_done(take_result)
    completion.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


def fail_with_function(completion: Completion[int]) -> None:
    completion.then(lambda number: number + 1).on_done(take_result)
    completion.complete_with(refuse)


@pytest.mark.parametrize("story", [fail_before, fail_after, fail_with_function])
def test_failed_completions_are_freed_without_a_garbage_collection(story: Callable[[Completion[int]], None]) -> None:
    assert garbage_of(lambda: story(Completion()), "ottla.common", __name__) == []


def test_unexpected_error_keeps_its_traceback_for_the_log() -> None:
    completion: Completion[float] = Completion.of(0).then(lambda number: 1 / number)
    completion.on_done(lambda done: None)
    assert completion.error is not None
    assert completion.error.__traceback__ is not None
