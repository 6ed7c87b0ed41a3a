"""Stock Kafka Connect and MirrorMaker 2 with Ottla's brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from tests.connect.cluster.workers import BROKER, committed, put, running, states, until
from tests.ottla_process import OttlaProcess
from tests.peers.cache import in_ci, missing_for_connect
from tests.peers.kafka import StockKafka
from tests.peers.stock_connect import FILE_SINK, FILE_SOURCE, JvmProcess, RestError, StockWorker

INTERVALS = ("sync.group.offsets", "emit.checkpoints", "refresh.topics", "refresh.groups")
MIRROR_TOPICS = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
MIRROR_TOPICS += ("config.storage",)

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400), pytest.mark.xdist_group("stock-connect")]


@pytest.fixture(autouse=True)
def _stock_connect_is_here() -> None:
    missing = missing_for_connect()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path / "broker", BROKER) as broker:
        yield broker


def append(path: Path, numbers: Iterator[int], count: int = 200) -> None:
    with path.open("a") as file:
        file.writelines(f"line {next(numbers)}\n" for _ in range(count))


def test_exactly_once_source_and_sink_survive_kills_of_worker_and_broker(
    own_broker: OttlaProcess, tmp_path: Path
) -> None:
    source, sink, numbers = tmp_path / "in.txt", tmp_path / "out.txt", itertools.count()
    worker = StockWorker(tmp_path / "worker", own_broker.bootstrap, "g", exactly_once_source_support="enabled")
    with worker:
        append(source, numbers)
        put(worker, "source", {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines"})
        put(worker, "sink", {"connector.class": FILE_SINK, "file": str(sink), "topics": "lines"})
        until(lambda: running(worker, "source", 1) and running(worker, "sink", 1), "both run")
        append(source, numbers)
        worker.kill()
        worker.start()
        append(source, numbers)
        own_broker.kill()
        own_broker.start()
        append(source, numbers)
        lines = source.read_text().splitlines()
        until(lambda: len(committed(own_broker.bootstrap, "lines")) >= len(lines), "the lines are in the topic")
        assert committed(own_broker.bootstrap, "lines") == lines
        until(lambda: set(sink.read_text().splitlines()) == set(lines), "the lines are in the sink")
        assert worker.request("GET", "/connectors/source/topics") == {"source": {"topics": ["lines"]}}


def test_offsets_are_read_changed_and_deleted(own_broker: OttlaProcess, tmp_path: Path) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nb\n")
    with StockWorker(tmp_path / "worker", own_broker.bootstrap, "g", exactly_once_source_support="enabled") as worker:
        put(worker, "source", {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines"})
        put(worker, "sink", {"connector.class": FILE_SINK, "file": str(sink), "topics": "lines"})
        until(lambda: sink.exists() and sink.read_text() == "a\nb\n", "the lines arrive")
        with pytest.raises(RestError) as caught:
            worker.request("DELETE", "/connectors/source/offsets")
        assert caught.value.status == 400
        for name in ("source", "sink"):
            worker.request("PUT", f"/connectors/{name}/stop")
            until(lambda name=name: states(worker, name) == [("STOPPED", states(worker, name)[0][1])], "it is stopped")
        partition = {"filename": str(source)}
        assert worker.request("GET", "/connectors/source/offsets") == {
            "offsets": [{"partition": partition, "offset": {"position": 4}}]
        }
        changed = {"offsets": [{"partition": partition, "offset": {"position": 2}}]}
        assert "altered successfully" in worker.request("PATCH", "/connectors/source/offsets", changed)["message"]
        assert worker.request("GET", "/connectors/source/offsets") == changed
        (row,) = worker.request("GET", "/connectors/sink/offsets")["offsets"]
        assert row["partition"] == {"kafka_topic": "lines", "kafka_partition": 0}
        until(lambda: "reset" in worker.request("DELETE", "/connectors/sink/offsets")["message"], "they are deleted")
        sink.unlink()
        for name in ("source", "sink"):
            worker.request("PUT", f"/connectors/{name}/resume")
        until(lambda: sink.exists() and sink.read_text() == "a\nb\nb\n", "both read again")


def test_two_workers_divide_connectors_and_take_over(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with (
        StockWorker(tmp_path / "one", own_broker.bootstrap, "g", exactly_once_source_support="enabled") as one,
        StockWorker(tmp_path / "two", own_broker.bootstrap, "g", exactly_once_source_support="enabled") as two,
    ):
        source = tmp_path / "in.txt"
        source.write_text("a\n")
        for number in range(2):
            put(two, f"s{number}", {"connector.class": FILE_SOURCE, "file": str(source), "topic": f"t{number}"})
        until(lambda: running(one, "s0", 1) and running(one, "s1", 1), "both run")
        assert len({worker_id for name in ("s0", "s1") for _, worker_id in states(one, name)}) == 2
        one.kill()
        left = {two.url.removeprefix("http://")}
        until(lambda: running(two, "s0", 1, on=left) and running(two, "s1", 1, on=left), "the work has moved")
        with source.open("a") as file:
            file.write("b\n")
        for number in range(2):
            until(lambda number=number: committed(own_broker.bootstrap, f"t{number}") == ["a", "b"], "each line once")


class Source:
    """A topic of one cluster that MirrorMaker copies, with a group whose offsets it translates."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.sent: list[int] = []
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(topic, partitions=1, replication_factor=1)
        self.send(100)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.alter_group_offsets(group, {(topic, 0): 100})

    def send(self, count: int) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(len(self.sent), len(self.sent) + count):
                producer.send(self.topic, b"%d" % number, partition=0)
                self.sent.append(number)
            producer.flush(30)


def test_mirror_maker_copies_both_ways_between_stock_kafka_and_ottla(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with StockKafka(tmp_path / "stock") as stock:
        settings: dict[str, object] = {
            "clusters": "kafka, ottla",
            "kafka.bootstrap.servers": stock.bootstrap,
            "ottla.bootstrap.servers": own_broker.bootstrap,
            "offset.lag.max": 0,
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "replication.factor": 1,
        }
        settings |= {f"{name}.interval.seconds": 1 for name in INTERVALS}
        settings |= {f"{name}.replication.factor": 1 for name in MIRROR_TOPICS}
        for source, target in (("kafka", "ottla"), ("ottla", "kafka")):
            settings |= {
                f"{source}->{target}.enabled": "true",
                f"{source}->{target}.topics": f"from-{source}",
                f"{source}->{target}.groups": f"readers-of-{source}",
                f"{source}->{target}.sync.group.offsets.enabled": "true",
                f"{target}.exactly.once.source.support": "enabled",
            }
        directions = [
            (Source(stock.bootstrap, "from-kafka", "readers-of-kafka"), "kafka.from-kafka", own_broker.bootstrap),
            (Source(own_broker.bootstrap, "from-ottla", "readers-of-ottla"), "ottla.from-ottla", stock.bootstrap),
        ]

        def wait_for_copies() -> None:
            for source, topic, target in directions:
                until(lambda: len(committed(target, topic)) >= len(source.sent), f"{topic} is copied", 120)  # noqa: B023

        mirror = JvmProcess(tmp_path / "mirror", "org.apache.kafka.connect.mirror.MirrorMaker")
        mirror.launch(settings)
        try:
            wait_for_copies()
            mirror.kill()
            for source, _, _ in directions:
                source.send(100)
            mirror.launch(settings)
            wait_for_copies()
            for source, topic, target in directions:
                assert committed(target, topic) == source.sent
                with Admin(bootstrap_servers=target) as admin:
                    offsets = lambda: admin.list_group_offsets(source.group)  # noqa: E731, B023
                    until(offsets, f"the offsets of {source.group} are translated", 120)
        finally:
            mirror.stop()
