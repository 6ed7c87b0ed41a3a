"""Ottla's consumer: threads, wakeup, close, order of commits, fencing, patterns, broker restarts."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

from ottla.clients import (
    Admin,
    AsyncConsumer,
    Closed,
    ConcurrentUse,
    Consumer,
    DeserializationFailed,
    FencedInstance,
    Producer,
    TopicPartition,
    Wakeup,
)
from ottla.clients.admin import NewTopic
from ottla.clients.consumer import OffsetAndMetadata, Record
from ottla.clients.errors import ClientError
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Sent, unique, wait_until
from .test_ottla_consumer import OurMember, Reader, committed, numbered, poll_all, produce, values

pytestmark = pytest.mark.both


@pytest.fixture
def reader(broker: RunningBroker) -> Iterator[Callable[..., Consumer]]:
    """Return a function that creates consumers with auto.offset.reset=earliest. They are closed after the test."""
    made: list[Consumer] = []

    def make(**options: object) -> Consumer:
        consumer = Consumer(bootstrap_servers=broker.bootstrap, **{"auto_offset_reset": "earliest", **options})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run a function in a thread. Its result or exception is added to the list."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except ClientError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def polls(consumer: Consumer) -> bool:
    return consumer._turn_owner is not None


class TestThreads:
    def test_wakeup_ends_the_poll_of_another_thread_without_losing_records(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic = make_topic()
        consumer = reader()
        consumer.assign([(topic, 0)])
        thread, outcome = in_thread(lambda: consumer.poll(10 * WAIT_S))
        wait_until(lambda: polls(consumer), "a poll is under way")
        consumer.wakeup()
        thread.join(WAIT_S)
        assert [type(row) for row in outcome] == [Wakeup]
        produce(broker.bootstrap, topic, numbered(3))
        assert len(poll_all(consumer, 3)) == 3
        consumer.wakeup()
        with pytest.raises(Wakeup):
            consumer.poll(0)

    def test_concurrent_poll_is_rejected_but_other_methods_are_not(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic = make_topic()
        tp = TopicPartition(topic, 0)
        produce(broker.bootstrap, topic, numbered(9))
        consumer = reader(group_id=unique("group"))
        consumer.assign([tp])
        poll_all(consumer, 9)
        thread, outcome = in_thread(lambda: consumer.poll(WAIT_S))
        wait_until(lambda: polls(consumer), "a poll is under way")
        for forbidden in (consumer.poll, consumer.unsubscribe, consumer.poll_arrow):
            with pytest.raises(ConcurrentUse, match="another thread"):
                forbidden()
        assert consumer.position(tp) == 9
        consumer.commit({tp: 2})
        assert committed(consumer, tp) == 2
        consumer.seek(tp, 7)
        thread.join(WAIT_S)
        (records,) = outcome
        assert [r.offset for r in records] == [7, 8]  # type: ignore[attr-defined]

    def test_close_ends_the_loop_of_another_thread(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic, group = make_topic(), unique("group")
        produce(broker.bootstrap, topic, numbered(3))
        consumer = reader(group_id=group)
        consumer.subscribe(topic)
        seen: list[Record] = []

        def loop() -> None:
            for record in consumer:
                seen.append(record)  # noqa: PERF402 - the loop of a user

        thread, outcome = in_thread(loop)
        wait_until(lambda: len(seen) == 3, "three records")
        consumer.close()
        thread.join(WAIT_S)
        assert outcome == [None]
        assert committed(reader(group_id=group), TopicPartition(topic, 0)) == 3
        with pytest.raises(Closed):
            consumer.poll(0)

    def test_listener_cannot_poll_or_close(self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
        topic = make_topic()
        produce(broker.bootstrap, topic, numbered(1))
        consumer = reader(group_id=unique("group"))
        refused: list[str] = []

        def listen(_: object) -> None:
            for forbidden in (consumer.poll, consumer.close):
                try:
                    forbidden()
                except ConcurrentUse as error:
                    refused.append(str(error))

        consumer.subscribe(topic, on_assigned=listen)
        assert len(poll_all(consumer, 1)) == 1
        assert ["listener" in text for text in refused] == [True, True]


def test_asyncio_tasks_poll_one_at_a_time_and_close_ends_the_loop(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(2))

    async def story() -> list[int]:
        seen: list[int] = []
        consumer = AsyncConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        consumer.assign([(topic, 0)])

        async def loop() -> None:
            async for record in consumer:
                seen.append(record.offset)  # noqa: PERF401 - the loop of a user

        task = asyncio.create_task(loop())
        while len(seen) < 2:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
        with pytest.raises(ConcurrentUse):
            await consumer.poll(0)
        await consumer.close()
        await task
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 2 * WAIT_S)) == [0, 1]


class TestClose:
    def test_close_leaves_the_group_at_once(self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
        topic, group = make_topic(), unique("group")
        consumer = reader(group_id=group)
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(0.1) == [] and bool(consumer.assignment()), "an assignment")
        started = time.monotonic()
        consumer.close()
        assert time.monotonic() - started < 5
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            wait_until(lambda: not admin.describe_groups([group])[group].members, "the group has no members", 5)

    def test_close_waits_for_commits_in_flight_in_their_order(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic, group = make_topic(), unique("group")
        tp = TopicPartition(topic, 0)
        produce(broker.bootstrap, topic, numbered(1))
        told: list[tuple[int, object]] = []
        consumer = reader(group_id=group, enable_auto_commit=False)
        consumer.assign([tp])
        for offset in range(50):
            consumer.commit_async({tp: offset}, lambda error, offset=offset: told.append((offset, error)))  # type: ignore[misc]
        consumer.close()
        assert told == [(offset, None) for offset in range(50)]
        assert committed(reader(group_id=group), tp) == 49

    def test_failing_commit_callback_is_logged_and_affects_no_other_commit(
        self, make_topic: MakeTopic, reader: Reader, caplog: pytest.LogCaptureFixture
    ) -> None:
        tp = TopicPartition(make_topic(), 0)
        consumer = reader(group_id=unique("group"), enable_auto_commit=False)
        consumer.assign([tp])
        consumer.commit_async({tp: 1}, lambda _: 1 / 0)
        consumer.commit({tp: 2})
        assert committed(consumer, tp) == 2
        assert "callback of a commit failed" in caplog.text


class TestValues:
    def test_undeserializable_record_is_skipped_by_setting(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic, group = make_topic(), unique("group")
        produce(broker.bootstrap, topic, [Sent(None, v, [], FIRST_TIMESTAMP) for v in (b"1", b"{", b"3", b"}")])
        consumer = reader(group_id=group, value_deserializer="json", on_deserialization_error="skip")
        consumer.subscribe(topic)
        assert values(poll_all(consumer, 2)) == [1, 3]
        consumer.commit()
        assert committed(consumer, TopicPartition(topic, 0)) == 4
        assert caplog.text.count("Skipped: The value of") == 2

    def test_undeserializable_last_record_is_raised_once_and_committed(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic, group = make_topic(), unique("group")
        produce(broker.bootstrap, topic, [Sent(b"k", b"{", [("h", b"1")], FIRST_TIMESTAMP)])
        with reader(group_id=group, value_deserializer="json") as consumer:
            consumer.subscribe(topic)
            with pytest.raises(DeserializationFailed) as raised:
                poll_all(consumer, 1)
            record = raised.value.record
            assert isinstance(record, Record)
            assert (record.value, record.key, record.headers) == (b"{", b"k", [("h", b"1")])
            assert consumer.poll(0.2) == []
        assert committed(reader(group_id=group), TopicPartition(topic, 0)) == 1

    def test_typed_values_round_trip(self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
        topic = make_topic()
        with Producer(
            bootstrap_servers=broker.bootstrap, key_serializer="int64", value_serializer="double"
        ) as producer:
            producer.send(topic, 0.25, key=-7).result(WAIT_S)
        consumer = reader(
            key_deserializer="LongDeserializer", value_deserializer=lambda data, topic: (topic, len(data))
        )
        consumer.assign([(topic, 0)])
        (record,) = poll_all(consumer, 1)
        assert (record.key, record.value) == (-7, (topic, 8))


class TestGroups:
    def test_static_member_is_fenced_by_another_with_the_same_instance_id(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic, group = make_topic(), unique("group")
        produce(broker.bootstrap, topic, numbered(4))
        options: dict[str, object] = {"group_id": group, "group_instance_id": "a", "heartbeat_interval_ms": 100}
        first, second = reader(**options), reader(**options)
        first.subscribe(topic)
        poll_all(first, 4)
        second.subscribe(topic)
        poll_all(second, 1)

        def fenced() -> bool:
            try:
                first.poll(0.1)
            except FencedInstance:
                return True
            return False

        wait_until(fenced, "the first member is fenced")
        for call in (lambda: first.poll(0), first.commit):
            with pytest.raises(ClientError):
                call()
        assert second.poll(0.3) == []
        assert second.assignment() == [TopicPartition(topic, 0)]

    def test_pattern_follows_created_and_deleted_topics(self, broker: RunningBroker, reader: Reader) -> None:
        base = unique("pattern")
        consumer = reader(
            group_id=unique("group"), metadata_max_age_ms=200, heartbeat_interval_ms=200, allow_auto_create_topics=False
        )
        consumer.subscribe(pattern=f"{base}[.].*")
        with Admin(bootstrap_servers=broker.bootstrap) as admin:

            def assigned(*names: str) -> Callable[[], bool]:
                def look() -> bool:
                    consumer.poll(0.1)
                    return consumer.assignment() == [TopicPartition(f"{base}.{name}", 0) for name in names]

                return look

            admin.create_topics([NewTopic(f"{base}.a", 1), NewTopic(f"{base}x", 1)])
            wait_until(assigned("a"), "the topic that matches")
            admin.create_topics([NewTopic(f"{base}.b", 1)])
            wait_until(assigned("a", "b"), "a topic that came")
            admin.delete_topics([f"{base}.a"])
            wait_until(assigned("b"), "a topic that went")
            produce(broker.bootstrap, f"{base}.b", numbered(1))
            assert len(poll_all(consumer, 1)) == 1
            admin.delete_topics([f"{base}.b", f"{base}x"])


def test_position_of_an_unknown_epoch_is_checked(broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
    """With an epoch that the leader knows, the position is used."""
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(5))
    consumer = reader()
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), OffsetAndMetadata(3, leader_epoch=0))
    assert [r.offset for r in poll_all(consumer, 2)] == [3, 4]


class TestRestart:
    """Restarts of the broker. Each test has its own broker."""

    pytestmark: ClassVar[list[Any]] = []

    def test_group_continues_after_its_broker_was_killed(self, tmp_path: Path) -> None:
        """Kill the broker three times. No record is lost; one may be read twice, because its commit may be lost."""
        broker = ForkedOttla(tmp_path, {"group.initial.rebalance.delay.ms": 0})
        broker.start()
        topic, group = unique("restart"), unique("group")
        members: list[OurMember] = []
        resumed_s: list[float] = []
        try:
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topics([NewTopic(topic, 4)])
            members += [OurMember(broker.bootstrap, topic, group).start() for _ in range(2)]

            def read() -> Counter[tuple[int, int]]:
                return Counter(row for member in members for row in member.read())

            sent = 0
            for _ in range(3):
                for partition in range(4):
                    produce(broker.bootstrap, topic, numbered(25, sent), partition)
                sent += 25
                wait_until(lambda: len(read()) == 4 * sent, f"{sent} of each partition", 40)  # noqa: B023
                broker.kill()
                broker.start()
                started = time.monotonic()
                produce(broker.bootstrap, topic, numbered(1, sent), 0)
                for partition in range(1, 4):
                    produce(broker.bootstrap, topic, numbered(1, sent), partition)
                sent += 1
                wait_until(lambda: len(read()) == 4 * sent, "the first records after the restart", 40)  # noqa: B023
                resumed_s.append(time.monotonic() - started)
            for member in members:
                member.stop()
            seen = read()
            assert set(seen) == {(partition, offset) for partition in range(4) for offset in range(sent)}
            doubled = sum(seen.values()) - len(seen)
            assert doubled <= 3 * 4 * 25, "no more than what was not committed"
            print(f"resumed after {[round(s, 2) for s in resumed_s]} s, {doubled} records came twice")
        finally:
            for member in members:
                member.stopping.set()
            broker.stop()


class TestPendingRecords:
    """Records that a poll has taken but not returned to the user."""

    def test_iteration_yields_no_records_of_paused_or_unassigned_partitions(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic = make_topic(2)
        for partition in range(2):
            produce(broker.bootstrap, topic, numbered(5), partition=partition)
        consumer = reader()
        consumer.assign([(topic, 0)])
        assert next(consumer).offset == 0
        consumer.pause([(topic, 0)])
        assert consumer.poll(0.3) == []
        consumer.resume([(topic, 0)])
        assert [next(consumer).offset for _ in range(2)] == [1, 2]
        consumer.assign([(topic, 1)])
        assert [(record.partition, record.offset) for _, record in zip(range(5), consumer, strict=False)] == [
            (1, offset) for offset in range(5)
        ]

    def test_records_of_a_poll_ended_by_ctrl_c_are_neither_skipped_nor_committed(
        self, broker: RunningBroker, make_topic: MakeTopic, reader: Reader
    ) -> None:
        topic, group = make_topic(), unique("group")
        produce(broker.bootstrap, topic, numbered(10))
        calls: list[bytes] = []

        def interrupted(value: bytes) -> bytes:
            calls.append(value)
            if len(calls) == 7:
                raise KeyboardInterrupt
            return value

        consumer = reader(group_id=group, max_poll_records=5, value_deserializer=interrupted)
        consumer.subscribe(topic)
        assert [record.offset for record in poll_all(consumer, 5)] == list(range(5))
        with pytest.raises(KeyboardInterrupt):
            poll_all(consumer, 1)
        consumer.close()
        again = reader(group_id=group)
        again.subscribe(topic)
        assert [record.offset for record in poll_all(again, 5)] == list(range(5, 10))


def test_wakeup_in_a_signal_handler_ends_a_poll_at_any_point(broker: RunningBroker, make_topic: MakeTopic) -> None:
    """A signal handler may run between any two lines of the polling thread. A trace function simulates it."""
    files = ("threading.py", "consumer/blocking.py", "consumer/interface.py", "clients/waits.py")
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([(make_topic(), 0)])
        consumer.poll(0.1)

        def poll_with_wakeup_at(line: int) -> bool:
            lines = 0

            def trace(frame: FrameType, event: str, _: object) -> Any:
                nonlocal lines
                if not frame.f_code.co_filename.endswith(files):
                    return None
                lines += event == "line"
                if event == "line" and lines == line:
                    sys.settrace(None)
                    consumer.wakeup()
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                consumer.poll(0.01)
            except Wakeup:
                return True
            finally:
                sys.settrace(before)
            return lines < line

        missed: list[int] = []

        def poll_often() -> None:
            for line in range(1, 60):
                if not poll_with_wakeup_at(line):
                    with pytest.raises(Wakeup):  # the poll had ended before the wakeup
                        consumer.poll(WAIT_S)
                missed.append(line)

        thread = threading.Thread(target=poll_often, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        assert len(missed) == 59, f"the polling thread deadlocked after {len(missed)} lines"
