"""Stock workers and ours on the same topics: one after the other, and both in one group."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin
from tests.connect.cluster.workers import BROKER, WorkerProcess, committed, put, running, states, until
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.peers.cache import in_ci, missing_for_connect
from tests.peers.stock_connect import FILE_SINK, FILE_SOURCE, StockWorker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400), pytest.mark.xdist_group("stock-connect")]
GROUP = "cluster"
SETTINGS = {"exactly.once.source.support": "enabled"}


@pytest.fixture(autouse=True)
def _stock_connect_is_here() -> None:
    missing = missing_for_connect()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "broker", BROKER) as broker:
        yield broker


class Lines:
    """A file that grows, its topic, and the file of a sink."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.source, self.sink = directory / "source.txt", directory / "sink.txt"
        self.source.touch()
        self._bootstrap = bootstrap
        self._numbers = itertools.count()
        self.written: list[str] = []

    def create(self, worker: WorkerProcess | StockWorker) -> None:
        put(worker, "source", {"connector.class": FILE_SOURCE, "file": str(self.source), "topic": "lines"})
        put(worker, "sink", {"connector.class": FILE_SINK, "file": str(self.sink), "topics": "lines"})

    def append(self, count: int = 50) -> None:
        lines = [f"line {next(self._numbers)}" for _ in range(count)]
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        self.written += lines

    def arrived(self) -> None:
        """Wait for the lines in the topic and in the sink; none is there twice."""
        until(lambda: len(committed(self._bootstrap, "lines")) >= len(self.written), "the lines are in the topic")
        assert committed(self._bootstrap, "lines") == self.written
        until(
            lambda: self.sink.exists() and self.sink.read_text().splitlines() == self.written,
            "the lines are in the sink",
        )

    def offset(self, worker: WorkerProcess | StockWorker) -> int:
        """The source's committed position."""
        (row,) = worker.request("GET", "/connectors/source/offsets")["offsets"]
        assert row["partition"] == {"filename": str(self.source)}
        return int(row["offset"]["position"])


def test_each_continues_the_work_of_the_other(own_broker: OttlaProcess, tmp_path: Path) -> None:
    lines = Lines(tmp_path, own_broker.bootstrap)
    lines.append()
    with StockWorker(tmp_path / "stock", own_broker.bootstrap, GROUP, **SETTINGS) as stock:
        lines.create(stock)
        lines.arrived()
        until(lambda: lines.offset(stock) == lines.source.stat().st_size, "the position is committed")
        configs = {name: stock.request("GET", f"/connectors/{name}/config") for name in ("source", "sink")}
        topics = stock.request("GET", "/connectors/source/topics")
    with WorkerProcess(tmp_path / "ours", own_broker.bootstrap, GROUP) as ours:
        assert {name: ours.request("GET", f"/connectors/{name}/config") for name in ("source", "sink")} == configs
        assert ours.request("GET", "/connectors/source/topics") == topics
        until(lambda: running(ours, "source", 1) and running(ours, "sink", 1), "both run")
        lines.append()
        lines.arrived()
        put(ours, "paused", {"connector.class": FILE_SOURCE, "file": str(tmp_path / "p"), "topic": "paused"})
        ours.request("PUT", "/connectors/paused/pause")
        ours.request("PUT", "/connectors/sink/stop")
        until(
            lambda: states(ours, "paused")[0][0] == "PAUSED" and states(ours, "sink")[0][0] == "STOPPED", "the states"
        )
        until(lambda: lines.offset(ours) == lines.source.stat().st_size, "the position is committed")
        configs = {name: ours.request("GET", f"/connectors/{name}/config") for name in ("source", "sink", "paused")}
    with StockWorker(tmp_path / "stock-2", own_broker.bootstrap, GROUP, **SETTINGS) as stock:
        assert {name: stock.request("GET", f"/connectors/{name}/config") for name in configs} == configs
        until(lambda: running(stock, "source", 1), "the source runs")
        assert states(stock, "paused")[0][0] == "PAUSED"
        assert states(stock, "sink")[0][0] == "STOPPED"
        lines.append()
        stock.request("PUT", "/connectors/sink/resume")
        lines.arrived()
        assert "ERROR" not in stock.log()


def test_both_kinds_share_one_group(own_broker: OttlaProcess, tmp_path: Path) -> None:
    """Workers are replaced one by one: either kind leads, and follows, and takes the other's work."""
    bootstrap = own_broker.bootstrap
    group = (bootstrap, GROUP)
    with StockWorker(tmp_path / "stock", *group, **SETTINGS) as stock, WorkerProcess(tmp_path / "ours", *group) as ours:
        lines = Lines(tmp_path, bootstrap)
        lines.create(ours)  # forwarded to the stock worker, which leads
        lines.append()
        lines.arrived()
        owners = {worker_id for name in ("source", "sink") for _, worker_id in states(stock, name)}
        assert owners == {ours.worker_id, stock.url.removeprefix("http://")}
        with Admin(bootstrap_servers=bootstrap) as admin:
            described = admin.describe_group(GROUP)
        assert (described.protocol_type, len(described.members)) == ("connect", 2)
        stock.stop()
        until(lambda: running(ours, "source", 1, on={ours.worker_id}), "ours has all")
        until(lambda: running(ours, "sink", 1, on={ours.worker_id}), "ours has all")
        lines.append()
        lines.arrived()
        with StockWorker(tmp_path / "second", *group, **SETTINGS) as second:
            lines.append()
            put(second, "more", {"connector.class": FILE_SOURCE, "file": str(lines.source), "topic": "more"})
            until(lambda: running(second, "more", 1), "a connector that was forwarded to ours")
            until(lambda: len(committed(bootstrap, "more")) == len(lines.written), "it writes")
            lines.arrived()
            assert "ERROR" not in second.log()


def test_the_topics_have_what_stock_workers_write(own_broker: OttlaProcess, tmp_path: Path) -> None:
    """The same operations by both kinds, on topics of their own, leave the same records."""
    found = {}
    for kind in (StockWorker, WorkerProcess):
        name = kind.__name__.lower()
        directory = tmp_path / name
        with kind(directory, own_broker.bootstrap, name, name, **SETTINGS) as worker:
            (tmp_path / "input.txt").write_text("a\nb\n")
            config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "input.txt"), "topic": name}
            put(worker, "c", config)
            until(lambda worker=worker: running(worker, "c", 1), "it runs")
            until(lambda name=name: len(committed(own_broker.bootstrap, name)) == 2, "it writes")
            until(lambda name=name: committed(own_broker.bootstrap, f"{name}-offsets"), "offsets are committed")
            until(lambda worker=worker: worker.request("PUT", "/connectors/c/stop") is None, "it stops")
            until(lambda worker=worker: states(worker, "c")[0][0] == "STOPPED", "it is stopped")
        values = committed(own_broker.bootstrap, f"{name}-configs")
        offsets = committed(own_broker.bootstrap, f"{name}-offsets")
        text = json.dumps([values, offsets]).replace(name, "NAME")
        found[kind] = _without_secrets(*json.loads(text))
    assert found[StockWorker] == found[WorkerProcess]


def _without_secrets(values: list[dict[str, object]], offsets: list[object]) -> object:
    kept = [value for value in values if "creation-timestamp" not in value]
    return sorted(json.dumps(value, sort_keys=True) for value in kept), offsets[-1]
