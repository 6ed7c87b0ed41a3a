"""`ottla stream list`, `describe`, `why` and `reset`, with statuses that no pipeline has published; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer
from ottla.clients.errors import TopicAuthorizationFailed
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.streams.batch_reports import after_batch
from ottla.streams.checkpoint_files import PROGRAM_FILE, START_FILE, StoredProgram, load_starts
from ottla.streams.observing import read_statuses
from ottla.streams.publishing import Publisher
from ottla.streams.status import TOPIC, FrequentKey, Phase, Problem, Run, SlowTask, Status, at_start

if TYPE_CHECKING:
    from ottla.testing import Ottla


class Answer(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def command(ottla: Ottla, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `ottla stream VERB ...` on the broker of the test."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Answer:
        capsys.readouterr()
        code = main(["stream", *map(str, words), "-b", ottla.bootstrap])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def publish(ottla: Ottla) -> Iterator[Callable[[Status], None]]:
    """Publish a status."""
    publishers = []

    def offer(status: Status) -> None:
        publishers.append(Publisher({"bootstrap.servers": ottla.bootstrap}))
        publishers[-1].offer(status)
        publishers[-1].close()

    yield offer
    for each in publishers:
        each._thread.join(10)


def status(ottla: Ottla, directory: Path | None = None) -> Status:
    """The status of the query `shop` after a micro-batch that read three of five records."""
    ottla.topic("orders", 2)
    ottla.produce("orders", "a", "b", "c", "d", "e", partition=0)
    now_ms = units.now_ms()
    run = Run(
        "shop",
        "shop",
        "1234abcd",
        "here",
        7,
        now_ms - 60_000,
        str(directory) if directory else "",
        exactly_once=True,
        streams={"rows": "orders"},
        outputs=["invoices"],
    )
    report = {
        "batchId": 0,
        "batchDuration": 100,
        "durationMs": {"addBatch": 80, "walCommit": 15},
        "sources": [{"startOffset": None, "endOffset": {"orders": {"0": 3, "1": 0}}, "latestOffset": None}],
        "sink": {"numOutputRows": 3},
    }
    return after_batch(at_start(run, {"orders": {0: (0, 5), 1: (0, 0)}}), report, now_ms)


def test_lag_of_a_running_pipeline_is_the_present_one(
    ottla: Ottla, command: Command, publish: Callable[[Status], None]
) -> None:
    """A micro-batch runs, or none has begun, and records arrive meanwhile."""
    now_ms = units.now_ms()
    busy = replace(status(ottla), at_ms=now_ms, busy_since_ms=now_ms - 5_000)
    publish(busy)
    publish(replace(at_start(replace(busy.run, query="shop.new"), {"orders": {0: (5, 5), 1: (0, 0)}}), at_ms=now_ms))
    assert [row["lag"] for row in map(json.loads, command("list", "--json").out.splitlines())] == [2, 0]
    for partition in (0, 1):
        ottla.produce("orders", *["x"] * 10_000, partition=partition)
    rows = [json.loads(line) for line in command("list", "--json").out.splitlines()]
    assert [(row["query"], row["state"], row["lag"]) for row in rows] == [
        ("shop", "running", 20_002),
        ("shop.new", "starting", 20_000),
    ]
    described = [json.loads(line) for line in command("describe", "--json").out.splitlines()]
    assert [(each["state"], each["lag"]) for each in described] == [("running", 20_002), ("starting", 20_000)]
    assert "20,002" in command("describe", "shop").out


def test_pipelines_are_listed_and_described(ottla: Ottla, command: Command, publish: Callable[[Status], None]) -> None:
    assert command("list").err == "No pipeline has run with this cluster yet.\n"
    publish(status(ottla))
    publish(Status(Run("lost", "lost.counts"), at_ms=1))
    rows = [json.loads(line) for line in command("list", "--json").out.splitlines()]
    assert [(row["pipeline"], row["query"], row["state"], row["batch"]) for row in rows] == [
        ("lost", "lost.counts", "silent", None),
        ("shop", "shop", "running", 0),
    ]
    assert "silent" in command("list", "lost").out
    described = command("describe", "shop").out
    assert "exactly once" in described
    assert "0, 3 records in 100 ms" in described
    assert "invoices: 3 rows" in described
    assert json.loads(command("describe", "shop", "--json").out)["inputs"][0]["partitions"][0]["offset"] == 3
    assert "Did you mean shop?" in command("describe", "shp").err


@pytest.mark.parametrize("phase", ["failed", "stopped", "running"])
def test_lag_is_computed_from_the_present_ends(
    phase: Phase, ottla: Ottla, command: Command, publish: Callable[[Status], None]
) -> None:
    publish(replace(status(ottla), phase=phase))
    ottla.produce("orders", "f", partition=0)
    ottla.produce("orders", "g", partition=1)
    for verb in ("list", "describe"):
        assert json.loads(command(verb, "--json").out)["lag"] == 4
    with Admin(bootstrap_servers=ottla.bootstrap) as admin:
        admin.delete_topics(["orders"])
    assert json.loads(command("list", "--json").out)["lag"] == 0


def test_lag_of_the_last_status_is_shown_without_access_to_the_inputs(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TopicAuthorizationFailed("not authorized")

    publish(replace(status(ottla), phase="failed"))
    monkeypatch.setattr(Admin, "describe_topics", refuse)
    answer = command("list")
    assert "failed    0" in answer.out
    assert "The ends of the inputs are not known; the lag is from the last status: not authorized" in answer.err


@pytest.mark.parametrize("words", [(), ("--long",)])
def test_list_fits_into_a_terminal_as_other_lists_do(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], words: tuple[str, ...]
) -> None:
    before = status(ottla)
    run = replace(before.run, query="shop.invoices-of-the-year", host="worker-3.example.net")
    assert before.batch is not None
    batch = replace(before.batch, number=123_456, processed_per_s=12_345.6)
    publish(replace(before, run=run, phase="restarting", at_ms=before.at_ms - 83_000_000, batch=batch))
    lines = command("list", *words).out.splitlines()
    assert max(map(len, lines)) <= (160 if words else 90)
    assert (
        lines[0].split()
        == (
            "PIPELINE QUERY STATE LAG RECORDS/S BATCH TOOK RECORDS HOST REPORTED"
            if words
            else "QUERY STATE LAG RECORDS/S BATCH TOOK REPORTED"
        ).split()
    )
    assert "worker-3" in lines[1] if words else "ago" in lines[1]


def test_statuses_of_other_versions_are_skipped(ottla: Ottla, publish: Callable[[Status], None]) -> None:
    publish(status(ottla))
    ottla.produce(TOPIC, "{}", key="other/other")
    ottla.produce(TOPIC, None, key="deleted/deleted")
    (found,) = read_statuses({"bootstrap.servers": ottla.bootstrap})
    assert found.run.query == "shop"


def test_why_names_the_transactional_id_that_holds_records_back(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(status(ottla))
    answer = command("why", "shop")
    assert (answer.code, "Running. It makes progress" in answer.out) == (0, True)
    monkeypatch.setattr("ottla.streams.diagnosis.OPEN_MS", -10_000)
    with Producer(bootstrap_servers=ottla.bootstrap, transactional_id="billing-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x", partition=0).result(10)
        answer = command("why", "shop", "--fail")
        assert answer.code == 1
        assert "A transaction of 'billing-1' is open in orders-0 from offset 5 on" in answer.out
        assert "`ottla txn abort --transactional-id billing-1` aborts it now." in answer.out
        assert json.loads(command("why", "shop", "--json").out.splitlines()[0])["cause"] == "open transaction"
        producer.abort_transaction()


def test_why_names_the_key_that_most_records_of_a_partition_have(
    ottla: Ottla, command: Command, publish: Callable[[Status], None]
) -> None:
    publish(status(ottla))
    # Older than the sample.
    ottla.produce("orders", *["x"] * 500, key="old", partition=0)
    ottla.produce("orders", *["x"] * 400, key="few", partition=0)
    ottla.produce("orders", *["x"] * 600, key="many \x1b[1m", partition=0)
    ottla.produce("orders", *["x"] * 90, key="other", partition=1)
    answer = command("why", "shop")
    assert "Skewed key. Partition 0 of orders has 94 % of the lag." in answer.out
    assert "60 % of its newest 1,000 records have the key 'many \\x1b[1m'." in answer.out


def test_why_names_the_key_of_a_slow_task(ottla: Ottla, command: Command, publish: Callable[[Status], None]) -> None:
    key = FrequentKey("deduplicate by user", ["user"], ['"ü"'], 90, 95, 100)
    now_ms = units.now_ms()
    slow = SlowTask(now_ms, 3, 1, 2, 20_000, 300, "worker-2", keys=[key])
    publish(replace(status(ottla), slow=slow, busy_since_ms=now_ms - 25_000))
    answer = command("why", "shop")
    assert "Skewed key. Task 1 of 2, on worker-2, ran for 20.0 s" in answer.out
    assert """95 % of 100 rows in a sample, and 94 % of these have user = "ü". The operator""" in answer.out
    rows = [json.loads(line) for line in command("why", "shop", "--json").out.splitlines()]
    assert "skewed key" in [row["cause"] for row in rows]


def test_why_does_without_keys_that_it_may_not_read(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(status(ottla))
    ottla.produce("orders", *["x"] * 1_500, key="many", partition=0)

    def refuse(*_: object) -> None:
        raise TopicAuthorizationFailed("orders")

    monkeypatch.setattr("ottla.streams.observing._newest", refuse)
    assert "Skewed partition. Partition 0 of orders has 100 % of the lag." in command("why", "shop").out


def test_why_names_the_record_that_stopped_a_pipeline(
    ottla: Ottla, command: Command, publish: Callable[[Status], None]
) -> None:
    failed = Problem(1, "data", "Topic 'orders', partition 0, offset 3: the value is not JSON")
    publish(replace(status(ottla), phase="failed", problem=failed))
    assert "`ottla consume orders -p 0 -o 3 -n 1` shows the record." in command("why", "shop").out


def checkpoint(directory: Path) -> Path:
    found = directory / "shop"
    (found / "shop" / "offsets").mkdir(parents=True)
    (found / PROGRAM_FILE).write_text(StoredProgram(1, {"rows": "orders"}, {"shop": []}).dumps())
    return found


def test_running_pipeline_is_not_reset(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], tmp_path: Path
) -> None:
    found = checkpoint(tmp_path)
    publish(status(ottla, found))
    answer = command("reset", "shop", "--yes")
    assert (answer.code, "shop runs: process 7 on here" in answer.err) == (1, True)
    assert (found / PROGRAM_FILE).exists()


def test_reset_deletes_checkpoint_offsets_and_status(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], tmp_path: Path
) -> None:
    found = checkpoint(tmp_path)
    publish(replace(status(ottla, found), phase="stopped"))
    with Admin(bootstrap_servers=ottla.bootstrap) as admin:
        admin.alter_group_offsets("shop", {TopicPartition("orders", 0): 3})
        dry = command("reset", "shop", "--dry-run")
        assert "committed offsets of shop: would be deleted" in dry.out
        assert "would be deleted" in dry.out
        assert "Nothing was changed" in dry.err
        assert (found / PROGRAM_FILE).exists()
        answer = command("reset", "shop")
        assert answer.code == 0, answer.err
        assert f"shop: checkpoint {found} deleted" in answer.out
        assert "invoices: unchanged" in answer.err
        assert list(tmp_path.iterdir()) == []
        assert "shop" not in [each.group_id for each in admin.list_groups()]
    assert command("list", "--json").out == ""


@pytest.mark.parametrize(("word", "start"), [("--to-earliest", 0), ("--to-latest", 5), ("--to-datetime=2100-01-01", 5)])
def test_reset_to_another_place(
    ottla: Ottla, command: Command, publish: Callable[[Status], None], tmp_path: Path, word: str, start: int
) -> None:
    found = checkpoint(tmp_path)
    publish(replace(status(ottla, found), phase="stopped"))
    with Admin(bootstrap_servers=ottla.bootstrap) as admin:
        admin.alter_group_offsets("shop", {TopicPartition("orders", 0): 3})
        rows = json.loads(command("reset", "shop", word, "--json").out)["starts"]
        assert rows[0] == {"topic": "orders", "partition": 0, "offset": start}
        assert load_starts((found / START_FILE).read_text())["orders"]["0"] == start
        assert admin.list_group_offsets("shop")[TopicPartition("orders", 0)].offset == start
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


def test_reset_of_a_pipeline_without_a_status(ottla: Ottla, command: Command, tmp_path: Path) -> None:
    assert "There is no status of a pipeline 'shop'" in command("reset", "shop").err
    assert "and no checkpoint" in command("reset", "shop", "--checkpoints", tmp_path).err
    found = checkpoint(tmp_path)
    assert "exclude each other" in command("reset", "shop", "--to-latest", "--to-earliest").err
    assert command("reset", "shop", "--checkpoints", tmp_path).code == 0
    assert not found.exists()


def test_cluster_without_pipelines_is_described_as_such(ottla: Ottla, command: Command) -> None:
    assert command("list").err == command("describe").err == "No pipeline has run with this cluster yet.\n"
