"""DescribeLogDirs: the reported paths are absolute, because a client has another working directory."""

from pathlib import Path

import pytest

from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

from .harness import BrokerHarness


def test_log_directory_is_described_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness = BrokerHarness("data")
    try:
        harness.create("orders", partitions=2)
        (result,) = harness.ask(DescribeLogDirsRequest(topics=None)).results
        assert result.log_dir == str(tmp_path / "data")
        assert {part.partition_index for topic in result.topics for part in topic.partitions} == {0, 1}
    finally:
        harness.close()


def test_requested_partitions_alone_are_described(tmp_path: Path) -> None:
    harness = BrokerHarness(str(tmp_path / "data"))
    try:
        harness.create("orders", partitions=3)
        harness.create("other", partitions=1)
        wanted = [DescribableLogDirTopic("orders", [2, 0, 9]), DescribableLogDirTopic("missing", [0])]
        (result,) = harness.ask(DescribeLogDirsRequest(wanted)).results
        found = {(topic.name, part.partition_index) for topic in result.topics for part in topic.partitions}
        assert found == {("orders", 0), ("orders", 2)}
    finally:
        harness.close()
