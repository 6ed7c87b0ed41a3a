"""A rolling upgrade of three nodes from the previous release to this source, under load, and one node back.

`previous_release` chooses the previous release. Its source runs as it is, with kernels in plain Python. Producers and
groups of both protocols run the whole time: nothing acknowledged is lost, repeated or out of order, transactions stay
whole, no committed offset goes back, and no feature is finalized by itself.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.migration import SETTINGS, Migration
from tests.cluster.previous_release import previous, unpack
from tests.cluster.processes import Cluster, Place


class PreviousRelease:
    """A cluster whose nodes run the source of the previous release, as `Migration` uses stock Kafka."""

    def __init__(self, cluster: Cluster, source: Path) -> None:
        self._cluster = cluster
        self._source = source
        self.directory = cluster.directory
        self.bootstrap = cluster.bootstrap

    def start(self) -> None:
        """Let the previous release format the directories, since it chooses the feature levels."""
        for node in self._cluster.nodes.values():
            node.write_settings()
            words = ["format", "--config", str(node.properties_path), "--cluster-id", self._cluster.cluster_id]
            subprocess.run(
                [sys.executable, "-m", "ottla", *words],
                env={**os.environ, "PYTHONPATH": str(self._source)}, check=True, timeout=60, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self._cluster.start()

    def start_node(self, node_id: int) -> None:
        self._cluster.start_node(node_id)

    def stop_node(self, node_id: int) -> None:
        assert self._cluster.stop_node(node_id) == 0

    def kill_node(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def features(self) -> object:
        """The finalized features."""
        with self._cluster.admin() as admin:
            return admin.describe_features().finalized


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    commit, reason = previous()
    if commit is None:
        pytest.skip(f"there is no previous release: {reason}")
    return unpack(commit, tmp_path_factory.mktemp("previous"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_three_nodes_are_upgraded_under_load_and_one_goes_back(source: Path, tmp_path: Path) -> None:
    def place(node_id: int) -> Place:
        return Place(prefix=("env", f"PYTHONPATH={source}"))

    # Its context manager would format the directories with this source.
    with contextlib.closing(Cluster(tmp_path, properties=SETTINGS, place=place)) as cluster:
        release = PreviousRelease(cluster, source)
        release.start()
        before = release.features()
        with Migration(release) as upgrade:  # type: ignore[arg-type]
            upgrade.start_load()
            upgrade.settle()
            for node_id in (1, 2, 3):
                upgrade.to_ottla(node_id)
                upgrade.settle()
            assert release.features() == before
            upgrade.to_stock(2)
            upgrade.settle()
            upgrade.to_ottla(2)
            upgrade.settle()
            upgrade.finish()
