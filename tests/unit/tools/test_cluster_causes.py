"""Causes that a test cannot easily construct with processes on one machine, for example disks that fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ottla.clients import admin as api
from ottla.clients.admin.model import LogDirectory, ReplicaDescription, VersionRange
from ottla.clients.errors import BrokerError
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.tools.why.cluster_causes import explain
from ottla.tools.why.cluster_samples import ClusterObservation, ClusterSample
from ottla.tools.why.model import Finding

BROKERS = tuple(api.BrokerDescription(node, "h", 9092, None, is_fenced=False) for node in (1, 2))
GIB = 1 << 30


def sample(at_ms: int, free: int) -> ClusterSample:
    directory = LogDirectory("/data", 100 * GIB, free, {})
    return ClusterSample(at_ms, api.ClusterDescription("id", 1, BROKERS), {}, {}, None, {1: (directory,)})


def findings(free: int, levels: Mapping[int, int] = {}, finalized: int = 0) -> dict[str, Finding]:
    features = {
        node: api.Features(1, {"metadata.version": VersionRange(finalized, finalized)}, {"metadata.version": supported})
        for node, supported in ((node, VersionRange(7, level)) for node, level in levels.items())
    }
    seen = ClusterObservation(sample(0, free + GIB), sample(10_000, free), features=features)
    return {each.code: each for each in explain(seen).findings}


def test_disk_is_named_before_it_is_full_with_the_time_left() -> None:
    assert "disk_nearly_full" not in findings(20 * GIB)
    nearly = findings(10 * GIB)["disk_nearly_full"]
    assert (nearly.subject, nearly.severity) == ("broker 1", "warning")
    assert "remain at this rate" in nearly.cause
    assert findings(4 * GIB)["disk_nearly_full"].severity == "critical"


def test_brokers_of_different_versions_are_named() -> None:
    found = findings(50 * GIB, {1: 25, 2: 27}, 25)
    assert found.keys() == {"versions_differ"}
    assert found["versions_differ"].subject == "broker 1"
    assert findings(50 * GIB, {1: 27, 2: 27}, 25).keys() == {"feature_behind"}
    assert not findings(50 * GIB, {1: 27, 2: 27}, 27)


ORDERS = TopicPartition("orders", 0)
STORAGE = BrokerError(code=ErrorCode.KAFKA_STORAGE_ERROR)


def disk(size: int | None = None, error: BrokerError | None = None) -> tuple[LogDirectory, ...]:
    replicas = {} if size is None else {ORDERS: ReplicaDescription(size, 0, is_future=False)}
    return (LogDirectory("/data", -1, -1, replicas, error),)


def of_partition(
    leader: int | None,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    offline: tuple[int, ...] = (),
    least: int = 1,
    disks: Mapping[int, tuple[LogDirectory, ...]] = {},
) -> dict[str, Finding]:
    at = api.PartitionDescription(0, leader, 1, replicas, isr, offline)
    topics = {"orders": api.TopicDescription("orders", "", False, (at,))}
    first = replace(sample(0, 50 * GIB), topics=topics, directories=disks)
    seen = ClusterObservation(first, replace(first, at_ms=10_000), {"orders": {"min.insync.replicas": str(least)}})
    return {each.code: each for each in explain(seen).findings}


def test_topic_with_fewer_replicas_than_min_insync_replicas_is_written() -> None:
    assert not of_partition(1, (1,), (1,), least=2)
    assert not of_partition(1, (1, 2), (1, 2), least=3)
    found = of_partition(1, (1, 2), (1,), least=3)["under_min_isr"]
    assert "broker 2 is not in sync, and min.insync.replicas is 3" in found.cause


def test_log_directory_that_is_offline_is_named_with_or_without_replicas() -> None:
    assert not of_partition(1, (1, 2), (1, 2), disks={2: disk()})
    found = of_partition(1, (1, 2), (1, 2), disks={2: (*disk(error=STORAGE), *disk())})["log_dir_offline"]
    assert (found.subject, found.severity) == ("broker 2", "critical")
    assert "/data: " in found.cause
    found = of_partition(1, (1, 2), (1,), offline=(2,))["log_dir_offline"]
    assert "1 of its 1 replica are in log directories that are offline" in found.cause


def test_replica_that_lacks_bytes_and_does_not_grow_is_stuck() -> None:
    found = of_partition(1, (1, 2), (1,), disks={1: disk(5000), 2: disk(1000)})
    assert found["replica_stuck"].subject == "broker 2"
    assert "its replicas did not grow" in found["replica_stuck"].cause
    level = of_partition(1, (1, 2), (1,), disks={1: disk(5000), 2: disk(5000)})
    assert "replica_stuck" not in level


def test_partition_without_an_eligible_leader_names_the_broker_that_may_have_its_records() -> None:
    found = of_partition(None, (1, 3), ())["offline_partition"]
    assert "no replica that is up may lead: broker 3, which is down, may have records" in found.cause
    assert found.next_step.endswith("ottla topic elect-leaders orders --unclean")
    assert "all of its brokers are up, but none may lead" in of_partition(None, (1, 2), ())["offline_partition"].cause


@pytest.mark.parametrize(("unanswered", "named"), [({"quorum", "moves"}, True), ({"quorum"}, False), (set(), False)])
def test_controller_that_refuses_a_user_is_not_missing(unanswered: set[str], named: bool) -> None:
    last = replace(sample(0, 50 * GIB), unknown={"quorum": "no", "moves": "no"}, unanswered=frozenset(unanswered))
    report = explain(ClusterObservation(last, last, unknown={"settings of broker 1": "no"}))
    assert ("no_controller" in {each.code for each in report.findings}) is named
    assert report.unknown.keys() == {"quorum", "moves", "settings of broker 1"}
