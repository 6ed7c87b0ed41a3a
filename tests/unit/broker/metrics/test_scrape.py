"""A scrape of a broker on disk: every metric, its values after known requests, valid text, and short slices."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from ottla.broker.metrics import families
from ottla.broker.metrics.collect import Sources, collect
from ottla.broker.metrics.exposition import OPENMETRICS, PROMETHEUS, Samples, labelled
from ottla.broker.metrics.loop_delay import LoopDelay
from ottla.broker.metrics.requests import RequestTimes
from ottla.broker.metrics.table import markdown
from ottla.common.slices import finish
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.harness import BrokerHarness, batch, open_harness

SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-zA-Z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)')


class ManualTime:
    """The event loop of `LoopDelay`, which takes no samples here."""

    def time(self) -> float:
        return 0.0


def sources_of(harness: BrokerHarness) -> Sources:
    return Sources(harness.broker, RequestTimes(), LoopDelay(ManualTime()), 1.0)  # type: ignore[arg-type]


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
    sources.requests.of(0).at_once.record(1_000_000)
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
    assert scraped['kafka_server_raftmetrics_current_state{state="leader"}'] == 1


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


def test_commit_of_a_group_is_counted(harness: BrokerHarness) -> None:
    harness.create("t", 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    harness.ask(FindCoordinatorRequest(key="g"), 3)
    harness.loop.advance(1_000)
    committed = harness.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    assert committed.topics[0].partitions[0].error_code == 0
    found = scrape(sources_of(harness))
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1


def test_openmetrics_names_counters_without_their_suffix_and_ends(harness: BrokerHarness) -> None:
    text = b"".join(finish(collect(sources_of(harness), OPENMETRICS))).decode()
    assert text.endswith("# EOF\n")
    assert "# TYPE kafka_server_brokertopicmetrics_messagesin counter" in text
    assert "\nkafka_server_brokertopicmetrics_messagesin_total 0\n" in text


def test_labels_are_escaped() -> None:
    samples = Samples()
    samples.add(families.DIRECTORY_OFFLINE, 0, labelled(logDirectory='a"b\\c\nd'))
    (line,) = samples.of(families.DIRECTORY_OFFLINE)
    assert line.endswith('{logDirectory="a\\"b\\\\c\\nd"} 0')
    assert SAMPLE.fullmatch(line)


def test_every_family_is_scraped_with_its_labels(scraped: dict[str, float]) -> None:
    names = {name.partition("{")[0] for name in scraped}
    for family in families.FAMILIES.values():
        suffix = {"summary": "_count", "histogram": "_count"}.get(family.kind, "")
        if family.name != families.CONNECTIONS.name:  # the harness has no network
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
    assert Path("docs/metrics.md").read_text().endswith(markdown())
