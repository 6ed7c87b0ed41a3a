"""Long work runs in slices, small work at once, and work for disconnected clients is cancelled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of, sort_in_slices
from ottla.common.work import ITERATION_MS, MOST_LARGE, SLICE_MS, Worker


class Loop:
    """An event loop whose time passes only while work runs."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ready: deque[Callable[[], None]] = deque()
        self.iterations = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def later(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def iterate(self) -> int:
        """Run one iteration; returns the milliseconds that it took."""
        began_ms = self.now_ms
        self.iterations += 1
        for _ in range(len(self.ready)):
            self.ready.popleft()()
        return self.now_ms - began_ms

    def run(self) -> None:
        while self.ready:
            assert self.iterations < 10_000
            self.iterate()


class Client:
    closed = False


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def worker(loop: Loop) -> Worker:
    return Worker(loop, loop.later)


def steps(loop: Loop, count: int, done: list[Any] | None = None, name: object = None) -> Slices[int]:
    """Steps of a millisecond each."""
    for _ in range(count):
        loop.now_ms += 1
        if done is not None:
            done.append(name)
        yield
    return count


def test_small_work_is_done_at_once(loop: Loop, worker: Worker) -> None:
    assert worker.run(steps(loop, SLICE_MS - 1)) == SLICE_MS - 1
    assert not worker.unfinished


def test_long_work_leaves_time_for_other_requests(loop: Loop, worker: Worker) -> None:
    answer = worker.run(steps(loop, 200))
    assert isinstance(answer, Completion)
    assert not answer.done
    assert loop.now_ms == SLICE_MS
    while not answer.done:
        assert loop.iterate() <= ITERATION_MS
    assert answer.result() == 200
    loop.run()
    assert not worker.unfinished


def test_long_tasks_run_round_robin(loop: Loop, worker: Worker) -> None:
    done: list[object] = []
    answers = [worker.run(steps(loop, 100, done, name)) for name in "abc"]
    loop.run()
    assert [answer.result() for answer in answers if isinstance(answer, Completion)] == [100] * 3
    assert max(len(run) for run in "".join(map(str, done)).replace("ab", "a b").replace("bc", "b c").split()) <= 100
    half = "".join(map(str, done[:150]))
    assert min(half.count(name) for name in "abc") > 150 / 3 - 2 * SLICE_MS, "no task is far ahead of the others"


def test_tasks_that_start_in_one_iteration_share_its_time(loop: Loop, worker: Worker) -> None:
    answers = [worker.run(steps(loop, 50)) for _ in range(100)]
    assert loop.now_ms <= ITERATION_MS + SLICE_MS
    longest_ms = 0
    while loop.ready:
        longest_ms = max(longest_ms, loop.iterate())
    assert longest_ms <= ITERATION_MS
    assert all(answer.result() == 50 for answer in answers if isinstance(answer, Completion))


def test_work_for_a_disconnected_client_is_cancelled(loop: Loop, worker: Worker) -> None:
    client, done = Client(), list[object]()
    worker.run(steps(loop, 1000, done), client, is_large=True)
    client.closed = True
    loop.run()
    assert len(done) == SLICE_MS
    assert not worker.unfinished
    assert worker.may_decode()


def test_work_waits_for_completions(loop: Loop, worker: Worker) -> None:
    ready: Completion[str] = Completion()
    answer = worker.run(result_of(ready))
    assert isinstance(answer, Completion)
    loop.run()
    assert not answer.done
    ready.complete("it")
    loop.run()
    assert answer.result() == "it"


def test_errors_reach_the_caller(loop: Loop, worker: Worker) -> None:
    def failing(after: int) -> Slices[None]:
        yield from steps(loop, after)
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    with pytest.raises(KafkaError):
        worker.run(failing(1))
    later = worker.run(failing(100))
    assert isinstance(later, Completion)
    loop.run()
    with pytest.raises(KafkaError):
        later.result()
    assert isinstance(worker.submit(failing(1)), Completion)


def test_number_of_decoded_large_requests_is_limited(loop: Loop, worker: Worker) -> None:
    decoded: list[int] = []
    unfinished = 0
    most = 0

    def large(number: int) -> Slices[int]:
        nonlocal unfinished, most
        decoded.append(number)
        unfinished += 1
        most = max(most, unfinished)
        yield from steps(loop, 30)
        unfinished -= 1
        return number

    answers = [worker.hold_back(large(number), Client()) for number in range(20)]
    assert not decoded
    loop.run()
    assert [answer.result() for answer in answers] == list(range(20))
    assert most == MOST_LARGE


def test_large_request_counts_until_its_response_is_complete(loop: Loop, worker: Worker) -> None:
    answers: list[Completion[None]] = [Completion() for _ in range(MOST_LARGE)]
    for answer in answers:
        worker.wait_for(answer)
    assert not worker.may_decode()
    held = worker.hold_back(steps(loop, 1), Client())
    loop.run()
    assert not held.done
    answers[0].complete(None)
    loop.run()
    assert held.done


def test_without_an_event_loop_all_work_finishes_at_once(loop: Loop) -> None:
    worker = Worker(loop)
    assert worker.run(steps(loop, 10_000)) == 10_000
    ready: Completion[str] = Completion()
    answer = worker.run(result_of(ready))
    ready.complete("it")
    assert isinstance(answer, Completion)
    assert answer.result() == "it"


def test_names_are_sorted_in_slices() -> None:
    names = [f"{number * 7919 % 20_011:05}" for number in range(20_011)]
    ordered: list[str] = []

    def collect() -> Slices[None]:
        ordered.extend((yield from sort_in_slices(names)))

    assert len(list(collect())) > 3
    assert ordered == sorted(names)
