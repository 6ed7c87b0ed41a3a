"""Timers elapse in the order of their deadlines, however often the deadlines move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.group.timer_keys import Kind
from ottla.coordinators.timers import Timers


def test_moved_deadline_elapses_only_at_its_new_time() -> None:
    timers = Timers()
    key = (Kind.SESSION, "g", "m")
    timers.set(key, 10)
    timers.set(key, 30)
    assert timers.pop_due(29) is None
    assert timers.next_ms() == 30
    timers.set(key, 20)
    assert timers.pop_due(20) == key
    assert timers.next_ms() is None


def test_cancelled_timer_never_elapses_and_can_be_set_again() -> None:
    timers = Timers()
    key = (Kind.JOIN, "g", "")
    timers.set(key, 10)
    timers.cancel(key)
    assert timers.next_ms() is None
    timers.set(key, 5)
    assert timers.pop_due(5) == key


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=60))
def test_timers_agree_with_a_dictionary_of_deadlines(steps: list[tuple[int, int | None]]) -> None:
    timers, model = Timers(), {}
    for number, deadline in steps:
        key = (Kind.SESSION, "g", str(number))
        if deadline is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, deadline)
            model[key] = deadline
        assert timers.next_ms() == min(model.values(), default=None)
    while model:
        first = min(model.values())
        assert timers.pop_due(first - 1) is None
        key = timers.pop_due(first)
        assert key is not None
        assert model.pop(key) == first
