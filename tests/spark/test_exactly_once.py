"""Tasks that write exactly once, without Spark: attempts that fail, are repeated, cut off or continue as zombies."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from pyspark.taskcontext import TaskContext

from ottla.clients import Admin, Producer
from ottla.clients.admin import ConfigResource, TransactionState
from ottla.spark import transactional_writer
from ottla.spark.exactly_once import ExactlyOnceError
from ottla.spark.write_plan import WriteFailed, Written
from tests.clients.proxy import Proxy
from tests.clients.support import WAIT_S, unique

from .tasks import Context, Cut, Query, fail, rows

pytestmark = pytest.mark.both
PRODUCE, END_TXN = 0, 26


def test_each_attempt_of_a_task_that_has_written_writes_nothing(query: Query) -> None:
    reached: list[int] = []
    for batch in range(3):
        for run in ("run", "run", "restarted"):
            told = [
                query.write(task, batch, rows(b"%d-%d" % (batch, task)), lambda: reached.append(1), run=run)
                for task in (0, 1)
            ]
            query.writer().commit(told, batch)
    assert query.seen() == sorted(b"%d-%d" % (batch, task) for batch in range(3) for task in (0, 1))
    assert len(query.seen("read_uncommitted")) == 6
    assert len(reached) == 18, "the input is read to its end, also if nothing is written"


def test_failed_attempt_is_not_visible_and_the_next_one_writes(query: Query) -> None:
    with pytest.raises(Cut):
        query.write(0, 0, rows(b"a"), fail)
    assert query.seen() == []
    query.write(0, 0, rows(b"a"), rows(b"b"))
    assert query.seen() == [b"a", b"b"]


def test_attempt_without_rows_sends_nothing(query: Query) -> None:
    told = query.write(0, 0, rows(), **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert (told.records, told.write_name) == (0, None)


def test_zombie_cannot_commit_after_the_next_attempt_has_begun(query: Query) -> None:
    def next_attempt() -> None:
        query.write(0, 0, rows(b"a", b"b"))

    with pytest.raises(WriteFailed, match=r"Task 0 of batch 0 .*Another attempt of this task or another run"):
        query.write(0, 0, rows(b"a"), next_attempt, rows(b"b"))
    assert query.seen() == [b"a", b"b"]


def test_two_runs_of_one_checkpoint_write_each_row_once(query: Query) -> None:
    def other_run() -> None:
        with pytest.raises(WriteFailed, match="another run of this query"):
            query.write(0, 0, rows(b"a"), lambda: query.write(0, 0, rows(b"a"), run="third"), run="second")

    with pytest.raises(WriteFailed, match="another run of this query"):
        query.write(0, 0, rows(b"a"), other_run, run="first")
    assert query.seen() == [b"a"]


def test_zombie_that_commits_when_the_next_attempt_has_read_the_marker_is_fenced(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_read, may_write = threading.Event(), threading.Event()
    read = transactional_writer.read_marker

    def read_and_wait(admin: Admin, attempt: Any) -> Any:
        marker = read(admin, attempt)
        has_read.set()
        may_write.wait(WAIT_S)
        return marker

    def start_next_attempt() -> None:
        monkeypatch.setattr(transactional_writer, "read_marker", read_and_wait)
        next_attempt.start()
        assert has_read.wait(WAIT_S)

    next_attempt = threading.Thread(target=query.write, args=(0, 0, rows(b"a")))
    try:
        with pytest.raises(WriteFailed, match="Another attempt of this task"):
            query.write(0, 0, rows(b"a"), start_next_attempt)
    finally:
        may_write.set()
        next_attempt.join(WAIT_S)
    assert query.seen() == [b"a"]


def test_commit_without_a_response_is_not_written_again(query: Query) -> None:
    with Proxy(query.bootstrap) as proxy:
        lost: list[float] = []

        def lose(_: object, response: Any) -> Any:
            lost.append(time.monotonic())
            return response if lost[-1] > lost[0] + 2 else None

        proxy.answers[END_TXN] = lose
        short = {"kafka.max.block.ms": "1000"}
        with pytest.raises(WriteFailed):
            query.write(0, 0, rows(b"a"), **{"kafka.bootstrap.servers": proxy.bootstrap}, **short)
        assert lost
    told = query.write(0, 0, rows(b"a"))
    assert told.records == 0
    assert query.seen() == [b"a"]


def test_rows_may_take_longer_than_the_call_that_commits_them(query: Query) -> None:
    with Proxy(query.bootstrap) as proxy:

        def delay(_: object, response: Any) -> Any:
            time.sleep(1.5)
            return response

        proxy.answers[PRODUCE] = delay
        query.write(0, 0, rows(b"a"), **{"kafka.bootstrap.servers": proxy.bootstrap, "kafka.max.block.ms": "1000"})
    assert query.write(0, 0, rows(b"a")).records == 0
    assert query.seen() == [b"a"]


def test_row_that_a_broker_refuses_is_the_error_of_its_task(query: Query) -> None:
    with Admin(query.bootstrap) as admin:
        admin.alter_config(ConfigResource.topic(query.topic), {"max.message.bytes": 500})
    with pytest.raises(WriteFailed, match=rf"Topic '{query.topic}': .*max\.message\.bytes"):
        query.write(0, 0, rows(b"a"), rows(b"b" * 1000))
    assert query.seen() == []


def test_two_writes_of_one_name_in_one_batch_are_refused_also_after_a_restart(query: Query) -> None:
    query.write(0, 0, rows(b"a"))
    for run in ("run", "restarted"):
        if run == "restarted":
            query.write(0, 0, rows(b"a"), run=run)
        query.properties["spark.sql.execution.id"] = "2"
        with pytest.raises(ExactlyOnceError, match="set the option exactlyOnceName"):
            query.write(0, 0, rows(b"b"), run=run)
        del query.properties["spark.sql.execution.id"]
    query.write(0, 0, rows(b"b"), exactlyOnceName="second")
    assert query.seen() == [b"a", b"b"]


def test_changed_layout_of_a_half_written_batch_is_refused(query: Query) -> None:
    query.write(0, 0, rows(b"a", b"b"))
    with pytest.raises(ExactlyOnceError, match="wrote 2 rows of batch 0, and now gets 1"):
        query.write(0, 0, rows(b"a"), run="other rows")
    query.properties["spark.sql.shuffle.partitions"] = "3"
    with pytest.raises(ExactlyOnceError, match=r"half written with spark\.sql\.shuffle\.partitions=2, and now it is 3"):
        query.write(1, 0, rows(b"c"), run="other tasks")
    assert query.seen() == [b"a", b"b"]


def test_task_that_no_longer_exists_is_noticed_and_what_it_left_open_is_ended(query: Query) -> None:
    settings = {"transactional.id": f"ottla.sink.{query.query_id}.{query.topic}.7"}
    with Producer(settings, bootstrap_servers=query.bootstrap) as dead, Admin(query.bootstrap) as admin:
        dead.init_transactions()
        dead.begin_transaction()
        dead.send(query.topic, b"left open", partition=0).result(WAIT_S)
        told = query.write(0, 0, rows(b"a"))
        query.writer().commit([told, query.write(1, 0, rows())], 0)
        states = {row.transactional_id: row.state for row in admin.list_transactions()}
        assert states[settings["transactional.id"]] is not TransactionState.ONGOING
    assert query.seen() == [b"a"]

    for task in (0, 1):
        query.write(task, 1, rows(b"%d" % task))
    told = query.write(0, 1, rows(b"0"), run="fewer tasks")
    with pytest.raises(ExactlyOnceError, match="half written by tasks that do not exist any more"):
        query.writer().commit([told], 1)


def test_batch_write_with_an_id_writes_once_and_without_one_each_time(query: Query) -> None:
    def write(value: bytes, **options: str) -> Written:
        query.monkeypatch.setattr(TaskContext, "_taskContext", Context(0, {"spark.sql.adaptive.enabled": "false"}))
        writer = query.writer(**options)
        writer.write(iter([rows(value)]))
        return writer.write(iter([rows(value)]))

    name = unique("nightly")
    assert [write(b"named", exactlyOnceId=name).records for _ in range(2)] == [0, 0]
    assert [write(b"each").records for _ in range(2)] == [0, 0]
    assert query.seen() == [b"each", b"each", b"named"]


def test_too_long_timeout_is_refused_with_the_setting(query: Query) -> None:
    with pytest.raises(WriteFailed, match=r"Set kafka\.transaction\.timeout\.ms to at most"):
        query.write(0, 0, rows(b"a"), **{"kafka.transaction.timeout.ms": "2000000000"})
