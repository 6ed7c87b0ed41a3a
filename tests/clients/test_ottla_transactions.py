"""Transactions of Ottla's Producer against a real broker."""

from __future__ import annotations

import asyncio
import importlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.clients import Admin, AsyncConsumer, AsyncProducer, Consumer, Delivery, OffsetAndMetadata, Producer
from ottla.clients.admin import PartialFailure, TransactionState
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    InvalidTransactionState,
    ProducerFenced,
    ProducerUnusable,
    RequestTimedOut,
    TransactionAborted,
    TransactionalIdNotFound,
    TransactionFailed,
)
from ottla.clients.offsets import GroupMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from tests import deadlines
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, unique, wait_until

MakeProducer = Callable[..., Producer]


pytestmark = pytest.mark.both


@pytest.fixture
def make_producer(broker: RunningBroker) -> Iterator[MakeProducer]:
    """Create transactional producers, initialized, that are closed after the test."""
    made: list[Producer] = []

    def make(transactional_id: str | None = None, **settings: object) -> Producer:
        name = transactional_id or unique("tx")
        producer: Producer = Producer({"transactional.id": name, **settings}, bootstrap_servers=broker.bootstrap)
        made.append(producer)
        producer.init_transactions(WAIT_S)
        return producer

    yield make
    for producer in made:
        producer.close(1.0)


def read(broker: RunningBroker, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[bytes]:
    """Every value that a reader sees now."""
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level=isolation, auto_offset_reset="earliest") as c:
        ends = c.end_offsets([(topic, p) for p in range(partitions)])
        c.assign(list(ends))
        found: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while any(c.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, f"{found} until {ends}"
            found += [record.value for record in c.poll(0.2)]
        return found


def committed(broker: RunningBroker, group: str, topic: str) -> OffsetAndMetadata | None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        found = admin.list_group_offsets(group).get(TopicPartition(topic, 0))
    return None if found is None else OffsetAndMetadata(found.offset, found.leader_epoch, found.metadata)


def test_records_of_committed_transactions_are_visible_together(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(3), make_producer()
    for number in range(5):
        with producer.transaction():
            sent = [producer.send(topic, b"%d %d" % (number, i), partition=i % 3) for i in range(30)]
            if number == 2:
                producer.flush()
                assert read(broker, topic, 3) == sorted_values(2)
        assert all(delivery.done() for delivery in sent)
    assert sorted(read(broker, topic, 3)) == sorted(b"%d %d" % (n, i) for n in range(5) for i in range(30))


def sorted_values(transactions: int) -> list[bytes]:
    """Return the values of the first transactions that a reader of three partitions in turn sees."""
    return [b"%d %d" % (n, i) for p in range(3) for n in range(transactions) for i in range(p, 30, 3)]


def test_exception_aborts_the_transaction_and_the_producer_goes_on(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(), make_producer(**{"linger.ms": 60_000, "delivery.timeout.ms": 100_000})

    def fail() -> None:
        with producer.transaction():
            sent.append(producer.send(topic, b"aborted"))
            producer.flush()
            sent.append(producer.send(topic, b"not even sent"))
            raise KeyError("x")

    sent: list[Delivery] = []
    with pytest.raises(KeyError):
        fail()
    assert sent[0].result().offset == 0
    with pytest.raises(TransactionAborted):
        sent[1].result(WAIT_S)
    with producer.transaction():
        producer.send(topic, b"after")
    assert read(broker, topic) == [b"after"]
    assert read(broker, topic, isolation="read_uncommitted") == [b"aborted", b"after"]


def test_consumer_that_commits_by_itself_is_refused(broker: RunningBroker, make_producer: MakeProducer) -> None:
    problem = r"enable\.auto\.commit is true.*enable_auto_commit=False"
    producer = make_producer()
    with (
        Consumer(bootstrap_servers=broker.bootstrap, group_id=unique("g")) as consumer,
        pytest.raises(ConfigurationError, match=problem),
    ):
        producer.transaction(consumer)

    async def refused() -> None:
        other_producer: AsyncProducer[Any, Any] = AsyncProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="t"
        )
        other: AsyncConsumer[Any, Any] = AsyncConsumer(bootstrap_servers=broker.bootstrap, group_id="g")
        with pytest.raises(ConfigurationError, match=problem):
            other_producer.transaction(other)
        await other_producer.close()
        await other.close()

    asyncio.run(refused())


def test_misuse_is_one_clear_line(broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer) -> None:
    topic, producer = make_topic(), make_producer()
    with producer.transaction():
        producer.send(topic, b"1")
    with pytest.raises(InvalidTransactionState, match=r"^send\(\) is not possible for '.*': .*begin_transaction"):
        producer.send(topic, b"2")
    with pytest.raises(InvalidTransactionState, match="begin_transaction"):
        producer.send_batch(topic, pa.table({"value": [b"x"]}))
    with pytest.raises(InvalidTransactionState, match="begin_transaction"):
        producer.commit_transaction()
    producer.begin_transaction()
    with pytest.raises(InvalidTransactionState, match="a transaction is open"):
        producer.begin_transaction()
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer, pytest.raises(ConfigurationError, match="group_id"):
        producer.send_offsets_to_transaction({(topic, 0): 1}, consumer.group_metadata())
    producer.abort_transaction()
    plain: Producer
    with (
        Producer(bootstrap_servers=broker.bootstrap) as plain,
        pytest.raises(InvalidTransactionState, match="transactional_id"),
    ):
        plain.init_transactions()
    assert read(broker, topic) == [b"1"]


def test_second_producer_of_the_same_id_fences_the_first_at_once(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, name = make_topic(), unique("tx")
    first = make_producer(name)
    first.begin_transaction()
    first.send(topic, b"of the first").result(WAIT_S)
    begun = time.monotonic()
    second = make_producer(name)
    assert time.monotonic() - begun < 3
    with pytest.raises(ProducerUnusable) as raised:
        first.commit_transaction(WAIT_S)
    assert isinstance(raised.value, ProducerFenced)
    with pytest.raises(ProducerFenced):
        first.begin_transaction()
    with second.transaction():
        second.send(topic, b"of the second")
    assert read(broker, topic) == [b"of the second"]


def test_fenced_producer_learns_it_from_its_records_too(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, name = make_topic(), unique("tx")
    first = make_producer(name)
    make_producer(name)
    with pytest.raises(ProducerFenced), first.transaction():
        first.send(topic, b"zombie")
    assert read(broker, topic) == []


def test_transaction_that_takes_too_long_is_aborted_and_says_so(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, name = make_topic(), unique("tx")
    producer = make_producer(name, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.send(topic, b"late").result(WAIT_S)
    deadline = time.monotonic() + 20
    while read(broker, topic, isolation="read_uncommitted") and time.monotonic() < deadline:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            (described,) = admin.describe_producers([(topic, 0)]).values()
            if all(one.transaction_start_offset is None for one in described):
                break
        time.sleep(0.3)
    with pytest.raises((ProducerUnusable, TransactionFailed), match=r"transaction\.timeout\.ms|abort_transaction"):
        producer.commit_transaction(WAIT_S)
    again = make_producer(name)
    with again.transaction():
        again.send(topic, b"in time")
    assert read(broker, topic) == [b"in time"]


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, group, producer = make_topic(), unique("g"), make_producer()
    marker = {TopicPartition(topic, 0): OffsetAndMetadata(7, metadata="tasks=3")}
    with producer.transaction():
        producer.send_offsets_to_transaction(marker, group)
    assert committed(broker, group, topic) == marker[TopicPartition(topic, 0)]
    producer.begin_transaction()
    producer.send_offsets_to_transaction({(topic, 0): 8}, group)
    producer.abort_transaction()
    assert committed(broker, group, topic) == marker[TopicPartition(topic, 0)]
    with producer.transaction():
        producer.send_offsets_to_transaction({(topic, 0): 9}, group)
        producer.send_offsets_to_transaction({(topic, 0): 10}, GroupMetadata(group))
    found = committed(broker, group, topic)
    assert found is not None
    assert found.offset == 10


def test_member_of_an_old_generation_cannot_commit_offsets(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, group, producer = make_topic(), unique("g"), make_producer()
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.2)
        member = consumer.group_metadata()
        assert member.generation > 0
        with producer.transaction():
            producer.send(topic, b"mine")
            producer.send_offsets_to_transaction({(topic, 0): 1}, member)
        producer.begin_transaction()
        producer.send(topic, b"of an old member")
        with pytest.raises(TransactionFailed, match="rebalanced"):
            producer.send_offsets_to_transaction({(topic, 0): 2}, member._replace(generation=member.generation - 1))
        with pytest.raises(TransactionFailed):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again")
    assert read(broker, topic) == [b"mine", b"again"]


def test_columns_are_sent_in_transactions(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(2), make_producer(**{"batch.size": 2000})
    rows = pa.table({"value": [b"%05d" % i for i in range(5000)], "partition": [i % 2 for i in range(5000)]})
    for end in ("abort", "commit", "commit"):
        producer.begin_transaction()
        producer.send_batch(topic, rows)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
    assert sorted(read(broker, topic, 2)) == sorted(rows["value"].to_pylist() * 2)


def test_close_inside_a_transaction_aborts_it(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, name = make_topic(), unique("tx")
    producer: Producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"1").result(WAIT_S)
    producer.close()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        (described,) = admin.describe_producers([(topic, 0)]).values()
    assert [one.transaction_start_offset for one in described] == [None]


def test_dropped_producer_aborts_its_transaction(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer: Producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx"))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"1").result(WAIT_S)
    with pytest.warns(ResourceWarning, match="unclosed producer"):
        del producer
    deadline = time.monotonic() + WAIT_S
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        while True:
            (described,) = admin.describe_producers([(topic, 0)]).values()
            if [one.transaction_start_offset for one in described] == [None]:
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_producer_of_a_killed_program_is_replaced_and_nothing_of_its_transaction_is_seen(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, name = make_topic(), unique("tx")
    program = f"""
import time
from ottla.clients import Producer
producer = Producer(bootstrap_servers={broker.bootstrap!r}, transactional_id={name!r})
producer.init_transactions()
with producer.transaction():
    producer.send({topic!r}, b"committed")
producer.begin_transaction()
producer.send({topic!r}, b"in the middle").result()
print("ready", flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(WAIT_S)
        child.stdout.close()  # type: ignore[union-attr]
    producer = make_producer(name)
    with producer.transaction():
        producer.send(topic, b"of the successor")
    assert read(broker, topic) == [b"committed", b"of the successor"]


def test_forked_child_cannot_end_the_transaction_of_its_parent(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(), make_producer()
    with producer.transaction():
        producer.send(topic, b"1")

        def count_failures() -> int:
            failed = 0
            for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
                try:
                    call()
                except ClientError:
                    failed += 1
            return failed

        assert deadlines.code_of_fork(count_failures) == 3
    # The coordinator answers before the marker is written.
    wait_until(lambda: read(broker, topic) == [b"1"], "the record is readable")


def test_unreachable_coordinator_ends_the_wait_and_the_call_may_be_repeated() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", transactional_id="tx", max_block_ms=300) as producer:
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(RequestTimedOut, match="same call again"):
                producer.init_transactions()
            assert time.monotonic() - begun < 3
        with pytest.raises(InvalidTransactionState, match="init_transactions"):
            producer.begin_transaction()


def test_threads_share_a_transaction(broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer) -> None:
    topic, producer = make_topic(2), make_producer(**{"linger.ms": 0})
    for _ in range(3):
        producer.begin_transaction()
        threads = [
            threading.Thread(target=lambda n=n: [producer.send(topic, b"%d" % n, partition=n % 2) for _ in range(500)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            deadlines.join(thread, "a thread that sends")
        producer.commit_transaction()
    assert sorted(read(broker, topic, 2)) == sorted(b"%d" % n for n in range(4) for _ in range(1500))


def test_asyncio_producer_commits_and_aborts(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("g")

    async def fail(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"2")
            raise KeyError("x")

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx")) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(topic, b"1")
                await producer.send_offsets_to_transaction({(topic, 0): 3}, group)
            with pytest.raises(KeyError):
                await fail(producer)
            await producer.begin_transaction()
            await producer.send_batch(topic, pa.table({"value": [b"3"]}))
            await producer.commit_transaction()
            with pytest.raises(InvalidTransactionState):
                await producer.send(topic, b"4")
            await producer.begin_transaction()
            await producer.send(topic, b"5")

    asyncio.run(main())
    assert read(broker, topic) == [b"1", b"3"]
    found = committed(broker, group, topic)
    assert found is not None
    assert found.offset == 3


def test_admin_lists_and_describes_transactions(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, name = make_topic(2), unique("listed")
    producer = make_producer(name, **{"transaction.timeout.ms": 34_000})
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        ours = [row for row in admin.list_transactions() if row.transactional_id == name]
        assert [row.state for row in ours] == [TransactionState.EMPTY]
        with producer.transaction():
            producer.send(topic, b"x", partition=1).result(WAIT_S)
            described = admin.describe_transactions([name])[name]
            assert (described.state, described.timeout_ms) == (TransactionState.ONGOING, 34_000)
            assert described.partitions == (TopicPartition(topic, 1),)
            assert described.start_ms is not None
            assert abs(described.start_ms - time.time() * 1000) < 60_000
            (listed,) = admin.list_transactions(states=[TransactionState.ONGOING], producer_ids=[described.producer_id])
            assert (listed.transactional_id, listed.producer_id) == (name, described.producer_id)
            assert listed not in admin.list_transactions(min_duration_ms=60_000)
            assert admin.list_transactions(pattern=f"{name[:-1]}.") == [listed]
            assert admin.list_transactions(pattern=name[:-1]) == []
            with pytest.raises(BrokerError, match=r"^The pattern '\(' is not a regular expression") as invalid:
                admin.list_transactions(pattern="(")
            assert invalid.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        with pytest.raises(PartialFailure) as raised:
            admin.describe_transactions([name, "unknown"])
        assert isinstance(raised.value.errors["unknown"], TransactionalIdNotFound)
        assert list(raised.value.results) == [name]


def test_admin_fences_producers_and_aborts_their_transactions(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, names = make_topic(), [unique("fenced"), unique("fenced")]
    producers = [make_producer(name) for name in names]
    for producer in producers:
        producer.begin_transaction()
        producer.send(topic, b"x").result(WAIT_S)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        fenced = admin.fence_producers(names)
        assert list(fenced) == names
        for producer in producers:
            with pytest.raises(ProducerFenced):
                producer.commit_transaction(WAIT_S)
        assert {admin.describe_transactions([name])[name].state for name in names} == {TransactionState.EMPTY}
    assert read(broker, topic) == []


def test_admin_aborts_a_transaction_in_one_partition(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(), make_producer()
    producer.begin_transaction()
    producer.send(topic, b"x").result(WAIT_S)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        (hanging,) = admin.describe_producers([(topic, 0)])[TopicPartition(topic, 0)]
        assert hanging.transaction_start_offset == 0
        admin.abort_transaction((topic, 0), hanging)
        (ended,) = admin.describe_producers([(topic, 0)])[TopicPartition(topic, 0)]
        assert ended.transaction_start_offset is None
    assert read(broker, topic) == []


def test_example_copies_each_record_once_although_it_fails_in_between(
    broker: RunningBroker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make_topic(2), make_topic()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for i in range(100):
            producer.send(source, b"v%02d" % i, partition=i % 2)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    exactly_once = importlib.import_module("exactly_once")
    monkeypatch.setattr(exactly_once, "Consumer", partial(Consumer, max_poll_records=30, group_id=unique("g")))
    name, sent = unique("copy"), []
    send = Producer.send

    def fail_once(self: Producer, topic: str, *args: object, **kwargs: object) -> object:
        sent.append(topic)
        if len(sent) == 45:
            raise TransactionFailed("injected")
        return send(self, topic, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(exactly_once, "Producer", type("Failing", (Producer,), {"send": fail_once}))
    assert exactly_once.transform(broker.bootstrap, source, target, name, idle_polls=2) == 100
    assert sorted(read(broker, target)) == [b"V%02d" % i for i in range(100)]
    assert len(sent) > 100


def test_aborted_records_and_markers_are_skipped_by_all_readers(
    broker: RunningBroker, make_topic: MakeTopic, make_producer: MakeProducer
) -> None:
    topic, producer = make_topic(), make_producer(**{"compression.type": "lz4"})
    for number in range(6):
        producer.begin_transaction()
        for i in range(50):
            producer.send(topic, b"%d %d" % (number, i))
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.begin_transaction()
    producer.send(topic, b"open").result(WAIT_S)
    expected = [b"%d %d" % (number, i) for number in (0, 2, 4) for i in range(50)]
    settings = {"bootstrap_servers": broker.bootstrap, "isolation_level": "read_committed"}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        columns: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while len(columns) < 150 and time.monotonic() < deadline:
            columns += consumer.poll_arrow(0.5).column("value").to_pylist()
        assert columns == expected
        assert consumer.poll(0.3) == [], "the last transaction is open"
        assert consumer.position((topic, 0)) == 306
        assert consumer.lag((topic, 0)) == 0
        assert consumer.end_offsets([(topic, 0)])[TopicPartition(topic, 0)] == 306
        producer.commit_transaction()
        assert [record.value for record in consumer.poll(WAIT_S)] == [b"open"]
    shell = subprocess.run(
        [sys.executable, "-m", "ottla", "consume", topic, "--bootstrap-server", broker.bootstrap, "--isolation",
         "read_committed", "--exit-at-end"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert shell.returncode == 0, shell.stderr
    assert len(shell.stdout.splitlines()) == 151
