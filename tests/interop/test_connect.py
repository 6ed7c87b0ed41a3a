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
from tests.peers.stock_connect import FILE_SINK, FILE_SOURCE, JvmProcess, RestError, StockWorker

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


def test_mirror_maker_copies_between_two_clusters(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "target", BROKER) as target:
        settings = {
            "clusters": "a, b",
            "a.bootstrap.servers": own_broker.bootstrap,
            "b.bootstrap.servers": target.bootstrap,
            "a->b.enabled": "true",
            "b->a.enabled": "false",
            "a->b.topics": "orders",
            "a->b.groups": "readers",
            "a->b.sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "offset.lag.max": 0,
            "refresh.topics.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
            "b.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "heartbeats.topic.replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "config.storage.replication.factor": 1,
        }
        sent: list[str] = []

        def send(count: int) -> None:
            with Producer(bootstrap_servers=own_broker.bootstrap) as producer:
                for number in range(len(sent), len(sent) + count):
                    producer.send("orders", b'"%d"' % number, partition=0)
                    sent.append(str(number))
                producer.flush(30)

        with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=1, replication_factor=1)
            send(100)
            admin.alter_group_offsets("readers", {("orders", 0): 100})
        mirror = JvmProcess(tmp_path / "mirror", "org.apache.kafka.connect.mirror.MirrorMaker")
        mirror.launch(settings)
        try:
            copied = lambda: committed(target.bootstrap, "a.orders")  # noqa: E731
            until(lambda: len(copied()) >= len(sent), "the records are copied", 120)
            mirror.kill()
            send(100)
            mirror.launch(settings)
            until(lambda: len(copied()) >= len(sent), "the records are copied after a kill", 120)
            assert copied() == sent
            with Admin(bootstrap_servers=target.bootstrap) as admin:
                until(lambda: admin.list_group_offsets("readers"), "the group's offsets are translated", 120)
        finally:
            mirror.stop()
