"""Tasks that write exactly once in workers that leave their producers to each other, without Spark."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients.producer.transaction_requests import Identity
from ottla.spark import transactional_writer
from ottla.spark.exactly_once import ExactlyOnceError, Marker
from ottla.spark.left_producers import Left, Places
from ottla.spark.write_plan import WriteFailed
from tests.clients.proxy import Proxy

from .tasks import Cut, Query, Worker, fail, rows

pytestmark = pytest.mark.both
INIT_PRODUCER_ID, OFFSET_FETCH, END_TXN = 22, 9, 26
SEEDS = 6


def open_workers(executors: list[Path]) -> Iterator[list[Worker]]:
    found = [Worker(executor) for executor in executors]
    for executor in executors:
        executor.mkdir(exist_ok=True)
    yield found
    for worker in found:
        worker.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Worker]]:
    """Each of an executor of its own."""
    yield from open_workers([tmp_path / str(number) for number in range(3)])


@pytest.fixture
def neighbours(tmp_path: Path) -> Iterator[list[Worker]]:
    """Of one executor."""
    yield from open_workers([tmp_path / "executor"] * 2)


def test_executor_that_wrote_the_last_batch_of_a_task_neither_fences_nor_reads(
    query: Query, neighbours: list[Worker]
) -> None:
    here, there = neighbours
    with Proxy(query.bootstrap) as proxy, query.on(here):
        query.options["kafka.bootstrap.servers"] = proxy.bootstrap
        query.write(0, 0, rows(b"0"))
        del proxy.asked[:]
        with query.on(there):
            query.write(0, 1, rows(b"1"))
        query.write(0, 2, rows(b"2"))
        asked = set(proxy.asked)
        assert END_TXN in asked
        assert not asked & {INIT_PRODUCER_ID, OFFSET_FETCH}
        # A later batch: another worker may have written the ones between, or the task had no rows.
        for batch, run in ((4, "run"), (5, "restarted")):
            del proxy.asked[:]
            query.write(0, batch, rows(b"%d" % batch), run=run)
            assert {INIT_PRODUCER_ID, OFFSET_FETCH} < set(proxy.asked)
    assert query.seen() == [b"0", b"1", b"2", b"4", b"5"]


def test_second_attempt_of_a_task_fences_the_first_one_in_another_worker(query: Query, workers: list[Worker]) -> None:
    here, there, _ = workers
    with query.on(here):
        query.write(0, 0, rows(b"0"))
    with query.on(there), pytest.raises(Cut):
        query.write(0, 1, rows(b"1"), fail)
    with query.on(here, number=1):
        assert query.write(0, 1, rows(b"1")).records == 1
    assert query.seen() == [b"0", b"1"]


def test_kept_producer_is_refused_after_another_worker_has_written_the_batch(
    query: Query, workers: list[Worker]
) -> None:
    here, there, _ = workers
    with query.on(here):
        query.write(0, 0, rows(b"0"))
    with query.on(there):
        query.write(0, 1, rows(b"1"))
    # Spark has lost the worker's result, and begins the stage again.
    with query.on(here):
        with pytest.raises(WriteFailed, match="Another attempt of this task or another run"):
            query.write(0, 1, rows(b"1"))
        assert query.write(0, 1, rows(b"1")).records == 0, "the refused producer is not kept"
    assert query.seen() == [b"0", b"1"]
    with query.on(there), pytest.raises(WriteFailed, match="Another attempt"):
        query.write(0, 2, rows(b"2"))
    assert query.seen() == [b"0", b"1"]


def test_kept_producer_that_has_begun_is_fenced_by_the_next_attempt(query: Query, workers: list[Worker]) -> None:
    here, there, _ = workers

    def next_attempt() -> None:
        with query.on(there, number=1):
            query.write(0, 1, rows(b"a", b"b"))

    with query.on(here):
        query.write(0, 0, rows(b"0"))
        with pytest.raises(WriteFailed, match="Another attempt of this task or another run"):
            query.write(0, 1, rows(b"a"), next_attempt, rows(b"b"))
    assert query.seen() == [b"0", b"a", b"b"]


def test_worker_that_does_not_know_the_outcome_of_its_commit_reads_the_marker(query: Query) -> None:
    with Proxy(query.bootstrap) as proxy:
        query.options = {"kafka.bootstrap.servers": proxy.bootstrap, "kafka.max.block.ms": "3000"}
        query.write(0, 0, rows(b"0"))
        lost: list[float] = []

        def lose(_: object, response: Any) -> Any:
            lost.append(time.monotonic())
            return response if lost[-1] > lost[0] + 4 else None

        proxy.answers[END_TXN] = lose
        with pytest.raises(WriteFailed):
            query.write(0, 1, rows(b"1"))
        assert lost
        assert query.write(0, 1, rows(b"1")).records == 0
        assert query.write(0, 2, rows(b"2")).records == 1
    assert query.seen() == [b"0", b"1", b"2"]


def test_task_without_rows_in_a_batch_whose_transaction_the_driver_ended_writes_again(query: Query) -> None:
    for task in (0, 1):
        query.write(task, 0, rows(b"%d" % task))
    with Admin(query.bootstrap) as admin:
        admin.fence_producers([f"ottla.sink.{query.query_id}.{query.topic}.1"])
    query.write(0, 1, rows(b"2"))
    query.write(1, 2, rows(b"3"))
    assert query.seen() == [b"0", b"1", b"2", b"3"]


def test_kept_producer_does_not_spare_the_checks_of_a_new_run(query: Query, workers: list[Worker]) -> None:
    here, there, _ = workers
    with query.on(here):
        query.write(0, 0, rows(b"0"))
    with query.on(there):
        query.write(1, 1, rows(b"1"))
    query.properties["spark.sql.shuffle.partitions"] = "3"
    with query.on(here), pytest.raises(ExactlyOnceError, match="half written"):
        query.write(0, 1, rows(b"moved"), run="restarted")
    assert query.seen() == [b"0", b"1"]


def test_producer_that_a_crash_took_along_is_initialized_again(query: Query, neighbours: list[Worker]) -> None:
    here, there = neighbours
    with query.on(here):
        query.write(0, 0, rows(b"0"))
        with pytest.raises(Cut):
            query.write(0, 1, rows(b"1"), fail)
    # A stage that begins again counts from 0: without what is left, nothing is known of the first attempt.
    with query.on(there):
        assert query.write(0, 1, rows(b"1")).records == 1
    assert query.seen() == [b"0", b"1"]


def test_attempt_that_fences_removes_what_was_left(query: Query, neighbours: list[Worker]) -> None:
    here, there = neighbours
    with query.on(here):
        query.write(0, 0, rows(b"0"))
    with query.on(there, number=1), pytest.raises(Cut):
        query.write(0, 1, rows(b"1"), fail)
    with query.on(here):
        assert query.write(0, 1, rows(b"1")).records == 1, "it does not begin with a producer that is fenced"
    assert query.seen() == [b"0", b"1"]


def test_only_one_process_gets_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'another'}")
    left = Left(Identity("x", 5, 3), Marker(1, "run", "write", 10, {"spark.sql.shuffle.partitions": "2"}))
    places, others = Places({"transactional.id": "x"}), Places({"transactional.id": "y"})
    for _ in range(2):
        with closing(places.of_task(0)) as here, closing(places.of_task(0)) as there:
            here.leave(left)
            assert there.take() is None, "the file is locked"
        with closing(places.of_task(1)) as another, closing(others.of_task(0)) as one_of_another_sink:
            assert another.take() is one_of_another_sink.take() is None
        for expected in (left, None):
            with closing(places.of_task(0)) as place:
                assert place.take() == expected
    with closing(places.of_task(0)) as here:
        here.leave(left)
    with closing(places.of_task(0)) as here:
        assert here.take() == left
        here.leave(left._replace(marker=Marker(2, "r")))
    with closing(places.of_task(0)) as here:
        taken = here.take()
        assert taken is not None
        assert taken.marker == Marker(2, "r")


def test_place_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "missing", ""):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory))
        for place in (Places({}).of_task(0), Places({}).of_task(0)):
            place.leave(Left(Identity("x", 5, 3), Marker()))
            assert place.take() is None
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert all("Not a directory" in text for text in said)


class Loop:
    """Writes batches of two tasks as Spark does: repeats a failed attempt, or the batch in another run after a crash.

    Attempts run in any worker. They fail, are overtaken by the next attempt while they run, or succeed unnoticed.
    """

    def __init__(self, query: Query, workers: list[Worker], chance: random.Random) -> None:
        self.query, self.workers, self.chance = query, workers, chance
        self.run = 0
        self.kept = 0

    def task(self, task: int, batch: int) -> None:
        values = [rows(b"%d-%d-%d" % (batch, task, part)) for part in range(2)]
        number = 0
        while True:
            number += 1
            if self.chance.random() < 0.15:  # a crash, or a stage that begins again: Spark counts from 0
                self.run, number = self.run + self.chance.randrange(2), 0
            with suppress(Cut, WriteFailed), self.query.on(self.chance.choice(self.workers), max(0, number - 1)):
                self.query.write(task, batch, *self._steps(values, task, batch), run=str(self.run))
                if self.chance.random() < 0.8:
                    return
            assert number < 30, "no attempt succeeds"

    def _steps(self, values: list[Any], task: int, batch: int) -> list[Any]:
        kind = self.chance.random()
        disturb: Callable[[], object] = fail if kind < 0.2 else lambda: self._overtake(values, task, batch)
        if kind >= 0.4:
            return values
        place = self.chance.randrange(1, 3)
        return [*values[:place], disturb, *values[place:]]

    def _overtake(self, values: list[Any], task: int, batch: int) -> None:
        number = self.chance.randrange(2)
        cut = [fail] if self.chance.random() < 0.3 else []
        with suppress(Cut, WriteFailed), self.query.on(self.chance.choice(self.workers), number):
            self.query.write(task, batch, *values, *cut, run=str(self.run))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_attempts_in_any_worker_write_each_row_once(
    query: Query, workers: list[Worker], neighbours: list[Worker], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(query, [*neighbours, *workers[:2]], random.Random(seed))
    asked = transactional_writer.may_continue

    def count(*given: Any) -> bool:
        loop.kept += asked(*given)
        return asked(*given)

    monkeypatch.setattr(transactional_writer, "may_continue", count)
    batches = 8
    for batch in range(batches):
        for task in (0, 1):
            loop.task(task, batch)
    expected = [b"%d-%d-%d" % (b, t, p) for b in range(batches) for t in range(2) for p in range(2)]
    assert query.seen() == sorted(expected)
    assert loop.kept, "some attempts continue with a kept producer"
