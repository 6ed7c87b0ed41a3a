"""Lookups of keys in tables, and tables as they were, without Spark's Java."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer, TopicPartition
from ottla.clients.admin import ConfigResource
from ottla.spark import range_columns, table_history
from ottla.spark.options import read_source_options
from ottla.spark.table_ends import TableError
from ottla.spark.table_history import check_history
from ottla.streams import StreamsError, lookup, table
from tests.clients.support import FIRST_TIMESTAMP, unique
from tests.conftest import RunningBroker


class Topic:
    """A compacted topic with three partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = unique("lookup")
        self.producer: Producer[Any, Any] = Producer(bootstrap_servers=bootstrap)
        with Admin(bootstrap) as admin:
            admin.create_topic(self.name, partitions=3, replication_factor=1, config={"cleanup.policy": "compact"})

    def send(self, key: str, value: object, at: int = 0, partition: int | None = None) -> None:
        text = None if value is None else json.dumps(value).encode()
        self.producer.send(self.name, text, key=key.encode(), timestamp_ms=FIRST_TIMESTAMP + at, partition=partition)
        self.producer.flush()

    def get(self, key: str, **given: Any) -> Any:
        found = table(self.name, key="id", schema="name STRING, at TIMESTAMP", **given)
        return found.get(key, bootstrap=self.bootstrap)


@pytest.fixture
def topic(broker: RunningBroker) -> Iterator[Topic]:
    made = Topic(broker.bootstrap)
    yield made
    made.producer.close()
    range_columns._readers.close()


@pytest.mark.both
def test_latest_value_of_a_key_is_found(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "FIRST_PIECE", 2)
    monkeypatch.setattr(lookup, "LARGEST_PIECE", 4)
    for number in range(60):
        topic.send(f"k{number % 20}", {"name": f"v{number}"})
    topic.send("k3", {"name": "new", "at": "2026-01-01T00:00:00Z"})
    topic.send("k4", None)
    assert topic.get("k3") == {"name": "new", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
    assert [topic.get(f"k{number}")["name"] for number in (0, 9, 19)] == ["v40", "v49", "v59"]
    assert topic.get("k4") is None
    assert topic.get("other") is None


def test_record_of_an_open_transaction_is_not_found(topic: Topic) -> None:
    topic.send("a", {"name": "old"})
    with Producer(bootstrap_servers=topic.bootstrap, transactional_id=unique("id")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic.name, b'{"name": "new"}', key=b"a")
        producer.flush()
        assert topic.get("a")["name"] == "old"
        producer.commit_transaction()
    assert topic.get("a")["name"] == "new"


def test_value_as_of_a_time_or_offset(topic: Topic) -> None:
    partition = 1
    for number in range(3):
        topic.send("a", {"name": f"v{number}"}, at=number * 1000, partition=partition)
    place = TopicPartition(topic.name, partition)
    client = {"bootstrap.servers": topic.bootstrap}

    def at(as_of: Any) -> Any:
        found = lookup.find(
            table(topic.name, key="id", schema="name STRING", as_of=as_of), "a", client, all_partitions=True
        )
        return None if found is None else found.value["name"]

    first = dt.datetime.fromtimestamp(FIRST_TIMESTAMP / 1000, dt.UTC)
    assert at(None) == "v2"
    assert at(first + dt.timedelta(seconds=1)) == "v1", "a record at that time is included"
    assert at((first + dt.timedelta(seconds=1.5)).isoformat()) == "v1"
    assert at(first - dt.timedelta(seconds=1)) is None
    assert at({0: 0, 1: 1, 2: 0}) == "v0"
    with pytest.raises(StreamsError, match="as_of has no offset for"):
        at({1: 1})
    with pytest.raises(StreamsError, match="must be a time such as"):
        table("a", key="id", schema="name STRING", as_of="yesterday")
    with Admin(topic.bootstrap) as admin:
        admin.alter_config(ConfigResource.topic(topic.name), {"cleanup.policy": "compact,delete"})
        admin.delete_records({place: 2})
    with pytest.raises(TableError, match="the log begins at offset 2"):
        at({0: 0, 1: 1, 2: 0})


def test_history_with_gaps_and_no_repeated_key_is_unknown(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TopicPartition(topic.name, 0)
    source = read_source_options({"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name})
    for key in "abc":
        topic.send(key, {"name": key}, partition=0)
    real = table_history.read_range

    def compacted(client: Any, wanted: Any, **options: Any) -> Any:
        for records in real(client, wanted, **options):
            yield records.slice(1)

    with Admin(topic.bootstrap) as admin:
        check_history(admin, source, place, 0, 3)
        monkeypatch.setattr(table_history, "read_range", compacted)
        with pytest.raises(TableError, match=r"before offset 3 may have been compacted away.*min.compaction.lag.ms"):
            check_history(admin, source, place, 0, 3)
        topic.send("c", {"name": "c2"}, partition=0)
        check_history(admin, source, place, 0, 4)
        admin.alter_config(ConfigResource.topic(topic.name), {"cleanup.policy": "delete"})
        check_history(admin, source, place, 0, 3)


WITHOUT_SPARK = """
import sys
sys.modules |= dict.fromkeys(("pyspark", "pyarrow", "pandas", "numpy"))  # an import of them fails
from ottla.cli.main import main
from ottla.streams import table
topic, bootstrap = sys.argv[1:]
assert main(["stream", "get", topic, "a", "-b", bootstrap]) == 0
assert main(["stream", "get", topic, "b", "-b", bootstrap]) == 1
print([table(topic, key="id", value=kind).get("a", bootstrap=bootstrap) for kind in ("text", "bytes")])
print(table(topic, key="id", schema="name STRING, n DECIMAL(5,2)").get("a", bootstrap=bootstrap))
assert main(["stream", "get", topic, "a", "-b", bootstrap, "--schema", "name STRING, at TIMESTAMP"]) == 0
main(["stream", "get", topic, "a", "-b", bootstrap, "--as-of", "now"])
sys.modules["google.protobuf"] = None
main(["stream", "get", topic, "a", "-b", bootstrap, "--value", "protobuf", "--schema", f"{sys.executable}#a.B"])
"""


def test_lookup_needs_only_the_base_installation(topic: Topic) -> None:
    topic.send("a", {"name": "Ann"})
    topic.send("b", None)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, topic.name, topic.bootstrap],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [
        '{"name": "Ann"}',
        """['{"name": "Ann"}', b'{"name": "Ann"}']""",
        "{'name': 'Ann', 'n': None}",
        '{"name": "Ann", "at": null}',
    ], ran.stderr
    assert [line.partition(": ")[2] for line in ran.stderr.splitlines()[-2:]] == [
        "A table as it was (as_of) needs the package pyarrow: pip install pyarrow",
        "The format protobuf needs a package: pip install 'ottla[protobuf]'",
    ]


AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "int"]}]}


def test_command_shows_the_fields_of_a_value(topic: Topic, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topic.send("a", {"at": "2026-01-02T03:04:05Z", "d": 1.5, "b": "AAE=", "x": "NaN", "m": {"é": [1]}})
    topic.producer.send(topic.name, b"\x02\x0e", key=b"avro").result(10)
    topic.producer.send(topic.name, b"\x08", key=b"odd").result(10)

    def get(*words: str) -> tuple[int, str, str]:
        code = main(["stream", "get", topic.name, *words, "-b", topic.bootstrap])
        return (code, *capsys.readouterr())

    schema = "at TIMESTAMP, d DECIMAL(5,2), b BINARY, x DOUBLE, m MAP<STRING, ARRAY<INT>>"
    shown = '{"at": "2026-01-02T03:04:05Z", "d": "1.50", "b": "AAE=", "x": "NaN", "m": {"é": [1]}}\n'
    assert get("a", "--schema", schema) == (0, shown, "")
    assert json.loads(get("a", "--schema", schema, "--json")[1])["value"] == json.loads(shown)
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    assert get("avro", "--value", "avro", "--schema", f"@{tmp_path}/r.avsc")[:2] == (0, '{"n": 7}\n')
    code, _, error = get("odd", "--value", "avro", "--schema", json.dumps(AVRO))
    assert code == 1
    assert "offset" in error
    assert "the value's field n has an index" in error
    assert "needs --schema" in get("a", "--value", "avro")[2]
    assert "No such file" in get("a", "--schema", "@none")[2]
    assert "value.schema has the unknown type 'intt'" in get("a", "--schema", "a INTT")[2]


def test_command_prints_the_value(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.send("a", {"name": "An"}, at=1000)
    topic.send("a", {"name": "Ann"}, at=5000)
    arguments = ["stream", "get", topic.name, "a", "-b", topic.bootstrap]
    assert main(arguments) == 0
    assert capsys.readouterr().out == '{"name": "Ann"}\n'
    assert main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["value"], shown["timestamp"]) == ('{"name": "Ann"}', FIRST_TIMESTAMP + 5000)
    first = dt.datetime.fromtimestamp(FIRST_TIMESTAMP / 1000 + 2, dt.UTC).isoformat().replace("+00:00", "Z")
    assert main([*arguments, "--as-of", first]) == 0
    assert capsys.readouterr().out == '{"name": "An"}\n'
    assert main(["stream", "get", topic.name, "none", "-b", topic.bootstrap]) == 1
    assert "has no key 'none'" in capsys.readouterr().err
