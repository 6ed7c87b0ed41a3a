"""When a run looks for a slow task and samples its keys; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.streams import slow_tasks
from ottla.streams.errors import StreamsError
from ottla.streams.slow_tasks import INTERVAL_MS, SAMPLE_INTERVAL_MS, SLOW_MS, SlowTasks
from ottla.streams.status import FrequentKey, Run, SlowTask, Status

START = 1_000_000
BUSY = Status(Run("shop", "shop"), busy_since_ms=START)
SLOW = SlowTask(START, 7, 1, 4, 9_000, 300, "h")
KEY = FrequentKey("deduplicate by user", ["user"], ['"a"'], 9, 10, 20)


class Fake:
    """Spark with one slow task, and a sample that ends when the test says so."""

    def __init__(self) -> None:
        self.found: SlowTask | None = SLOW
        self.asked: list[int] = []
        self.samples = 0
        self.cancelled: list[str] = []
        self.is_free = threading.Event()
        self.error: StreamsError | None = None
        context = SimpleNamespace(setJobGroup=lambda *_: None, cancelJobGroup=self.cancel)
        output = SimpleNamespace(rows=SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context)))
        query: Any = SimpleNamespace(name="shop", outputs=[output])
        self.tasks = SlowTasks(query, None, None)  # type: ignore[arg-type] - the sample is not real

    def find(self, _: Any, run_id: str, now_ms: int) -> SlowTask | None:
        self.asked.append(now_ms)
        return self.found if self.found is None else replace(self.found, at_ms=now_ms)

    def sample(self, *given: Any) -> SlowTask:
        self.samples += 1
        assert self.is_free.wait(10)
        if self.error is not None:
            raise self.error
        return replace(given[-1], keys=(KEY,))

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)
        self.is_free.set()

    def watch(self, after_ms: int, status: Status = BUSY) -> None:
        self.tasks.watch("run", status, START + after_ms)

    def end_sample(self) -> None:
        self.is_free.set()
        assert self.tasks._thread is not None
        self.tasks._thread.join(10)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    made = Fake()
    monkeypatch.setattr(slow_tasks, "find_slow_task", made.find)
    monkeypatch.setattr(slow_tasks, "sample_keys", made.sample)
    monkeypatch.setattr(slow_tasks, "InheritableThread", threading.Thread)
    yield made
    made.tasks.close()


def test_short_micro_batch_is_not_looked_at(fake: Fake) -> None:
    fake.watch(SLOW_MS - 1)
    fake.watch(SLOW_MS + 1, replace(BUSY, busy_since_ms=None))
    assert (fake.asked, fake.tasks.slow) == ([], None)


def test_keys_are_sampled_once_a_minute_while_a_task_is_slow(fake: Fake) -> None:
    fake.watch(SLOW_MS)
    fake.watch(SLOW_MS + INTERVAL_MS - 1)
    assert fake.tasks.slow == replace(SLOW, at_ms=START + SLOW_MS)
    fake.end_sample()
    fake.watch(SLOW_MS + INTERVAL_MS)
    assert fake.tasks.slow == replace(SLOW, at_ms=START + SLOW_MS + INTERVAL_MS, keys=(KEY,))
    assert (len(fake.asked), fake.samples) == (2, 1)
    for after_ms in (SAMPLE_INTERVAL_MS - 1, SAMPLE_INTERVAL_MS + INTERVAL_MS):
        fake.watch(SLOW_MS + after_ms)
    assert fake.samples == 2


def test_keys_of_another_task_are_not_keys_of_this_task(fake: Fake) -> None:
    fake.watch(SLOW_MS)
    fake.end_sample()
    fake.found = replace(SLOW, task=2)
    fake.watch(SLOW_MS + INTERVAL_MS)
    assert fake.tasks.slow is not None
    assert (fake.tasks.slow.task, fake.tasks.slow.keys) == (2, ())


@pytest.mark.parametrize("found", [replace(SLOW, reads_inputs=True), replace(SLOW, unknown="several keys"), None])
def test_task_without_one_key_is_not_sampled(fake: Fake, found: SlowTask | None) -> None:
    fake.found = found
    fake.watch(SLOW_MS)
    assert fake.samples == 0
    assert fake.tasks.slow == (None if found is None else replace(found, at_ms=START + SLOW_MS))


def test_failed_sample_says_why_the_key_is_not_known(fake: Fake) -> None:
    fake.error = StreamsError("the offsets are not known yet")
    fake.watch(SLOW_MS)
    fake.end_sample()
    assert fake.tasks.slow is not None
    assert fake.tasks.slow.unknown == "the sample failed: the offsets are not known yet"


def test_sample_has_a_deadline(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_tasks, "SAMPLE_S", 0.0)
    fake.watch(SLOW_MS)
    fake.watch(SLOW_MS + 1)
    assert fake.cancelled == ["shop sample of keys"]


def test_close_cancels_a_sample(fake: Fake) -> None:
    fake.watch(SLOW_MS)
    fake.tasks.close()
    assert fake.cancelled == ["shop sample of keys"]
    assert fake.tasks._thread is None


@pytest.mark.parametrize(
    ("slow_stage", "shuffled", "reads_inputs", "unknown"),
    [
        (3, {}, False, ""),
        (2, {}, True, ""),
        (1, {2: 5}, True, ""),
        (2, {2: 5}, False, "the rows are divided by several keys, one after another"),
        (3, {2: 5}, False, "the rows are divided by several keys, one after another"),
    ],
)
def test_stage_of_a_slow_task(slow_stage: int, shuffled: dict[int, int], reads_inputs: bool, unknown: str) -> None:
    records = {number: shuffled.get(number, 0) for number in (3, 1, 2)}
    found = slow_tasks._with_kind(replace(SLOW, stage=slow_stage), records)
    assert (found.reads_inputs, found.unknown) == (reads_inputs, unknown)
    assert slow_tasks._with_kind(replace(SLOW, stage=1), {1: 0}).reads_inputs
