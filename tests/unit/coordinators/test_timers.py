"""Timers elapse in the order of their deadlines, however often the deadlines move."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators import timers as timers_module
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


@pytest.mark.parametrize("rebuilt_from", [0, 64])
@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=60))
def test_timers_agree_with_a_dictionary_of_deadlines(rebuilt_from: int, steps: list[tuple[int, int | None]]) -> None:
    with patch.object(timers_module, "_REBUILT_FROM", rebuilt_from):
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


def test_cancelled_timers_do_not_stay_until_their_time() -> None:
    """A member that joins and leaves would take memory for minutes, an expired transactional id for a week."""
    timers: Timers[str] = Timers()
    timers.set("stays", 50_000)
    timers.set("stays", 60_000)
    for number in range(10_000):
        timers.set(f"member-{number}", 100_000 + number)
        timers.cancel(f"member-{number}")
    assert len(timers._heap) < 100
    assert len(timers._queued) < 100
    assert timers.pop_due(59_999) is None
    assert timers.pop_due(60_000) == "stays"
    assert timers.next_ms() is None
