"""Clusters of real processes. `clusters(...)` starts one for a test, and a failed test shows the logs of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from .processes import Cluster

Clusters: TypeAlias = Callable[..., Cluster]
_LOG_CHARACTERS = 6_000


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    """Start a cluster with the arguments of `Cluster`; all are killed after the test."""
    started: list[Cluster] = []

    def start(**how: Any) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(started) + 1}", **how)
        started.append(cluster)
        cluster.start()
        return cluster

    start.started = started  # type: ignore[attr-defined]
    try:
        yield start
    finally:
        for cluster in started:
            cluster.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each node's log to the report of a failed test."""
    report = yield
    start = getattr(item, "funcargs", {}).get("clusters")
    if report.failed and start is not None:
        for cluster in start.started:
            for node in cluster.nodes.values():
                report.sections.append((f"log of node {node.node_id}", node.log_tail(limit=_LOG_CHARACTERS)))
    return report
