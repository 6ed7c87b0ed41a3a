"""A scrape of a broker on disk: every metric, its values after known requests, valid text, and short slices."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tools.pages.metrics import markdown

from ottla.broker.metrics import cluster_rows, families, lag_rows, partition_rows, process_rows
from ottla.broker.metrics.client_usage import ClientUsages
from ottla.broker.metrics.collect import Sources, collect
from ottla.broker.metrics.lag_rows import GroupLag
from ottla.broker.metrics.loop_delay import LoopDelay
from ottla.broker.metrics.meter import Meter
from ottla.broker.metrics.process_rows import Descriptors
from ottla.broker.metrics.requests import RequestTimes
from ottla.common.slices import finish
from ottla.log import Log
from ottla.metrics.exposition import OPENMETRICS, PROMETHEUS, Samples, labelled
from ottla.network.server import Server
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.records import BatchProducer
from tests.unit.broker.harness import BrokerHarness, batch, open_harness

ALERTS = Path(__file__).parents[4] / "deploy" / "metrics" / "prometheus-alerts.yml"
FETCHES = ("Fetch", "FetchConsumer", "FetchFollower")
OF_CLIENTS = (
    families.CLIENT_INSTANCES,
    families.CLIENT_PUSHES,
    families.CLIENT_INFO,
    families.CLIENT_SERIES_DROPPED,
)
SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-zA-Z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)')


class ManualTime:
    """The event loop of `LoopDelay`, which takes no samples here."""

    def time(self) -> float:
        return 0.0


def sources_of(harness: BrokerHarness) -> Sources:
    meter = Meter(RequestTimes(), ClientUsages(lambda: 0.0))
    return Sources(harness.broker, meter, LoopDelay(ManualTime()), 1.0, GroupLag(harness.broker))  # type: ignore[arg-type]


def scrape(sources: Sources, content_type: str = PROMETHEUS) -> dict[str, float]:
    """The samples by name and labels; checks the syntax of each line."""
    found: dict[str, float] = {}
    for line in b"".join(finish(collect(sources, content_type))).decode().splitlines():
        if line.startswith("# "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] + (match[2] or "") not in found, line
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


@pytest.fixture
def scraped(harness: BrokerHarness) -> dict[str, float]:
    """After two records, a fetch, a refused batch and a commit."""
    harness.create("t", 2)
    harness.produce(("t", {0: batch(b"a", b"b")}))
    fetch = FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    harness.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[fetch]), 12)
    harness.produce(("t", {1: b"not a batch"}))
    sources = sources_of(harness)
    sources.meter.times.of(0).at_once.record(1_000_000)
    return scrape(sources)


def test_topic_has_what_clients_appended_and_fetched(scraped: dict[str, float]) -> None:
    prefix, topic = "kafka_server_brokertopicmetrics_", '{topic="t"}'
    assert scraped[f"{prefix}messagesin_total{topic}"] == 2
    assert scraped[f"{prefix}totalproducerequests_total{topic}"] == 1
    assert scraped[f"{prefix}failedproducerequests_total{topic}"] == 1
    assert scraped[f"{prefix}totalfetchrequests_total{topic}"] == 1
    size = scraped['kafka_log_log_size{topic="t",partition="0"}']
    assert size > 0
    assert scraped[f"{prefix}bytesin_total{topic}"] == scraped[f"{prefix}bytesout_total{topic}"] == size
    assert scraped[f"{prefix}bytesin_total"] == size


def test_partitions_and_their_sums_agree(scraped: dict[str, float]) -> None:
    assert scraped["kafka_server_replicamanager_leadercount"] == 2
    assert scraped["kafka_server_replicamanager_partitioncount"] == 2
    assert scraped["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert scraped["kafka_server_replicamanager_offlinereplicacount"] == 0
    assert scraped['kafka_cluster_partition_replicascount{topic="t",partition="1"}'] == 1
    assert scraped['kafka_log_log_logendoffset{topic="t",partition="0"}'] == 2


def test_only_node_is_the_active_controller(scraped: dict[str, float]) -> None:
    assert scraped["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert scraped["kafka_controller_kafkacontroller_globalpartitioncount"] == 2
    assert scraped["kafka_controller_kafkacontroller_activebrokercount"] == 1
    assert scraped["kafka_server_raftmetrics_current_leader"] == 1
    states = {name: value for name, value in scraped.items() if "current_state" in name}
    assert states == {'kafka_server_raftmetrics_current_state{current_state="leader"}': 1}


def test_counters_of_a_deleted_topic_stay_in_the_sum(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    harness.produce(("t", {0: batch(b"a")}))
    harness.delete("t")
    found = scrape(sources_of(harness))
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == 1
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"}' not in found


def test_scrape_creates_no_coordinator(harness: BrokerHarness) -> None:
    found = scrape(sources_of(harness))
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 0
    assert harness.broker.coordinators.created == (None, None, None)


def commit(harness: BrokerHarness, **offsets: int) -> None:
    """Commit the offsets of partition 0 of topics, for the group g."""
    topics = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        for name, offset in offsets.items()
    ]
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    harness.loop.advance(1_000)
    committed = harness.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert {topic.partitions[0].error_code for topic in committed.topics} == {0}


def lag_of(found: dict[str, float], topic: str) -> tuple[float | None, float | None]:
    """The lag of the group g in partition 0, in records and in seconds."""
    labels = f'{{consumergroup="g",topic="{topic}",partition="0"}}'
    return found.get(f"kafka_consumergroup_lag{labels}"), found.get(f"kafka_consumergroup_lag_seconds{labels}")


def test_commit_of_a_group_is_counted(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    commit(harness, t=0)
    found = scrape(sources_of(harness))
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1
    assert found['kafka_consumergroup_members{consumergroup="g"}'] == 0


def test_lag_is_counted_in_records_and_in_seconds(harness: BrokerHarness) -> None:
    for topic in ("read", "unread", "half"):
        harness.create(topic, 1, message_timestamp_type="LogAppendTime")
        harness.produce((topic, {0: batch(b"a", b"b")}))
        harness.loop.advance(10_000)
        harness.produce((topic, {0: batch(b"c")}))
    commit(harness, read=3, unread=0, half=2)
    sources = sources_of(harness)
    before_ms = harness.loop.now_ms
    found = scrape(sources)
    assert lag_of(found, "read") == (0, 0)
    assert lag_of(found, "unread") == (3, (before_ms - 10_000) / 1000)
    assert lag_of(found, "half") == (1, (before_ms - 30_000) / 1000)
    assert found['kafka_consumergroup_lag_sum{consumergroup="g",topic="unread"}'] == 3
    harness.loop.advance(5_000)
    assert lag_of(scrape(sources), "half") == (1, (before_ms - 25_000) / 1000)


def test_lag_begins_at_the_first_record_that_is_left(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    harness.produce(("t", {0: batch(b"a", b"b")}))
    commit(harness, t=0)
    harness.partition("t").delete_records_before(2)
    assert lag_of(scrape(sources_of(harness)), "t") == (0, 0)


def test_commits_above_the_limit_are_dropped_and_counted(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_rows, "MOST_OFFSETS", 1)
    for topic in ("t", "u"):
        harness.create(topic, 1)
    commit(harness, t=0, u=0)
    found = scrape(sources_of(harness))
    assert found["ottla_metrics_dropped_group_offsets"] == 2
    assert lag_of(found, "t") == (None, None)


def test_reads_of_the_lag_are_limited_and_the_next_scrape_continues(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_rows, "MOST_READS", 2)
    topics = [f"t{number}" for number in range(5)]
    for topic in topics:
        harness.create(topic, 1)
        harness.produce((topic, {0: batch(b"a", b"b")}))
    sources = sources_of(harness)
    commit(harness, **dict.fromkeys(topics, 0))
    known = [sum(lag_of(found, topic)[1] is not None for topic in topics) for found in map(scrape, [sources] * 4)]
    assert known == [2, 3, 5, 5]
    # With offsets that change all the time, each has its turn.
    read: list[str] = []
    for offset in (1, 0, 1):
        commit(harness, **dict.fromkeys(topics, offset))
        found = scrape(sources)
        assert {lag_of(found, topic)[0] for topic in topics} == {2 - offset}
        read += [topic for topic in topics if lag_of(found, topic)[1] is not None]
    assert sorted(read) == topics


def test_scrape_yields_after_each_read_of_the_lag(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"t{number}" for number in range(5)]
    for topic in topics:
        harness.create(topic, 1)
        harness.produce((topic, {0: batch(b"a")}))
    commit(harness, **dict.fromkeys(topics, 0))
    sources = sources_of(harness)
    reads: list[str] = []
    look_up = Log.look_up

    def counted(log: Log, *arguments: Any) -> Any:
        reads.append(log.topic_partition.topic)
        return look_up(log, *arguments)

    monkeypatch.setattr(Log, "look_up", counted)
    between = []
    for _ in collect(sources, PROMETHEUS):
        between.append(len(reads))
        reads.clear()
    assert max(between) == 1
    assert sum(between) == 5


def test_partitions_of_one_topic_are_counted_in_slices(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create("t", 20)
    monkeypatch.setattr(cluster_rows, "_AT_ONCE", 5)
    monkeypatch.setattr(partition_rows, "_ASSIGNED_AT_ONCE", 5)
    samples = Samples(families.FAMILIES)
    assert len(list(cluster_rows.add_controller(samples, harness.broker.metadata))) == 4
    assert len(list(partition_rows._add_assigned(samples, harness.broker, 20))) == 4
    (line,) = samples.of(families.GLOBAL_PARTITIONS)
    assert line.endswith(" 20")


def test_descriptors_are_counted_without_listing_them() -> None:
    if not os.stat("/proc/self/fd").st_size:
        pytest.skip("the size of /proc/self/fd is their number since Linux 6.2")
    descriptors = Descriptors()
    before = descriptors.count()
    assert before is not None
    with open(os.devnull, "rb"):
        assert descriptors.count() == before + 1
    assert descriptors._thread is None


def test_older_system_lists_descriptors_in_a_thread_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    # This directory has an entry for each descriptor, and no size on any system.
    descriptors = Descriptors("/proc/self/fdinfo")
    descriptors.count()
    first = descriptors._thread
    assert first is not None
    first.join(10)
    listed = descriptors.count()
    assert listed is not None
    with open(os.devnull, "rb"), open(os.devnull, "rb"):
        assert descriptors.count() == listed
        assert descriptors._thread is first
        monkeypatch.setattr(process_rows, "LISTED_EVERY_S", 0.0)
        descriptors._due_s = 0.0
        descriptors.count()
        assert descriptors._thread is not first
        descriptors._thread.join(10)
        monkeypatch.setattr(process_rows, "LISTED_EVERY_S", 60.0)
        assert descriptors._listed == listed + 2


def test_openmetrics_names_counters_without_their_suffix_and_ends(harness: BrokerHarness) -> None:
    text = b"".join(finish(collect(sources_of(harness), OPENMETRICS))).decode()
    assert text.endswith("# EOF\n")
    assert "# TYPE kafka_server_brokertopicmetrics_messagesin counter" in text
    assert "\nkafka_server_brokertopicmetrics_messagesin_total 0\n" in text


def test_labels_are_escaped() -> None:
    samples = Samples(families.FAMILIES)
    samples.add(families.DIRECTORY_OFFLINE, 0, labelled(logDirectory='a"b\\c\nd'))
    (line,) = samples.of(families.DIRECTORY_OFFLINE)
    assert line.endswith('{logDirectory="a\\"b\\\\c\\nd"} 0')
    assert SAMPLE.fullmatch(line)


def begin_transaction(harness: BrokerHarness, producer_id: int) -> None:
    harness.append("t", b"open", producer=BatchProducer(producer_id, 0, 0), attributes=0x10)


def end_transaction(harness: BrokerHarness, producer_id: int) -> None:
    marker = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", producer=BatchProducer(producer_id, 0), attributes=0x30)
    harness.partition("t").append(memoryview(marker), origin="coordinator")


def open_transactions_limit_s() -> float:
    """The limit of the alert, whose expression compares the metric with it."""
    rule = re.search(r"alert: OpenTransaction\n +expr: (\w+) > (\d+)\n", ALERTS.read_text())
    assert rule is not None
    assert rule[1] == families.OPEN_TRANSACTION.name
    return float(rule[2])


AGE = 'ottla_partition_open_transaction_seconds{topic="t",partition="0"}'


def test_alert_for_a_transaction_that_stays_open(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    sources = sources_of(harness)
    assert AGE not in scrape(sources)
    begin_transaction(harness, 7)
    ages_s = []
    for _ in range(32):
        ages_s.append(scrape(sources)[AGE])
        harness.loop.advance(60_000)
    assert ages_s == [60.0 * number for number in range(32)]
    assert [age_s > open_transactions_limit_s() for age_s in ages_s] == [False] * 31 + [True]
    # The timestamps of the records are of the client, and from another year. They do not count.
    assert scrape(sources_of(harness))[AGE] == 0, "after a restart"
    end_transaction(harness, 7)
    assert AGE not in scrape(sources)
    assert not sources.transactions._seen


def test_no_alert_for_a_busy_transactional_topic(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    sources = sources_of(harness)
    for producer_id in range(120):
        # At each scrape a transaction is open, and the next one begins before it ends.
        begin_transaction(harness, producer_id)
        assert scrape(sources)[AGE] <= 30
        if producer_id:
            end_transaction(harness, producer_id - 1)
        assert scrape(sources)[AGE] <= 30
        harness.loop.advance(30_000)


def test_deleted_partition_is_forgotten_with_its_open_transaction(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    sources = sources_of(harness)
    begin_transaction(harness, 7)
    scrape(sources)
    assert len(sources.transactions._seen) == 1
    harness.delete("t")
    scrape(sources)
    assert not sources.transactions._seen


@pytest.mark.parametrize(
    ("options", "version", "is_follower"),
    [
        ({"replica_id": 2}, 12, True),
        ({"replica_id": -1}, 12, False),
        ({"replica_state": ReplicaState(2, -1)}, 16, True),
        ({}, 16, False),
    ],
)
def test_fetch_of_a_replica_is_counted_by_its_replica_id(
    harness: BrokerHarness, options: dict[str, Any], version: int, is_follower: bool
) -> None:
    sources = sources_of(harness)
    harness.dispatch._meter = sources.meter
    for _ in range(2):
        harness.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[], **options), version)
    found = scrape(sources)
    requests = {name: found[f'kafka_network_requestmetrics_requests_total{{request="{name}"}}'] for name in FETCHES}
    assert requests == {"Fetch": 2, "FetchConsumer": 2 * (not is_follower), "FetchFollower": 2 * is_follower}


def test_listener_without_connections_has_a_zero() -> None:
    samples = Samples(families.FAMILIES)

    async def scenario() -> None:
        server = Server(lambda _connection, _frame: [])
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for name, sock in zip(("PLAINTEXT", "INTERNAL"), sockets, strict=True):
            server.listen(name, sock)
        _, writer = await asyncio.open_connection(*sockets[0].getsockname())
        for _ in range(500):
            if server.connections:
                break
            await asyncio.sleep(0.01)
        process_rows.add_connections(samples, server)
        writer.close()
        await server.close(1)

    asyncio.run(scenario())
    assert [line.partition("{")[2] for line in samples.of(families.CONNECTIONS)] == [
        'listener="PLAINTEXT",networkProcessor="0"} 1',
        'listener="INTERNAL",networkProcessor="0"} 0',
    ]


def test_every_family_is_scraped(harness: BrokerHarness, scraped: dict[str, float]) -> None:
    commit(harness, t=1)
    begin_transaction(harness, 7)
    sources = sources_of(harness)
    sources.meter.clients.acquire("user", "client")
    names = {name.partition("{")[0] for name in (*scraped, *scrape(sources))}
    for family in families.FAMILIES.values():
        # The harness has no network and no mirror (test_mirror_rows.py), and receives no metrics of clients
        # (test_receiver.py).
        suffix = {"summary": "_count", "histogram": "_count"}.get(family.kind, "")
        is_elsewhere = family in OF_CLIENTS or family.name.startswith("ottla_mirror_")
        if family.name != families.CONNECTIONS.name and not is_elsewhere:
            assert family.name + suffix in names
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert re.fullmatch(r"[a-z_]+", family.name)


def test_slice_of_a_scrape_is_short_with_thousands_of_partitions(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        for number in range(4):
            harness.create(f"t{number}", 500)
        longest_s = 0.0
        for _ in range(3):  # another process may interrupt one of them
            work, times = collect(sources_of(harness), PROMETHEUS), []
            while True:
                began_s = time.thread_time()
                try:
                    next(work)
                except StopIteration:
                    break
                finally:
                    times.append(time.thread_time() - began_s)
            longest_s = max(times) if not longest_s else min(longest_s, max(times))
        assert longest_s < 0.02


def test_page_lists_every_metric() -> None:
    assert Path("docs/metrics.md").read_text().endswith(markdown(families.FAMILIES))
