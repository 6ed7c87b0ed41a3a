"""The driver's side of the source against real brokers, called as Spark calls it, but without a session."""

from __future__ import annotations

import asyncio
import json
import pickle
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.spark.cluster import ClusterError, CommitError
from ottla.spark.offsets import OFFSET_MAX, OffsetRange
from ottla.spark.options import OptionError, read_source_options
from ottla.spark.range_reader import read_range
from ottla.spark.readers import BatchReader, DataLossError, RangePartition, StreamReader
from tests import deadlines
from tests.clients.secured import sasl
from tests.clients.support import FIRST_TIMESTAMP, unique
from tests.conftest import TEST_PROPERTIES, RunningBroker
from tests.ottla_process import ForkedOttla
from tests.peers.secured import SecuredKafka, password_of

ALL = ReadMaxRows(OFFSET_MAX)


class Topics:
    """Creates, fills and deletes the topics of a test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Admin(bootstrap)
        self._producer = Producer(bootstrap_servers=bootstrap)

    def make(self, name: str | None = None, partitions: int = 1) -> str:
        name = name or unique("read")
        self.admin.create_topic(name, partitions=partitions, replication_factor=1)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topic(name)
        deadline = time.monotonic() + 10
        while any(topic.name == name for topic in self.admin.list_topics()):
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.05)

    def send(self, topic: str, count: int, partition: int = 0, first_timestamp: int = FIRST_TIMESTAMP) -> None:
        for i in range(count):
            self._producer.send(topic, b"v%d" % i, partition=partition, timestamp_ms=first_timestamp + i * 1000)
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()
        self.admin.close()


@pytest.fixture
def topics(broker: RunningBroker) -> Iterator[Topics]:
    made = Topics(broker.bootstrap)
    yield made
    made.close()


class Stream(Protocol):
    def __call__(self, topic: str, **given: str) -> StreamReader: ...


def options(bootstrap: str, topic: str, given: dict[str, str], *, streaming: bool) -> Any:
    settings = {"kafka.bootstrap.servers": bootstrap, "kafka.metadata.max.age.ms": "0"}
    settings |= {name.replace("_", "."): value for name, value in given.items()}
    if "subscribePattern" not in given and "assign" not in given:
        settings["subscribe"] = topic
    return read_source_options(settings, streaming=streaming)


@pytest.fixture
def stream(topics: Topics) -> Iterator[Stream]:
    """Return a function that opens the reader of a new query. Readers refresh metadata on each call."""
    made: list[StreamReader] = []

    def make(topic: str, **given: str) -> StreamReader:
        made.append(StreamReader(options(topics.bootstrap, topic, given, streaming=True)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


@pytest.fixture
def batch(topics: Topics) -> Callable[..., list[OffsetRange]]:
    """Return a function that plans a batch read and returns its ranges."""

    def read(topic: str, **given: str) -> list[OffsetRange]:
        reader = BatchReader(options(topics.bootstrap, topic, given, streaming=False))
        return ranges(reader.partitions())

    return read


def ranges(partitions: Any) -> list[OffsetRange]:
    assert all(isinstance(partition, RangePartition) for partition in partitions)
    assert pickle.loads(pickle.dumps(list(partitions)))[0:1] is not None
    return [rng for partition in partitions for rng in partition.value]


def sizes(found: list[OffsetRange]) -> list[int]:
    return [one.size for one in found]


# -- batch -------------------------------------------------------------------------------------------------------


@pytest.mark.both
def test_batch_reads_all_records_between_start_and_end(topics: Topics, batch: Callable[..., list[OffsetRange]]) -> None:
    topic = topics.make(partitions=2)
    topics.send(topic, 10, 0)
    topics.send(topic, 4, 1)
    assert batch(topic) == [OffsetRange(topic, 0, 0, 10), OffsetRange(topic, 1, 0, 4)]
    start, end = json.dumps({topic: {"0": 3, "1": -2}}), json.dumps({topic: {"0": 7, "1": -1}})
    assert batch(topic, startingOffsets=start, endingOffsets=end) == [
        OffsetRange(topic, 0, 3, 7),
        OffsetRange(topic, 1, 0, 4),
    ]
    assert batch(topic, assign=json.dumps({topic: [1]})) == [OffsetRange(topic, 1, 0, 4)]
    assert sizes(batch(topic, minPartitions="6")) == [2, 3, 2, 3, 2, 2] or len(batch(topic, minPartitions="6")) == 6
    assert max(sizes(batch(topic, maxRecordsPerPartition="3"))) == 3
    with pytest.raises(OptionError, match=r"no entry for .*-1; it must include every partition"):
        batch(topic, startingOffsets=json.dumps({topic: {"0": 3}}))


@pytest.mark.both
def test_batch_starts_and_ends_at_timestamps(topics: Topics, batch: Callable[..., list[OffsetRange]]) -> None:
    topic = topics.make(partitions=2)
    topics.send(topic, 10, 0)
    topics.send(topic, 3, 1)
    third, fifth = str(FIRST_TIMESTAMP + 1500), str(FIRST_TIMESTAMP + 5000)
    assert batch(topic, startingTimestamp=third, endingTimestamp=fifth) == [
        OffsetRange(topic, 0, 2, 5),
        OffsetRange(topic, 1, 2, 3),  # no record is as new as the timestamp: the end
    ]
    with pytest.raises(OptionError, match=r"no record at or after .*startingOffsetsByTimestampStrategy=latest"):
        batch(topic, startingTimestamp=fifth)
    late = {"startingTimestamp": fifth, "startingOffsetsByTimestampStrategy": "latest"}
    assert batch(topic, **late) == [OffsetRange(topic, 0, 5, 10)]
    each = json.dumps({topic: {"0": FIRST_TIMESTAMP + 9000, "1": FIRST_TIMESTAMP}})
    assert batch(topic, startingOffsetsByTimestamp=each) == [OffsetRange(topic, 0, 9, 10), OffsetRange(topic, 1, 0, 3)]


@pytest.mark.both
def test_deleted_offsets_are_a_loss_or_skipped(topics: Topics, batch: Callable[..., list[OffsetRange]]) -> None:
    topic = topics.make()
    topics.send(topic, 10)
    topics.admin.delete_records({TopicPartition(topic, 0): 4})
    start, end = json.dumps({topic: {"0": 1}}), json.dumps({topic: {"0": 99}})
    assert batch(topic) == [OffsetRange(topic, 0, 4, 10)]
    with pytest.raises(DataLossError, match="starts at offset 4, after 1"):
        batch(topic, startingOffsets=start)
    with pytest.raises(DataLossError, match="ends at offset 10, before 99"):
        batch(topic, endingOffsets=end)
    assert batch(topic, startingOffsets=start, endingOffsets=end, failOnDataLoss="false") == [
        OffsetRange(topic, 0, 4, 10)
    ]


@pytest.mark.both
def test_pattern_reads_matching_topics(topics: Topics, batch: Callable[..., list[OffsetRange]]) -> None:
    name = unique("pattern")
    for suffix in ("-a", "-b", "-c-not"):
        topics.send(topics.make(name + suffix), 2)
    found = batch("", subscribePattern=f"{name}-[a-c]")
    assert [one.topic for one in found] == [f"{name}-a", f"{name}-b"]
    assert batch("", subscribePattern=f"{name}-nothing.*") == []


@pytest.mark.both
def test_missing_topic_or_partition_is_named(topics: Topics, batch: Callable[..., list[OffsetRange]]) -> None:
    topic = topics.make()
    with pytest.raises(ClusterError, match="has no topic no-such-topic; create it first"):
        batch(f"{topic},no-such-topic")
    with pytest.raises(ClusterError, match=f"has no partition {topic}-7"):
        batch("", assign=json.dumps({topic: [0, 7]}))


def test_unreachable_cluster_is_retried_and_then_named() -> None:
    given = {"kafka_default_api_timeout_ms": "3000"}
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"Asking 127\.0\.0\.1:1 for topics failed: .*127\.0\.0\.1:1"):
        BatchReader(options("127.0.0.1:1", "t", given, streaming=False)).partitions()
    assert 0.5 < time.monotonic() - began < 8


def test_read_authenticates_with_the_settings_of_sparks_kafka_source(secured: SecuredKafka) -> None:
    settings = sasl(secured, "SCRAM-SHA-512", listener="SASL_SSL")
    topic = unique("secured")
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"safe").result(20)
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    given = {
        "subscribe": topic,
        "kafka.bootstrap.servers": secured.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.certificates.ca),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{login} required username="admin" password="{password_of("admin")}";',
    }
    asked = read_source_options(given, streaming=False)
    (found,) = ranges(BatchReader(asked).partitions())
    (rows,) = read_range(asked.client, found)
    assert rows.column("value").to_pylist() == [b"safe"]
    wrong = given | {"kafka.sasl.jaas.config": f'{login} required username="admin" password="wrong";'}
    with pytest.raises(ClusterError, match="Authentication failed"):
        BatchReader(read_source_options(wrong, streaming=False)).partitions()


# -- streams -----------------------------------------------------------------------------------------------------


@pytest.mark.both
def test_batches_have_the_maximum_size_and_reach_the_end(topics: Topics, stream: Stream) -> None:
    topic = topics.make(partitions=2)
    topics.send(topic, 30, 0)
    topics.send(topic, 10, 1)
    reader = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    at = reader.initialOffset()
    assert at == {topic: {"0": 0, "1": 0}}
    taken = []
    while (end := reader.latestOffset(at, ReadMaxRows(20))) != at:
        taken.append(sum(sizes(ranges(reader.partitions(at, end)))))
        at = json.loads(json.dumps(end))
    assert taken == [20, 20]
    assert reader.reportLatestOffset() == at == {topic: {"0": 30, "1": 10}}


@pytest.mark.both
def test_first_batch_of_a_query_from_latest_is_empty_and_stores_the_start(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    topics.send(topic, 5)
    reader = stream(topic)
    start = reader.initialOffset()
    topics.send(topic, 3)
    assert reader.initialOffset() == start == {topic: {"0": 5}}, "now is the first time it was asked"
    assert reader.latestOffset(start, ALL) == start
    assert reader.latestOffset(start, ALL) == {topic: {"0": 8}}
    once = stream(topic)
    now = once.initialOffset()
    topics.send(topic, 2)
    assert once.latestOffset(now, ReadAllAvailable()) == {topic: {"0": 10}}, "Trigger.Once has one batch only"


@pytest.mark.both
def test_first_batch_planned_by_a_crashed_run_is_rerun_without_a_loss(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    topics.send(topic, 5)
    planned = stream(topic).initialOffset()
    topics.send(topic, 3)
    topics.admin.create_partitions({topic: 2})
    second = stream(topic)
    start = second.initialOffset()
    assert start == {topic: {"0": 8, "1": 0}}
    assert second.partitions(start, planned) == []
    assert second.latestOffset(planned, ALL) == {topic: {"0": 8, "1": 0}}
    assert ranges(second.partitions(planned, {topic: {"0": 8, "1": 0}})) == [OffsetRange(topic, 0, 5, 8)]


@pytest.mark.both
def test_new_partitions_and_topics_are_read_from_their_start(topics: Topics, stream: Stream) -> None:
    name = unique("grows")
    first = topics.make(f"{name}-a")
    reader = stream("", subscribePattern=f"{name}-.*", startingOffsets="earliest")
    at = reader.initialOffset()
    topics.admin.create_partitions({first: 2})
    second = topics.make(f"{name}-b")
    topics.send(first, 4, 1)
    topics.send(second, 6)
    end = reader.latestOffset(at, ReadMaxRows(1000))
    assert end == {first: {"0": 0, "1": 4}, second: {"0": 6}}
    assert ranges(reader.partitions(at, end)) == [OffsetRange(first, 1, 0, 4), OffsetRange(second, 0, 0, 6)]


@pytest.mark.both
def test_recreated_topic_is_a_loss_or_read_from_its_start(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    topics.send(topic, 5)
    strict, lenient = (stream(topic, startingOffsets="earliest", failOnDataLoss=word) for word in ("true", "false"))
    for reader in (strict, lenient):
        assert reader.latestOffset(reader.initialOffset(), ALL) == {topic: {"0": 5}}
    topics.delete(topic)
    topics.make(topic)
    topics.send(topic, 9)  # more records than before: only the topic id differs
    at = {topic: {"0": 5}}
    with pytest.raises(DataLossError, match=r"deleted and created again; the query was at offset 5.*failOnDataLoss"):
        strict.latestOffset(at, ALL)
    back = lenient.latestOffset(at, ALL)
    assert back == {topic: {"0": 0}}
    assert lenient.partitions(at, back) == []
    assert lenient.latestOffset(back, ALL) == {topic: {"0": 9}}


@pytest.mark.both
def test_deleted_topic_is_a_loss_or_omitted(topics: Topics, stream: Stream) -> None:
    kept, deleted = topics.make(), topics.make()
    topics.send(kept, 2)
    topics.send(deleted, 2)
    strict, lenient = (
        stream(f"{kept},{deleted}", startingOffsets="earliest", failOnDataLoss=word) for word in ("true", "false")
    )
    for reader in (strict, lenient):
        reader.latestOffset(reader.initialOffset(), ALL)
    at = {kept: {"0": 2}, deleted: {"0": 2}}
    topics.delete(deleted)
    with pytest.raises(DataLossError, match=f"{deleted}-0 no longer exists"):
        strict.latestOffset(at, ALL)
    assert lenient.latestOffset(at, ALL) == {kept: {"0": 2}}


@pytest.mark.both
def test_query_waits_for_min_offsets_at_most_max_trigger_delay(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    reader = stream(topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1s")
    at = reader.initialOffset()
    topics.send(topic, 2)
    at = reader.latestOffset(at, ALL)
    assert at == {topic: {"0": 2}}, "the first batch does not wait"
    topics.send(topic, 3)
    assert reader.latestOffset(at, ALL) == at
    topics.send(topic, 7)
    at = reader.latestOffset(at, ALL)
    assert at == {topic: {"0": 12}}
    topics.send(topic, 1)
    assert reader.latestOffset(at, ALL) == at
    time.sleep(1.1)
    assert reader.latestOffset(at, ALL) == {topic: {"0": 13}}


@pytest.mark.both
def test_available_now_query_ends_at_the_ends_of_its_start(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    topics.send(topic, 10)
    reader = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    topics.send(topic, 5)
    at = reader.initialOffset()
    seen = []
    while (end := reader.latestOffset(at, ReadMaxRows(6))) != at:
        seen.append(end[topic]["0"])
        at = end
    assert seen == [6, 10], "what came later is for the next run, and the rest is not waited for"
    latest = stream(topic)
    latest.prepareForTriggerAvailableNow()
    topics.send(topic, 1)
    assert latest.initialOffset() == {topic: {"0": 15}}, "never after its own end"


# -- the group ---------------------------------------------------------------------------------------------------


def committed(topics: Topics, group: str) -> dict[int, int]:
    return {tp.partition: at.offset for tp, at in topics.admin.list_group_offsets(group).items()}


@pytest.mark.both
def test_processed_offsets_are_committed_including_the_last_batch(
    topics: Topics, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = topics.make(partitions=2), unique("group")
    topics.send(topic, 5, 0)
    reader = stream(topic, startingOffsets="earliest", commitGroup=group)
    start = reader.initialOffset()
    admin = reader._connected()._admin
    commit = admin.alter_group_offsets

    async def late(*given: Any) -> None:
        await asyncio.sleep(0.3)
        await commit(*given)

    monkeypatch.setattr(admin, "alter_group_offsets", late)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 5, "1": 0}}
    assert committed(topics, group).get(0, 0) == 0, "this batch is not processed yet"
    assert reader.latestOffset(end, ALL) == end
    assert committed(topics, group) == {0: 5, 1: 0}
    assert sum(row.lag for row in topics.admin.group_lag(group).values()) == 0
    topics.send(topic, 4, 1)
    assert sum(row.lag for row in topics.admin.group_lag(group).values()) == 4
    last = reader.latestOffset(end, ALL)
    reader.commit(last)
    reader.stop()
    assert committed(topics, group) == {0: 5, 1: 4}


@pytest.mark.both
def test_commit_group_with_members_is_rejected_by_name(topics: Topics, stream: Stream) -> None:
    topic, group = topics.make(), unique("group")
    topics.send(topic, 1)
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 20
        while not consumer.poll(timeout_s=0.5):
            assert time.monotonic() < deadline
        reader = stream(topic, startingOffsets="earliest", commitGroup=group)
        at = reader.latestOffset(reader.initialOffset(), ALL)
        with pytest.raises(CommitError, match=f"Group {group} of commitGroup has members"):
            reader.latestOffset(at, ALL)


# -- an unavailable broker ---------------------------------------------------------------------------------------


def test_unavailable_broker_only_delays_the_trigger(tmp_path: Path) -> None:
    process = ForkedOttla(tmp_path, TEST_PROPERTIES)
    process.start()
    topics = Topics(process.bootstrap)
    topic, group = topics.make(), unique("group")
    topics.send(topic, 5)
    given = {"startingOffsets": "earliest", "commitGroup": group}
    reader = StreamReader(options(process.bootstrap, topic, given, streaming=True))
    at = reader.latestOffset(reader.initialOffset(), ALL)
    process.kill()
    back = threading.Timer(1.5, process.start)
    back.start()
    try:
        assert reader.latestOffset(at, ALL) == at == {topic: {"0": 5}}
        assert committed(topics, group) == {0: 5}
    finally:
        deadlines.join(back, "the start of the broker")
        reader.stop()
        topics.close()
        process.stop()


# -- cost ---------------------------------------------------------------------------------------------------------


def test_small_batch_needs_less_than_15_ms_on_the_driver(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    reader = stream(topic, startingOffsets="earliest", commitGroup=unique("group"), kafka_metadata_max_age_ms="60000")
    at = reader.initialOffset()
    topics.send(topic, 1)
    at = reader.latestOffset(at, ALL)
    costs = []
    for _ in range(30):
        topics.send(topic, 1)
        began = time.perf_counter()
        end = reader.latestOffset(at, ALL)
        reader.commit(at)
        assert sizes(ranges(reader.partitions(at, end))) == [1]
        costs.append((time.perf_counter() - began) * 1000)
        at = end
    assert statistics.median(costs) < 15, f"ms: {costs}"


def test_reader_is_pickled_without_its_connections(topics: Topics, stream: Stream) -> None:
    topic = topics.make()
    reader = stream(topic, startingOffsets="earliest")
    reader.initialOffset()
    assert len(pickle.dumps(reader)) < 4000
