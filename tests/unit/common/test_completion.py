"""A completion: done once, its callbacks at once, and what is made of its value."""

from __future__ import annotations

import pytest

from ottla.common.completion import Completion


def test_the_first_end_counts_and_callbacks_run_on_the_spot() -> None:
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


def test_what_is_made_of_the_value_comes_with_it() -> None:
    number: Completion[int] = Completion()
    text = number.then(str).then(lambda value: value + "!")
    assert not text.done
    number.complete(7)
    assert text.result() == "7!"
    assert Completion.of(8).then(str).result() == "8"


def test_errors_pass_through_and_those_of_the_making_count_too() -> None:
    made: list[int] = []
    failed: Completion[int] = Completion.failed(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        failed.then(made.append).result()
    assert made == []
    with pytest.raises(ZeroDivisionError):
        Completion.of(0).then(lambda value: 1 // value).result()


def test_a_mistake_of_who_waits_is_not_taken_for_one_of_the_making() -> None:
    number: Completion[int] = Completion()
    text = number.then(str)

    def mistaken(_: Completion[str]) -> None:
        raise ZeroDivisionError

    text.on_done(mistaken)
    with pytest.raises(ZeroDivisionError):
        number.complete(7)
    assert text.result() == "7"
