"""Work in slices: it runs to its end, waits for completions, and sorts as `sorted` does."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common import slices
from ottla.common.completion import Completion
from ottla.common.slices import R, Slices, finish, result_of, sort_in_slices


def test_finish_returns_the_result_of_all_slices() -> None:
    done = []

    def work() -> Generator[None, None, str]:
        for number in range(3):
            done.append(number)
            yield
        return "result"

    assert finish(work()) == "result"
    assert done == [0, 1, 2]


def test_finish_raises_the_error_of_the_work() -> None:
    def work() -> Generator[None, None, None]:
        yield
        raise ValueError("in the second slice")

    with pytest.raises(ValueError, match="in the second slice"):
        finish(work())


def test_result_of_a_completion_that_is_done_does_not_wait() -> None:
    completion: Completion[int] = Completion()
    completion.complete(7)
    assert finish(result_of(completion)) == 7


def test_result_of_a_completion_yields_it_until_it_is_done() -> None:
    completion: Completion[int] = Completion()
    work = result_of(completion)
    assert next(work) is completion
    completion.complete(7)
    with pytest.raises(StopIteration) as ended:
        next(work)
    assert ended.value.value == 7


def test_result_of_a_failed_completion_raises_its_error() -> None:
    completion: Completion[int] = Completion()
    work = result_of(completion)
    assert next(work) is completion
    completion.fail(OSError("full"))
    with pytest.raises(OSError, match="full"):
        next(work)


@given(st.lists(st.text(max_size=3)), st.integers(1, 5))
def test_names_are_sorted_with_one_slice_for_each_part(names: list[str], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(slices, "_SORTED_AT_ONCE", at_once)
        parts: list[None] = []
        ordered = finish(counted(sort_in_slices(iter(names)), parts))
    assert list(ordered) == sorted(names)
    assert len(parts) == -(-len(names) // at_once)


def counted(work: Slices[R], parts: list[None]) -> Slices[R]:
    """Run the work, and collect what it yields."""
    while True:
        try:
            parts.append(next(work))
        except StopIteration as ended:
            result: R = ended.value
            return result
        yield
