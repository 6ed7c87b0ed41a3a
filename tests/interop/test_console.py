"""kafka-console-producer and kafka-console-consumer: records there and back with all that they carry."""

from __future__ import annotations

import re
import time

import pytest

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def printing(*properties: str) -> list[str]:
    return [f"--formatter-property=print.{what}=true" for what in properties]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_in_order(tools: Tools, name: str, codec: str) -> None:
    lines = [f"key-{i}\tvalue {i} " + "x" * 100 for i in range(200)]
    tools.create_topic(name)
    tools.produce(name, lines, "--compression-codec", codec)
    assert tools.consume(name, len(lines)) == lines


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_broker_recompresses_where_the_topic_asks_for_it(tools: Tools, name: str, codec: str) -> None:
    lines = [f"key-{i}\tvalue {i} " + "y" * 100 for i in range(50)]
    tools.create_topic(name, compression_type=codec)
    tools.produce(name, lines, "--compression-codec", "zstd")
    assert tools.consume(name, len(lines)) == lines


def test_headers_timestamp_partition_and_offset_are_kept(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    before = int(time.time() * 1000)
    lines = ["h1:v1,h2:\tk1\tvalue1", "h3:v3\tk2\tvalue2"]
    tools.produce(name, lines, "--reader-property=parse.headers=true")
    options = printing("headers", "timestamp", "partition", "offset")
    seen = [re.fullmatch(r"CreateTime:(\d+)\t(.*)", line) for line in tools.consume(name, 2, *options)]
    assert all(seen)
    assert [m[2] for m in seen if m] == [
        "Partition:0\tOffset:0\th1:v1,h2:\tk1\tvalue1",
        "Partition:0\tOffset:1\th3:v3\tk2\tvalue2",
    ]
    assert all(before <= int(m[1]) <= int(time.time() * 1000) for m in seen if m)


def test_log_append_time_is_the_brokers(tools: Tools, name: str) -> None:
    tools.create_topic(name, message_timestamp_type="LogAppendTime")
    tools.produce(name, ["k\tv"])
    assert re.match(r"LogAppendTime:\d{13}\tk\tv", tools.consume(name, 1, *printing("timestamp"))[0])


def test_null_values_come_back_as_null(tools: Tools, name: str) -> None:
    tools.create_topic(name, cleanup_policy="compact")
    tools.produce(name, ["k\tNIL", "k\tvalue"], "--reader-property=null.marker=NIL")
    assert tools.consume(name, 2) == ["k\tnull", "k\tvalue"]


def test_null_key_is_refused_by_a_compacted_topic(tools: Tools, name: str) -> None:
    tools.create_topic(name, cleanup_policy="compact")
    done = tools.run("console-producer", "--topic", name, stdin="no key\n")
    assert "InvalidRecordException" in done.stdout + done.stderr


def test_record_larger_than_the_topic_allows_is_refused(tools: Tools, name: str) -> None:
    tools.create_topic(name, max_message_bytes=500)
    done = tools.run("console-producer", "--topic", name, stdin="x" * 1000 + "\n")
    assert "RecordTooLargeException" in done.stdout + done.stderr
    tools.produce(name, ["k\tsmall"])
    assert tools.consume(name, 1) == ["k\tsmall"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(tools: Tools, name: str, acks: str) -> None:
    tools.create_topic(name)
    # Idempotence, on by default, goes with acks=all alone.
    tools.produce(
        name,
        ["k\tv"],
        "--command-property",
        f"acks={acks}",
        "--command-property",
        f"enable.idempotence={acks == 'all'}".lower(),
    )
    assert tools.consume(name, 1) == ["k\tv"]


def test_group_goes_on_where_it_stopped(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, ["a\t1", "b\t2", "c\t3"])
    assert tools.consume(name, 2, "--group", name) == ["a\t1", "b\t2"]
    assert tools.consume(name, 1, "--group", name) == ["c\t3"]


def test_one_partition_from_an_offset(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=2)
    tools.produce(name, [f"same\t{i}" for i in range(10)])
    partition = 0 if ":0:10" in tools.ok("get-offsets", "--topic", name).replace(f"{name}:", ":") else 1
    wanted = ("--topic", name, "--partition", partition, "--offset", 7, "--max-messages", 3, "--timeout-ms", 20_000)
    assert tools.ok("console-consumer", *wanted).split() == ["7", "8", "9"]


def test_read_committed_sees_plain_records(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, ["k\tv"])
    assert tools.consume(name, 1, "--isolation-level", "read_committed") == ["k\tv"]


def test_producing_to_an_unknown_topic_creates_it(tools: Tools, name: str) -> None:
    tools.produce(name, ["k\tv"])
    assert tools.consume(name, 1) == ["k\tv"]
    assert name in tools.ok("topics", "--list").split()
