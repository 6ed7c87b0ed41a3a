"""DescribeLogDirs: the reported paths are absolute, because a client has another working directory."""

from pathlib import Path

import pytest

from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

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
