"""Reports of a consumer: retried problems, rebalances, stored offsets, statistics, and dropped consumers."""

from __future__ import annotations

import gc
import logging
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from ottla.clients import (
    BrokerUnavailable,
    ClientError,
    Consumer,
    NotAssigned,
    NotSubscribed,
    Producer,
    TopicPartition,
    UnknownTopicOrPartition,
)
from ottla.clients.consumer.record import TimestampType
from ottla.clients.events import Connected, Event, Problem, Rebalanced, StatisticsReported
from tests import deadlines
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import WAIT_S, unique, wait_until


def fill(broker: RunningBroker, topic: str, count: int, partition: int = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for i in range(count):
            producer.send(topic, b"%d" % i, partition=partition)


def read(consumer: Consumer[bytes, bytes], count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in consumer.poll(0.2)]
    return values


def poll_until_it_raises(consumer: Consumer[bytes, bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        consumer.poll(0.2)


def test_unknown_topic_is_reported_once_and_read_when_it_appears(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("later")
    events: list[Event] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap, group_id=unique("g"), auto_offset_reset="earliest",
        allow_auto_create_topics=False, on_event=events.append,
    ) as consumer:  # fmt: skip
        consumer.subscribe(topic)
        deadline = time.monotonic() + WAIT_S
        while not any(isinstance(event, Problem) for event in events) and time.monotonic() < deadline:
            assert consumer.poll(0.2) == []
        consumer.poll(2.5)  # for one or two metadata refreshes
        fill(broker, topic, 3)
        assert read(consumer, 3) == [b"0", b"1", b"2"]
    problems = [event for event in events if isinstance(event, Problem)]
    assert len(problems) == 1
    assert isinstance(problems[0].error, UnknownTopicOrPartition)
    assert f"Topic {topic} cannot be read" in str(problems[0].error)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and topic in r.getMessage()]
    assert len(lines) == 1
    assert any(isinstance(event, Connected) for event in events)


def test_problem_is_raised_by_the_next_poll_with_on_problem_raise(broker: RunningBroker) -> None:
    topic = unique("missing")
    with Consumer(
        bootstrap_servers=broker.bootstrap, group_id=unique("g"), allow_auto_create_topics=False, on_problem="raise"
    ) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(UnknownTopicOrPartition, match=topic):
            poll_until_it_raises(consumer)


def test_partition_that_does_not_exist_is_reported(
    broker: RunningBroker, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(2)
    with Consumer(bootstrap_servers=broker.bootstrap, on_problem="raise") as consumer:
        consumer.assign([(topic, 7)])
        with pytest.raises(UnknownTopicOrPartition, match=f"Partition {topic}-7 does not exist: .* 0 to 1"):
            poll_until_it_raises(consumer)
    assert f"{topic}-7 does not exist" in caplog.text


def test_unreachable_coordinator_is_reported_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker advertises an address that the client cannot reach, which is common with containers."""
    broker = ForkedOttla(tmp_path)
    with broker:
        address = broker.bootstrap
    wrong = ForkedOttla(tmp_path, {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    wrong.bootstrap = address
    with wrong, Consumer(bootstrap_servers=address, group_id="g", on_problem="raise") as consumer:
        consumer.subscribe("t")
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1.*advertised\.listeners"):
            poll_until_it_raises(consumer)
    lines = [r.getMessage() for r in caplog.records if "cannot be reached: " in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("The coordinator of group g cannot be reached: 127.0.0.1:1: connection refused")


def test_poll_without_a_subscription_is_an_error(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=unique("g")) as consumer:
        with pytest.raises(NotSubscribed, match="subscribe"):
            consumer.poll(0.1)
        consumer.subscribe(topic)
        consumer.poll(0.1)
        consumer.unsubscribe()
        with pytest.raises(NotSubscribed):
            consumer.poll(0.1)


def test_rebalances_are_logged_and_reported_with_generation_and_member(
    broker: RunningBroker, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.clients.consumer")
    topic, group = make_topic(2), unique("g")
    events: list[Event] = []
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=group, on_event=events.append) as consumer:
        consumer.subscribe(topic)
        assert consumer.group_metadata() == (group, -1, "", None, "")
        wait_until(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 2, "an assignment")
        metadata = consumer.group_metadata()
        assert metadata.member_id == consumer.member_id != ""
        assert metadata.generation >= 1
    (assigned,) = [e for e in events if isinstance(e, Rebalanced) and e.kind == "assigned"]
    assert assigned.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert (assigned.group_id, assigned.generation, assigned.member_id) == metadata[:3]
    assert f"Group {group}, generation {metadata.generation}: partitions assigned: {topic}-0, {topic}-1" in caplog.text


def test_only_stored_offsets_are_committed(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("g")
    tp = TopicPartition(topic, 0)
    fill(broker, topic, 10)
    settings = {
        "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False, "auto.commit.interval.ms": 100,
    }  # fmt: skip
    with Consumer(settings) as consumer:
        consumer.assign([tp])
        records = []
        while len(records) < 10:
            records += consumer.poll(WAIT_S)
        assert consumer.committed([tp]) == {tp: None}
        consumer.store_offsets(records[3])
        consumer.poll(0.3)
        consumer.commit()
        committed = consumer.committed([tp])[tp]
        assert committed is not None
        assert committed.offset == 4
        consumer.store_offsets({tp: 6})
        with pytest.raises(ValueError, match="beyond the records that poll has returned"):
            consumer.store_offsets({tp: 11})
        with pytest.raises(NotAssigned):
            consumer.store_offsets({(topic, 5): 1})  # type: ignore[dict-item]
    with Consumer({**settings, "enable.auto.offset.store": True}) as consumer:
        committed = consumer.committed([tp])[tp]
        assert committed is not None
        assert committed.offset == 6  # committed by the auto-commit of close
        with pytest.raises(ClientError, match=r"enable\.auto\.offset\.store"):
            consumer.store_offsets({tp: 1})


def test_partitions_are_assigned_and_unassigned_incrementally(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    for partition in range(3):
        fill(broker, topic, 5, partition)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert len(read(consumer, 5)) == 5
        consumer.incremental_assign([(topic, 1)])
        assert len(read(consumer, 5)) == 5
        assert consumer.position((topic, 0)) == 5
        consumer.incremental_unassign([(topic, 0)])
        assert consumer.assignment() == [TopicPartition(topic, 1)]
        with pytest.raises(NotAssigned):
            consumer.incremental_unassign([(topic, 2)])


def test_records_have_timestamp_type_and_leader_epoch(broker: RunningBroker, make_topic: MakeTopic) -> None:
    own, stamped = make_topic(), make_topic(message_timestamp_type="LogAppendTime")
    for topic in (own, stamped):
        fill(broker, topic, 1)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        for topic, kind in ((own, TimestampType.CREATE_TIME), (stamped, TimestampType.LOG_APPEND_TIME)):
            consumer.assign([(topic, 0)])
            (record,) = consumer.poll(WAIT_S)
            assert record.timestamp_type is kind
            assert record.leader_epoch == 0
        (info,) = consumer.partitions_for(own)
        assert (info.topic, info.partition, info.replicas) == (own, 0, info.isr)


def test_offsets_and_timestamps_are_whole_numbers(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    fill(broker, topic, 5)
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=unique("g"), auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        for wrong in (1.5, 2.0, "3", True, None):
            with pytest.raises(TypeError, match="whole number"):
                consumer.seek((topic, 0), wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="whole number"):
                consumer.commit({TopicPartition(topic, 0): wrong})  # type: ignore[dict-item]
            with pytest.raises(ValueError, match="timestamp"):
                consumer.seek_to_timestamp(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="from 0"):
            consumer.commit({TopicPartition(topic, 0): -1})
        consumer.seek((topic, 0), np.int64(3))  # type: ignore[arg-type]
        assert read(consumer, 2) == [b"3", b"4"]
        long_ago = datetime(2001, 1, 1, tzinfo=UTC)
        assert consumer.offsets_for_times({TopicPartition(topic, 0): long_ago})[TopicPartition(topic, 0)][0] == 0  # type: ignore[index]
        consumer.seek_to_timestamp(long_ago)
        assert len(read(consumer, 5)) == 5


def test_statistics_count_records_and_lag(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    fill(broker, topic, 50)
    events: list[Event] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=20,
        on_event=events.append, statistics_interval_ms=50,
    ) as consumer:  # fmt: skip
        consumer.assign([(topic, 0)])
        assert len(consumer.poll(WAIT_S)) == 20
        assert consumer.metrics()["records-consumed-total"] == 20
        wait_until(lambda: any(isinstance(event, StatisticsReported) for event in events), "statistics")
        wait_until(
            lambda: any(isinstance(e, StatisticsReported) and e.metrics["records-lag-max"] == 30 for e in events), "lag"
        )
        last = [event for event in events if isinstance(event, StatisticsReported)][-1]
        assert last.partitions[TopicPartition(topic, 0)] == {"position": 20, "records-lag": 30}
        assert last.metrics["incoming-byte-total"] > 0


def test_forked_child_is_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    fill(broker, topic, 10)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=3) as consumer:
        consumer.assign([(topic, 0)])
        assert len(consumer.poll(WAIT_S)) == 3

        def poll() -> int:
            try:
                consumer.poll(0.1)
            except ClientError as error:
                return 0 if "before a fork" in str(error) else 1
            return 2

        assert deadlines.code_of_fork(poll) == 0
        assert len(read(consumer, 7)) == 7


def test_dropped_consumers_leave_their_group_and_no_thread(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("g")
    fill(broker, topic, 5)
    before = threading.active_count()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            consumer = Consumer(bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest")
            consumer.subscribe(topic)
            consumer.poll(0.3)
        del consumer
        gc.collect()
    assert [str(w.message) for w in caught if w.category is ResourceWarning] == [
        f"unclosed consumer of group {group}"
    ] * 3
    wait_until(lambda: threading.active_count() == before, "the threads of the dropped consumers end")
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        assert len(read(consumer, 5)) == 5  # immediately: no session has to expire first
