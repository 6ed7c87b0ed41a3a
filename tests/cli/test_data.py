"""produce, consume, tail, log dump and bench on both brokers; as processes where signals or terminals matter."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import pytest

from ottla.clients import Admin, Consumer, Producer, Record, TopicPartition
from ottla.tools import follow
from tests import deadlines
from tests.clients.support import WAIT_S, sample_records, unique, wait_until
from tests.conftest import RunningBroker

from .commands import Done, run_with_pipes
from .conftest import Run

pytestmark = pytest.mark.both
FIRST_TIMESTAMP = 1_700_000_000_000
COMMAND = [sys.executable, "-m", "ottla.cli.main"]


class Shell(Protocol):
    def __call__(self, *words: str, feed: bytes = b"") -> Done: ...


@pytest.fixture
def shell(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Run `ottla` on the broker of the test, in this process but with the pipes that a process would have."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    return run_with_pipes


@pytest.fixture
def new_topic(broker: RunningBroker) -> Iterator[Any]:
    """Create topics, which are deleted after the test."""
    created = []
    with Admin(bootstrap_servers=broker.bootstrap) as admin:

        def create(partitions: int = 1) -> str:
            name = unique("data")
            # The records have old timestamps, so a broker would delete them by the default retention.
            admin.create_topic(name, partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
            created.append(name)
            # The brokers of stock Kafka learn of it later than its controller.
            wait_until(lambda: name in {each.name for each in admin.list_topics()}, what=f"{name} to be known")
            return name

        yield create
        if created:
            admin.delete_topics(created)


def fill(broker: RunningBroker, topic: str, count: int, partitions: int = 1) -> None:
    """Send the values 0, 1, ... to the partitions in rotation, with timestamps a second apart."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            producer.send(
                topic, b"%d" % number, partition=number % partitions, timestamp_ms=FIRST_TIMESTAMP + number * 1000
            )


def read_all(broker: RunningBroker, topic: str, count: int) -> list[Record]:
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in consumer.partitions_of(topic)])
        records: list[Record] = []
        deadline = time.monotonic() + WAIT_S
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records"
            records += consumer.poll(0.2)
    return sorted(records, key=lambda record: (record.partition, record.offset))


@pytest.mark.parametrize(
    "how",
    [
        ("-f", "%K{big32}%k%V{big32}%v%T{big64}%p{big16}%H{big16}%h{%K{big16}%k%V{big32}%v}"),
        ("-f", r"%p %T %k{escaped}\t%v{escaped}\t%h\n"),
        ("--json",),
    ],
)
def test_produce_reads_the_output_of_consume_without_loss(
    how: tuple[str, ...], broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    old, new = new_topic(2), new_topic(2)
    samples = sample_records(60)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for index, r in enumerate(samples):
            producer.send(old, r.value, r.key, partition=index % 2, headers=r.headers, timestamp_ms=r.timestamp)
    text = shell("consume", old, "-e", *how)
    assert text.code == 0, text.err
    done = shell("produce", new, *how, feed=text.out)
    assert (done.code, "60 records acknowledged" in done.err) == (0, True), done.err
    assert [(r.partition, *r) for r in read_all(broker, new, 60)] == [
        (r.partition, *r) for r in read_all(broker, old, 60)
    ]


def test_arguments_may_be_bytes_that_are_not_utf8(shell: Shell, new_topic: Any) -> None:
    topic, odd = new_topic(), os.fsdecode(b"\xff")
    shell("produce", topic, "-f", rf"%k{odd}%v\n", "--null", f"{odd}{odd}", feed=b"k\xffa\nk\xff\xff\xff\nk\xffb\n")
    assert shell("consume", topic, "-e", "-f", rf"%v{odd}", "--null", f"{odd}-").out == b"a\xff\xff-\xffb\xff"
    shell("produce", topic, "-k", odd, feed=b"by key\n")
    assert shell("consume", topic, "-e", "--grep", odd).out == b"by key\n"


@pytest.mark.parametrize(
    "words",
    [["produce", "TOPIC", "-H", "ODD=1"], ["produce", "ODD", "--create"], ["consume", "ODD", "-e"],
     ["consume", "TOPIC", "-e", "-g", "ODD"], ["topic", "create", "ODD"],
     ["config", "set", "topic", "TOPIC", "retention.ms=ODD"]],
    ids=["header", "created-topic", "read-topic", "group", "topic", "config"],
)  # fmt: skip
def test_name_that_is_not_utf8_is_an_error_in_one_line(shell: Shell, new_topic: Any, words: list[str]) -> None:
    topic = new_topic()
    done = shell(*(word.replace("TOPIC", topic).replace("ODD", os.fsdecode(b"\xff")) for word in words), feed=b"x\n")
    assert done.code in (1, 2)
    assert done.err.startswith("ottla")


def test_lines_become_records_and_verbose_prints_their_offsets(shell: Shell, new_topic: Any) -> None:
    topic = new_topic()
    done = shell("produce", topic, "-v", "-z", "lz4", feed="ä\n\nlast without an end".encode())
    assert done.lines == [f"{topic}\t0\t{offset}".encode() for offset in range(3)]
    assert shell("consume", topic, "-e").out == "ä\n\nlast without an end\n".encode()
    verbose = shell("produce", topic, "-v", "--json", "-q", feed=b'{"key":"k","value":[1, 2],"timestamp":7}')
    assert verbose.objects == [{"line": 1, "topic": topic, "partition": 0, "offset": 3, "timestamp": 7}]
    assert verbose.err == ""
    assert shell("consume", topic, "-o", "3", "-e", "--json-value").objects[0]["value"] == [1, 2]


def test_keys_headers_files_and_tombstones(broker: RunningBroker, shell: Shell, new_topic: Any, tmp_path: Path) -> None:
    topic = new_topic(2)
    (tmp_path / "logo").write_bytes(b"\x89PNG\n\x00")
    assert shell("produce", topic, "-K", ":", "-H", "a=b", "-H", "none", "-p", "1", feed=b"k:v:w\n").code == 0
    assert shell("produce", topic, "-p", "1", "-k", "logo", "--file", str(tmp_path / "logo")).code == 0
    assert shell("produce", topic, "-p", "1", "-k", "old", "--tombstone", "--timestamp", "2026-01-31T12:00Z").code == 0
    rows = read_all(broker, topic, 3)
    assert [(r.partition, r.key, r.value, r.headers) for r in rows] == [
        (1, b"k", b"v:w", [("a", b"b"), ("none", None)]),
        (1, b"logo", b"\x89PNG\n\x00", []),
        (1, b"old", None, []),
    ]
    assert rows[2].timestamp == 1_769_860_800_000


def test_invalid_line_is_reported_and_the_others_are_sent(shell: Shell, new_topic: Any) -> None:
    topic = new_topic()
    done = shell("produce", topic, "-K", "=", feed=b"a=1\nnothing\nb=2\n")
    assert done.code == 1
    assert "line 2: no '=' after its key" in done.err
    far = shell("produce", topic, "--json", feed=b'{"value":"x"}\n{"value":"y","partition":9}\n')
    assert far.code == 1
    assert "line 2: " in far.err
    assert "partition 9" in far.err
    assert shell("consume", topic, "-e", "-f", "%v ").out == b"1 2 x "


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["-e"], range(10)),
        (["-e", "-o", "7"], range(7, 10)),
        (["-e", "-o", "+8"], range(8, 10)),
        (["-e", "-o", "-3"], range(7, 10)),
        (["-e", "-o", "99"], []),
        (["-e", "-o", f"@{FIRST_TIMESTAMP + 4001}"], range(5, 10)),
        (["-n", "2"], range(2)),
        (["-n", "0"], []),
        (["-e", "--last", "4"], range(6, 10)),
        (["-e", "-o", f"@{FIRST_TIMESTAMP + 2000}", "--until", str(FIRST_TIMESTAMP + 6000)], range(2, 6)),
        (["-e", "--grep", "^[13]$"], [1, 3]),
    ],
)
def test_start_and_end_of_reading(
    words: list[str], wanted: list[int], broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    topic = new_topic()
    fill(broker, topic, 10)
    done = shell("consume", topic, *words)
    assert (done.code, [int(line) for line in done.lines]) == (0, list(wanted)), done.err


def test_partitions_patterns_and_last_records_of_all_partitions(
    broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    topic = new_topic(3)
    fill(broker, topic, 30, partitions=3)
    two = shell("consume", topic, "-e", "-p", "0,2", "-f", r"%p %v\n")
    assert sorted(int(line.split()[1]) for line in two.lines) == [n for n in range(30) if n % 3 != 1]
    assert [int(line) for line in shell("tail", topic, "-n", "5", "-e").lines] == list(range(25, 30))
    assert len(shell("consume", f"{topic[:-1]}?", "-e").lines) == 30
    assert len(shell("consume", "-r", f"{topic[:-2]}..", "-e").lines) == 30
    assert "has no partition 3" in shell("consume", topic, "-p", "3", "-e").err


def test_missing_topic_is_an_error_with_the_nearest_name_and_not_created(
    broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    topic = new_topic()
    wrong = topic[:-1] + ("x" if topic[-1] != "x" else "y")
    for words in (("consume", wrong), ("tail", wrong), ("produce", wrong)):
        done = shell(*words, feed=b"x\n")
        assert done.code == 1
        assert f"there is no topic '{wrong}'" in done.err
        assert f"Did you mean '{topic}'?" in done.err
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert wrong not in {row.name for row in admin.list_topics()}


def test_only_group_option_commits_and_only_printed_records(
    broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    topic, group = new_topic(), unique("group")
    fill(broker, topic, 10)
    assert shell("consume", topic, "--group", group, "-n", "3").lines == [b"0", b"1", b"2"]
    found = shell("consume", topic, "--group", group, "-n", "1", "--grep", "5")
    assert (found.code, found.lines) == (0, [b"5"]), found.err
    assert len(shell("consume", topic, "-e").lines) == 10
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        committed = admin.list_group_offsets(group)[TopicPartition(topic, 0)]
        assert committed is not None
        assert committed.offset == 6
        assert [row.group_id for row in admin.list_groups() if "ottla-cli" in row.group_id] == []
    rest = shell("consume", topic, "--group", group, "-e")
    assert (rest.code, [int(line) for line in rest.lines]) == (0, list(range(6, 10)))
    rejected = shell("consume", topic, "--group", group, "-o", "-5")
    assert rejected.code == 2


def test_tail_follows_until_an_interrupt(broker: RunningBroker, shell: Shell, new_topic: Any) -> None:
    topic = new_topic()
    fill(broker, topic, 3)
    process = subprocess.Popen(
        [*COMMAND, "tail", topic, "-n", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        shell("produce", topic, feed=b"new\n")
        assert process.stdout.readline() == "new\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out, err) == (130, "", "")
    finally:
        deadlines.kill(process)


def test_consume_ends_without_an_error_message_when_its_reader_ends(broker: RunningBroker, new_topic: Any) -> None:
    topic = new_topic()
    fill(broker, topic, 3)
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, "-b", broker.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()  # no more records arrive, so the closed pipe must be detected without a write
    assert process.wait(WAIT_S) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_new_partitions_are_read_from_their_beginning(
    broker: RunningBroker, ottla: Run, new_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "DISCOVER_EVERY_S", 0.1)
    topic = new_topic()
    fill(broker, topic, 1)

    def add() -> None:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_partitions({topic: 2})
        with Producer(bootstrap_servers=broker.bootstrap, metadata_max_age_ms=100) as producer:
            producer.send(topic, b"late", partition=1).result(WAIT_S)

    adding = threading.Timer(0.5, add)
    adding.start()
    done = ottla("consume", topic, "-n", "2", "-f", r"%p %v\n")
    deadlines.join(adding, "the new partition and its record")
    assert (done.code, done.out) == (0, "0 0\n1 late\n")


@pytest.mark.parametrize("words", [[], ["-f", r"%v\n"], ["--json"]])
def test_control_characters_of_records_are_escaped_at_a_terminal(
    words: list[str], broker: RunningBroker, new_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    topic = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, "\x1b[2J\x07\u009b1mä\u202e".encode(), b"\x1b]0;title\x07", headers={"h": b"\x1b[A"})
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [*COMMAND, "consume", topic, "-e", "-b", broker.bootstrap, *words], stdout=theirs, timeout=30, check=True
        )
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown.rstrip("\r\n").isprintable()
    assert "1b[2J" in shown
    assert "ä" in shown


def test_exit_at_end_of_a_topic_that_ends_in_transaction_markers(
    broker: RunningBroker, shell: Shell, new_topic: Any
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 2}
    )
    producer.init_transactions(WAIT_S)
    for value, end in ((b"yes", producer.commit_transaction), (b"no", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(WAIT_S)
        end(WAIT_S)
    assert shell("consume", topic, "-e").lines == [b"yes", b"no"]
    assert shell("consume", topic, "-e", "--isolation", "read_committed").lines == [b"yes"]


def test_bench_reports_rates_and_latencies(shell: Shell, new_topic: Any) -> None:
    topic = new_topic(2)
    (row,) = shell("bench", "produce", topic, "--records", "2000", "--json").objects
    assert (row["records"], row["bytes"]) == (2000, 200_000)
    assert 0 < row["p50_ms"] <= row["p99_9_ms"] <= row["max_ms"]
    (row,) = shell("bench", "consume", topic, "--json").objects
    assert row["records"] == 2001  # one record is the warm-up
    (row,) = shell("bench", "e2e", topic, "--records", "5", "--json").objects
    assert (row["records"], row["p50_ms"] > 0) == (5, True)
    assert b"records/s" in shell("bench", "produce", topic, "--records", "100").out


def test_log_dump_reads_the_files_of_a_broker(broker: RunningBroker, shell: Shell, new_topic: Any) -> None:
    topic, group = new_topic(), unique("dumped")
    fill(broker, topic, 20)
    assert shell("consume", topic, "--group", group, "-n", "5").code == 0
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        (directory,) = {row.path for rows in admin.describe_log_dirs().values() for row in rows}
        admin.delete_group(group)
    segment = f"{directory}/{topic}-0/{0:020}.log"
    rows = shell("log", "dump", segment, "--deep", "--verify", "--json").objects
    assert [row["value"] for row in rows if row["kind"] == "record"] == [str(number) for number in range(20)]
    assert rows[-1]["next_offset"] == 20
    assert b"20 records" in shell("log", "dump", f"{directory}/{topic}-0", "--verify").out
    offsets = sorted(str(path) for path in Path(directory).glob("__consumer_offsets-*"))

    def commits() -> bool:
        dumped = shell("log", "dump", *offsets, "--deep", "--json").objects
        records = [row["record"] for row in dumped if row.get("record", {}).get("type") == "OffsetCommit"]
        mine = [record for record in records if record["key"]["group"] == group]
        return bool(mine) and mine[0]["value"]["offset"] == 5 and mine[-1]["value"] is None

    wait_until(commits, "the commit and its deletion in the log")
    metadata = shell("log", "dump", f"{directory}/__cluster_metadata-0/{0:020}.log", "--deep")
    assert f"TopicRecord name={topic} ".encode() in metadata.out
    assert os.path.getsize(segment) == rows[-1]["size"]
