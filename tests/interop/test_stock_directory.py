"""A data directory that stock Kafka wrote is opened by `ottla up --config` with stock Kafka's own server.properties.

Everything in it is read: records of every codec, several segments, committed offsets, settings, the cluster's id. Then
it is written to, by the newest Java producer; in the end stock Kafka opens it again and reads what both have written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import BrokerDied, OttlaProcess
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .conftest import Tools

# The tests are steps of one story and run in their order.
pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-directory")]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BY_STOCK = [f"{codec}-{i}\tvalue {i}" for codec in CODECS for i in range(20)]
BY_OTTLA = [f"ottla-{i}\tvalue {i}" for i in range(20)]


class OttlaOnStock(OttlaProcess):
    """Ottla started with the server.properties of a stock broker."""

    def __init__(self, directory: Path, config: Path) -> None:
        super().__init__(directory, TEST_PROPERTIES)
        self._config = config

    def command(self) -> list[str]:
        start = super().command()
        up = start.index("up") + 1
        options = start[start.index("-X") :]
        return [*start[:up], "--config", str(self._config), *options]


class Handover(NamedTuple):
    stock: kafka.StockKafka
    cluster_id: str
    ottla: OttlaOnStock
    tools: Tools


@pytest.fixture(scope="module")
def handover(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handover]:
    """Stock Kafka wrote and is stopped; Ottla runs on its directory."""
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    directory = tmp_path_factory.mktemp("handover")
    stock = kafka.StockKafka(directory / "stock", overrides=TEST_PROPERTIES)
    with stock:
        tools = Tools(stock.bootstrap)
        tools.create_topic("codecs", retention_ms=999_999_999)
        for codec in CODECS:
            lines = [line for line in BY_STOCK if line.startswith(codec)]
            tools.produce("codecs", lines, "--compression-codec", codec)
        tools.create_topic("rolled", segment_bytes=1_048_576)
        load = ("--num-records", 3000, "--record-size", 1000, "--throughput", -1)
        tools.ok("producer-perf-test", "--topic", "rolled", *load)
        assert len(tools.consume("codecs", 40, "--group", "readers")) == 40
        cluster_id = tools.ok("cluster", "cluster-id")
    ottla = OttlaOnStock(directory / "ottla", directory / "stock" / "node-1" / "server.properties")
    with ottla:
        yield Handover(stock, cluster_id, ottla, Tools(ottla.bootstrap))
    ottla.assert_no_traceback()


def test_every_record_is_read(handover: Handover) -> None:
    assert handover.tools.consume("codecs", len(BY_STOCK)) == BY_STOCK
    read = handover.tools.ok("consumer-perf-test", "--topic", "rolled", "--num-records", 3000).splitlines()[-1]
    assert int(read.split(", ")[4]) == 3000


def test_cluster_and_settings_are_the_same(handover: Handover) -> None:
    assert handover.tools.ok("cluster", "cluster-id") == handover.cluster_id
    described = handover.tools.ok("topics", "--describe", "--topic", "codecs")
    assert "retention.ms=999999999" in described
    assert "Leader: 1" in described
    assert "Isr: 1" in described


def test_group_goes_on_from_its_committed_offset(handover: Handover) -> None:
    (row,) = handover.tools.rows("consumer-groups", "--describe", "--group", "readers")
    assert row[3:6] == ["40", "100", "60"]
    assert handover.tools.consume("codecs", 60, "--group", "readers") == BY_STOCK[40:]


def test_new_records_follow_the_old_ones(handover: Handover) -> None:
    handover.tools.produce("codecs", BY_OTTLA)
    assert handover.tools.consume("codecs", 120) == BY_STOCK + BY_OTTLA
    assert handover.tools.ok("get-offsets", "--topic", "codecs").strip() == "codecs:0:120"


def test_new_topic_beside_the_old_ones(handover: Handover) -> None:
    handover.tools.create_topic("young")
    handover.tools.produce("young", ["k\tv"])
    assert handover.tools.consume("young", 1) == ["k\tv"]
    assert {"codecs", "rolled", "young"} <= set(handover.tools.ok("topics", "--list").split())


def test_stock_kafka_takes_it_back(handover: Handover) -> None:
    handover.tools.produce("codecs", ["ottla\tlast"])
    end = int(handover.tools.ok("get-offsets", "--topic", "codecs").strip().removeprefix("codecs:0:"))
    assert handover.ottla.stop() == 0
    with handover.stock as stock:
        tools = Tools(stock.bootstrap)
        lines = tools.consume("codecs", end)
        assert lines[: len(BY_STOCK)] == BY_STOCK
        assert lines[-1] == "ottla\tlast"
        (row,) = tools.rows("consumer-groups", "--describe", "--group", "readers")
        assert int(row[3]) >= 40
        assert int(row[4]) == end
        with pytest.raises(BrokerDied, match=rf"\.lock is held by process {stock.pids[0]}: stop that broker"):
            handover.ottla.start()
        tools.produce("codecs", ["stock\tagain"])
        assert tools.consume("codecs", end + 1)[-1] == "stock\tagain"
