"""Periodic tasks of a broker, and how partitions follow the metadata."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.housekeeping import Housekeeping
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .harness import BrokerHarness, ManualLoop, batch


def test_tasks_run_at_their_intervals_also_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    loop = ManualLoop()
    done: list[int] = []

    def task() -> None:
        done.append(loop.now_ms)
        if len(done) == 1:
            raise OSError("no space")
        if len(done) == 2:
            raise ZeroDivisionError

    housekeeping = Housekeeping(loop)  # type: ignore[arg-type]
    housekeeping.every("expiry", 100, task, first_ms=30)
    loop.advance(100)
    with pytest.raises(ZeroDivisionError):
        loop.advance(100)
    loop.advance(150)
    assert done == [30, 130, 230]
    assert "expiry failed and will be retried: no space" in caplog.text
    housekeeping.stop()
    loop.advance(1000)
    assert (len(done), loop.pending_timers) == (3, 0)


def test_single_task_waits_once_and_can_wait_again() -> None:
    loop = ManualLoop()
    done: list[int] = []
    housekeeping = Housekeeping(loop)  # type: ignore[arg-type]
    for _ in range(2):
        housekeeping.once("files", 100, lambda: done.append(loop.now_ms))
    housekeeping.do_all()
    loop.advance(300)
    assert done == [100], "also not with the periodic tasks"
    housekeeping.once("files", 100, lambda: done.append(loop.now_ms))
    loop.advance(100)
    assert done == [100, 400]
    housekeeping.once("files", 100, lambda: done.append(loop.now_ms))
    housekeeping.stop()
    housekeeping.once("other", 100, lambda: done.append(loop.now_ms))
    loop.advance(1000)
    assert (len(done), loop.pending_timers) == (2, 0)


def test_housekeeping_flushes_after_flush_ms(harness: BrokerHarness) -> None:
    harness.create("t", flush_ms="1000")
    harness.append("t", b"a")
    partition = harness.partition("t")
    partition.flush_if_due(harness.loop.wall_ms())
    assert partition.log.flushed_offset == 0
    harness.loop.advance(1000)
    partition.flush_if_due(harness.loop.wall_ms())
    assert partition.log.flushed_offset == 1


def test_partition_of_a_deleted_topic_rejects_requests_and_a_recreated_one_is_empty(harness: BrokerHarness) -> None:
    first = harness.create("t")
    harness.append("t", b"a")
    old = harness.partition("t")
    harness.delete("t")
    with pytest.raises(KafkaError) as error:
        old.append(memoryview(batch(b"b")))
    assert error.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError):
        harness.broker.partitions.get_by_id(first, 0)
    second = harness.create("t")
    assert first != second
    assert harness.partition("t").high_watermark == 0
    assert harness.broker.partitions.topic_name(second) == "t"
    assert harness.broker.partitions.topic_name(first) is None


def test_added_partitions_are_served_at_once_and_existing_ones_stay_open(harness: BrokerHarness) -> None:
    harness.create("t")
    old = harness.partition("t")
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 3, None)], timeout_ms=1000)
    assert harness.ask(request).results[0].error_code == 0
    assert harness.partition("t") is old
    assert harness.append("t", b"a", index=2) == 0


def test_changed_settings_apply_to_the_next_append(harness: BrokerHarness) -> None:
    harness.create("t")
    changes = [AlterableConfig("max.message.bytes", 0, "100"), AlterableConfig("segment.bytes", 0, "1048576")]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(2, "t", changes)])
    assert harness.ask(request).responses[0].error_code == 0
    partition = harness.partition("t")
    assert (partition.settings.rules.max_message_bytes, partition.log.config.segment_bytes) == (100, 1048576)


def test_failed_directory_is_a_storage_error_for_waiting_and_later_requests(harness: BrokerHarness) -> None:
    harness.create("t", flush_messages="1")
    harness.threads.held = True
    waiting = harness.produce(("t", {0: batch(b"a")}))
    partition = harness.partition("t")
    partition.log.log_directory.fail(OSError(5, "Input/output error"))

    def code(answer: Any) -> int:
        return answer.responses[0].partition_responses[0].error_code

    assert code(waiting.result()) == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(harness.produce(("t", {0: batch(b"a")}))) == ErrorCode.KAFKA_STORAGE_ERROR


def test_watchers_are_notified_in_order_and_may_be_removed_meanwhile(harness: BrokerHarness) -> None:
    harness.create("t")
    partition = harness.partition("t")
    told: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def partition_changed(self, appended_bytes: int) -> None:
            told.append(f"{self.name} {appended_bytes}")
            partition.watchers.pop(self, None)

    first, second = Note("first"), Note("second")
    partition.watchers |= {first: None, second: None}
    size = len(batch(b"a"))
    harness.append("t", b"a")
    harness.append("t", b"b")
    assert told == [f"first {size}", f"second {size}"]
