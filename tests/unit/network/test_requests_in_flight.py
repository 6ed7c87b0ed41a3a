"""Timeouts of the requests of one connection, on a loop whose clock the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from ottla.network.requests_in_flight import RequestInFlight, RequestsInFlight
from ottla.protocol.messages.produce import ProduceRequest


class Timer:
    def __init__(self, at_s: float, callback: Callable[..., None], *arguments: object) -> None:
        self.at_s = at_s
        self.callback = partial(callback, *arguments)
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The part of an event loop that the timeouts use."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, callback: Callable[..., None], *arguments: object) -> Timer:
        self.timers.append(Timer(at_s, callback, *arguments))
        return self.timers[-1]

    def pending(self) -> list[float]:
        return [timer.at_s for timer in self.timers if not timer.is_cancelled and timer.at_s > self.now_s]

    def advance(self, to_s: float) -> None:
        self.now_s = to_s
        for timer in list(self.timers):
            if not timer.is_cancelled and timer.at_s <= to_s:
                self.timers.remove(timer)
                timer.callback()


class Requests(RequestsInFlight):
    """Requests whose timeouts are in `late` when they have expired."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(cast("asyncio.AbstractEventLoop", clock))
        self.late: list[float] = []

    def send(self, correlation_id: int, timeout_s: float) -> None:
        completion: Any = None
        expires_s = self._loop.time() + timeout_s
        sent = RequestInFlight(ProduceRequest.API_KEY, 9, completion, expires_s, timeout_s)
        self.add(correlation_id, sent, lambda expired: self.late.extend(each.timeout_s for each in expired))


def test_request_without_a_response_expires_and_the_others_stay() -> None:
    clock = Clock()
    in_flight = Requests(clock)
    in_flight.send(1, 30)
    in_flight.send(2, 5)
    clock.advance(4.9)
    assert in_flight.late == []
    clock.advance(5)
    assert in_flight.late == [5]
    assert in_flight.take(2) is None
    assert len(in_flight) == 1
    clock.advance(30)
    assert in_flight.late == [5, 30]
    assert clock.pending() == []


def test_answered_request_does_not_move_the_timer_and_does_not_expire() -> None:
    clock = Clock()
    in_flight = Requests(clock)
    for number in range(100):
        clock.now_s = number / 10
        in_flight.send(number, 30)
        assert in_flight.take(number) is not None
    assert clock.pending() == [30]
    in_flight.send(100, 30)
    clock.advance(30)
    assert in_flight.late == []
    assert clock.pending() == [39.9]
    clock.advance(39.9)
    assert in_flight.late == [30]


def test_timer_that_fires_a_moment_early_expires_the_request() -> None:
    clock = Clock()
    in_flight = Requests(clock)
    in_flight.send(1, 0.1 + 0.2)  # more than 0.3
    clock.timers[0].at_s = 0.3
    clock.advance(0.3)
    assert in_flight.late == [0.1 + 0.2]


def test_lost_connection_takes_all_requests_in_their_order_and_cancels_the_timer() -> None:
    clock = Clock()
    in_flight = Requests(clock)
    for number in (7, 8, 9):
        in_flight.send(number, number)
    assert [taken.timeout_s for taken in in_flight.take_all()] == [7, 8, 9]
    assert len(in_flight) == 0
    assert clock.pending() == []
    clock.advance(100)
    assert in_flight.late == []
