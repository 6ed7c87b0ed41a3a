"""Causes that a test cannot construct with processes on one machine: disks that fill, and brokers of two versions."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients import admin as api
from ottla.clients.admin.model import LogDirectory, VersionRange
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
