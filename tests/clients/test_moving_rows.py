"""Runs the rows of docs/clients-moving.md: the other client's snippets with that client, ours with Ottla's.

Each snippet in backticks is executed in a namespace with the objects that the page mentions (a topic with five records,
a producer `p`, a consumer `c`, ...). If both sides of a row return a value, the values must be equal after `COMPARED`.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pyarrow as pa
import pytest

from ottla import clients
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, unique

PAGE = Path(__file__).parents[2] / "docs" / "clients-moving.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
SNIPPET = re.compile(r"`([^`]+)`")
RECORDS = 5
# Cells that are not code: settings, exceptions, class names, values.
WORDS = re.compile(
    r"^(?!r\.)[\w.=]+$|^\[\]$|^for |^async |^\{TopicPartition|^(value_|error|json|event)|^h\(|^AIOKafkaAdmin"
)
# Rows whose two sides return the same value in different types: how to convert each side.
COMPARED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "p.flush(10)": (int, int),
    "p.list_topics(topic, 10).topics[topic].partitions": (sorted, lambda infos: [info.partition for info in infos]),
    "m.key(), m.value(), m.topic(), m.partition(), m.offset()": (tuple, tuple),
    "m.timestamp()[1]": (int, int),
    "m.timestamp()[0]": (lambda kind: kind - 1, lambda kind: kind.value),
    "c.get_watermark_offsets(tp)": (tuple, tuple),
    "c.offsets_for_times([TopicPartition(topic, 0, ms)])[0].offset": (int, int),
    "c.committed([tp], 10)[0].offset": (int, int),
    "p.partitions_for(topic)": (sorted, sorted),
    "await p.partitions_for(topic)": (sorted, sorted),
    "c.committed(tp)": (int, int),
    "await c.committed(tp)": (int, int),
    "c.beginning_offsets([tp])": (lambda given: list(given.values()), lambda given: list(given.values())),
    "c.end_offsets([tp])": (lambda given: list(given.values()), lambda given: list(given.values())),
    "c.offsets_for_times({tp: ms})[tp].offset": (int, int),
    "(await c.offsets_for_times({tp: ms}))[tp].offset": (int, int),
    "c.partitions_for_topic(topic)": (sorted, list),
    "(await c.end_offsets([tp]))[tp]": (int, int),
    "(await c.beginning_offsets([tp]))[tp]": (int, int),
    "(await c.getone()).value": (bytes, bytes),
}


def snippets(cell: str) -> list[str]:
    """Return the code of one cell."""
    return [text for text in SNIPPET.findall(cell) if not WORDS.match(text)]


def rows(section: str) -> list[tuple[str, str]]:
    found = [(left, right) for left, right in ROW.findall(SECTIONS[section]) if "`" in left]
    assert len(found) > 15
    return found


async def run(code: str, names: dict[str, Any]) -> Any:
    """Return the value of an expression, or None after a statement. Both may use `await`."""
    tree = compile(code, PAGE.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    is_expression = len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)  # type: ignore[attr-defined]
    kind = "eval" if is_expression else "exec"
    made = eval(compile(code, PAGE.name, kind, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return await made if inspect.iscoroutine(made) else made


class Side:
    """One client: its namespace, and a function that creates a consumer at offset 3 of partition 0 for each row."""

    def __init__(self, story: Story, names: dict[str, Any], make: Callable[[str, bool], Any]) -> None:
        self.names = {**story.names, **names, "name": unique("made")}
        self._story = story
        self._make = make

    async def run_row(self, codes: list[str], where: str) -> Any:
        """Return the value of the first snippet. Clients that the row creates are closed."""
        group = unique("g")
        self._story.commit(group)
        kept = self.names.get("p")
        self.names["group"] = group
        self.names["c"] = made = await _awaited(self._make(group, any("subscribe" in code for code in codes)))
        first: Any = None
        for number, code in enumerate(codes):
            try:
                value = await run(code, self.names)
            except Exception as error:
                raise AssertionError(f"{where}\n{code}\n{error!r}") from error
            first = value if number == 0 else first
            await close(value)
        for left in {id(each): each for each in (made, self.names["c"])}.values():
            await close(left)
        if self.names.get("p") is not kept:
            await close(self.names["p"])
            self.names["p"] = kept
        return first


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def close(thing: Any) -> None:
    """Close a client of any library."""
    if isinstance(thing, (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer)):
        await thing.stop()
    elif isinstance(thing, confluent_kafka.Producer):
        thing.flush(WAIT_S)
    elif any(isinstance(thing, kind) for kind in CLOSED):
        await _awaited(thing.close())


CLOSED = (
    kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient, confluent_kafka.Consumer, clients.Producer,
    clients.Consumer, clients.Admin, clients.AsyncProducer, clients.AsyncConsumer,
)  # fmt: skip


async def compare(section: str, theirs: Side, ours: Side) -> None:
    """Run both sides of each row, and compare their values after `COMPARED`."""
    compared = 0
    for left, right in rows(section):
        before, after = snippets(left), snippets(right)
        where = f"{section}: | {left} | {right} |"
        values = [await side.run_row(codes, where) for side, codes in ((theirs, before), (ours, after))]
        how = COMPARED.get(before[0]) if before else None
        if how is not None:
            compared += 1
            assert None not in values, f"{where}: {values}"
            assert how[0](values[0]) == how[1](values[1]), where
    assert compared >= 5


class Story:
    """A topic with five records, and the names that both sides of the tables use."""

    def __init__(self, bootstrap: str, topic: str, admin: clients.Admin, delivery: clients.Delivery) -> None:
        self._admin = admin
        self.bootstrap = bootstrap
        self.delivery = delivery
        self.tp = clients.TopicPartition(topic, 0)
        self.names: dict[str, Any] = {
            "topic": topic, "bootstrap": bootstrap, "ms": FIRST_TIMESTAMP + 2, "table": pa.table({"value": ["a"]}),
            "f": print_nothing, "g": print_nothing, "h": print_nothing, "callback": print_nothing,
            "on_assigned": print_nothing, "on_assign": print_nothing, "on_delivery": print_nothing,
            "on_revoked": print_nothing, "on_revoke": print_nothing, "on_lost": print_nothing,
            "__builtins__": builtins,
        }  # fmt: skip

    def commit(self, group: str) -> None:
        """Commit offset 3 for the group."""
        self._admin.alter_group_offsets(group, {self.tp: 3})


def print_nothing(*_: object) -> None:
    """A callback or listener."""


@pytest.fixture
def story(broker: RunningBroker, make_topic: MakeTopic) -> Iterator[Story]:
    topic = make_topic(2)
    with clients.Producer(bootstrap_servers=broker.bootstrap) as producer:
        sent = [
            producer.send(topic, b"%d" % i, key=b"k", partition=0, timestamp_ms=FIRST_TIMESTAMP + i)
            for i in range(RECORDS)
        ]
    with clients.Admin(broker.bootstrap) as admin:
        yield Story(broker.bootstrap, topic, admin, sent[-1])


def our_names(story: Story) -> dict[str, Any]:
    with clients.Consumer(bootstrap_servers=story.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([story.tp])
        record = consumer.poll(WAIT_S)[0]
    names = {
        name: getattr(clients, name) for name in ("Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer")
    }
    names["groupby"] = groupby
    settings = {"bootstrap.servers": story.bootstrap}
    return {
        **names,
        "tp": story.tp,
        "tp1": clients.TopicPartition(story.tp.topic, 1),
        "r": record,
        "d": story.delivery,
        "settings": settings,
    }


def our_side(story: Story, producer: clients.Producer) -> Side:
    def make(group: str, subscribes: bool) -> clients.Consumer:
        consumer = clients.Consumer(
            bootstrap_servers=story.bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_offset_store=False,
        )  # fmt: skip
        if not subscribes:
            consumer.assign([story.tp])
            consumer.seek(story.tp, 1)
            consumer.poll(WAIT_S, max_records=1)
        return consumer

    return Side(story, {**our_names(story), "p": producer}, make)


def test_rows_of_confluent_kafka(story: Story) -> None:
    tp = confluent_kafka.TopicPartition(story.tp.topic, 0)
    base = {"bootstrap.servers": story.bootstrap, "log_level": 2}

    def make(group: str, subscribes: bool) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {**base, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.offset.store": False}
        )
        if not subscribes:
            consumer.assign([confluent_kafka.TopicPartition(story.tp.topic, 0, 1)])
            first = consumer.poll(WAIT_S)
            assert first is not None
            consumer.store_offsets(first)
        return consumer

    first = make(unique("g"), subscribes=False)
    first.assign([confluent_kafka.TopicPartition(story.tp.topic, 0, 0)])
    message = first.poll(WAIT_S)
    first.close()
    names = {
        "Producer": confluent_kafka.Producer, "TopicPartition": confluent_kafka.TopicPartition, "m": message,
        "AdminClient": confluent_kafka.admin.AdminClient, "NewTopic": confluent_kafka.admin.NewTopic, "tp": tp,
        "tp1": confluent_kafka.TopicPartition(story.tp.topic, 1, 0), "settings": base,
        "p": confluent_kafka.Producer(base),
    }  # fmt: skip
    with clients.Producer(bootstrap_servers=story.bootstrap) as producer:
        asyncio.run(compare("From confluent-kafka", Side(story, names, make), our_side(story, producer)))


def test_rows_of_kafka_python(story: Story) -> None:
    def make(group: str, subscribes: bool) -> kafka.KafkaConsumer:
        consumer = kafka.KafkaConsumer(bootstrap_servers=story.bootstrap, group_id=group, auto_offset_reset="earliest")
        if not subscribes:
            consumer.assign([kafka.TopicPartition(*story.tp)])
            consumer.seek(kafka.TopicPartition(*story.tp), 1)
            consumer.poll(timeout_ms=WAIT_S * 1000, max_records=1)
        return consumer

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: object) -> None: ...
        def on_partitions_revoked(self, revoked: object) -> None: ...

    names = {
        "KafkaProducer": kafka.KafkaProducer, "KafkaConsumer": kafka.KafkaConsumer, "listener": Listener(),
        "KafkaAdminClient": kafka.KafkaAdminClient, "NewTopic": kafka.admin.NewTopic,
        "tp": kafka.TopicPartition(*story.tp), "p": kafka.KafkaProducer(bootstrap_servers=story.bootstrap),
    }  # fmt: skip
    with clients.Producer(bootstrap_servers=story.bootstrap) as producer:
        asyncio.run(compare("From kafka-python", Side(story, names, make), our_side(story, producer)))
    names["p"].close()


def test_rows_of_aiokafka(story: Story) -> None:
    tp = aiokafka.TopicPartition(*story.tp)

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: object) -> None: ...
        def on_partitions_revoked(self, revoked: object) -> None: ...

    async def make_theirs(group: str, subscribes: bool) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=story.bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        if not subscribes:
            consumer.assign([tp])
            consumer.seek(tp, 1)
        return consumer

    async def make_ours(group: str, subscribes: bool) -> clients.AsyncConsumer:
        consumer = clients.AsyncConsumer(
            bootstrap_servers=story.bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        if not subscribes:
            consumer.assign([story.tp])
            consumer.seek(story.tp, 1)
        return consumer

    async def run_all() -> None:
        theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=story.bootstrap)
        await theirs.start()
        names = {
            "AIOKafkaProducer": aiokafka.AIOKafkaProducer, "AIOKafkaConsumer": aiokafka.AIOKafkaConsumer, "tp": tp,
            "p": theirs, "batch": theirs.create_batch(), "listener": Listener(),
        }  # fmt: skip
        async with clients.AsyncProducer(bootstrap_servers=story.bootstrap) as ours:
            our = Side(story, {**our_names(story), "p": ours}, make_ours)
            await compare("From aiokafka", Side(story, names, make_theirs), our)
        await theirs.stop()

    asyncio.run(run_all())


def test_empty_commits_and_default_partitioners_differ_as_the_page_says(story: Story) -> None:
    with clients.Consumer(bootstrap_servers=story.bootstrap, group_id=unique("g")) as consumer:
        assert consumer.committed([story.tp]) == {story.tp: None}
    theirs = confluent_kafka.Consumer({"bootstrap.servers": story.bootstrap, "group.id": unique("g"), "log_level": 2})
    assert theirs.committed([confluent_kafka.TopicPartition(*story.tp)], WAIT_S)[0].offset == -1001
    theirs.close()


def test_poll_returns_the_records_of_a_partition_together(story: Story) -> None:
    with clients.Producer(bootstrap_servers=story.bootstrap) as producer:
        for n in range(200):
            producer.send(story.tp.topic, b"%d" % n, partition=n % 2).result(WAIT_S)
    with clients.Consumer(bootstrap_servers=story.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(story.tp.topic, 0), (story.tp.topic, 1)])
        read = 0
        for _ in range(1_000):
            records = consumer.poll(WAIT_S, max_records=90)
            runs = [tp for tp, _ in groupby(records, lambda record: record.topic_partition)]
            assert len(runs) == len(set(runs))
            read += len(records)
            if read == RECORDS + 200:
                return
        raise AssertionError(f"{read} records after a thousand polls")


def test_aiokafka_member_shares_a_group_only_with_a_common_assignor(story: Story) -> None:
    async def join(group: str, **settings: str) -> list[clients.TopicPartition]:
        theirs = aiokafka.AIOKafkaConsumer(story.tp.topic, bootstrap_servers=story.bootstrap, group_id=group)
        await theirs.start()
        try:
            async with clients.AsyncConsumer(bootstrap_servers=story.bootstrap, group_id=group, **settings) as ours:
                ours.subscribe(story.tp.topic)
                for _ in range(100):
                    await ours.poll(WAIT_S / 100)
                    if ours.assignment():
                        break
                return ours.assignment()
        finally:
            await theirs.stop()

    with pytest.raises(clients.InconsistentGroupProtocol):
        asyncio.run(join(unique("g")))
    assert len(asyncio.run(join(unique("g"), partition_assignment_strategy="roundrobin"))) == 1
