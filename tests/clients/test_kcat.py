"""kcat of Debian: a command line tool with a librdkafka of 2023."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.conftest import RunningBroker
from tests.peers.cache import in_ci

from .conftest import MakeTopic
from .support import unique
from .wire import stored_codecs


@pytest.fixture(autouse=True)
def kcat_is_there() -> None:
    if shutil.which("kcat") is None:
        (pytest.fail if in_ci() else pytest.skip)("no kcat on the PATH: run `make peers`, or apt-get install kcat")


def kcat(broker: RunningBroker, *arguments: str, text: str = "", code: int = 0) -> str:
    """Run kcat, and return its standard output, or its standard error if a failure is expected."""
    command = ["kcat", "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code, f"{command}: {done.stderr}"
    return done.stderr if code else done.stdout


@pytest.mark.both
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_are_produced_and_consumed(broker: RunningBroker, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    lines = "".join(f"key-{i}:value {i} {'again and ' * 20}\n" for i in range(200))
    kcat(broker, "-P", "-t", topic, "-K:", "-z", codec, "-H", "origin=kcat", "-X", "linger.ms=20", text=lines)
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%k:%s\n") == lines
    assert set(kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%h\n").split()) == {"origin=kcat"}
    assert codec in stored_codecs(
        broker.bootstrap, topic
    )  # a batch that compression would enlarge is sent uncompressed


@pytest.mark.both
def test_metadata_is_listed_as_json(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [b["name"] for b in listed["brokers"]] == [broker.bootstrap]
    assert [p["partition"] for p in listed["topics"][0]["partitions"]] == [0, 1, 2]


@pytest.mark.both
def test_offsets_are_queried_by_time_and_records_read_from_the_end(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    kcat(broker, "-P", "-t", topic, text="one\ntwo\nthree\n")
    assert kcat(broker, "-C", "-t", topic, "-o", "-1", "-e", "-q") == "three\n"
    assert kcat(broker, "-C", "-t", topic, "-o", "1", "-c", "1", "-e", "-q") == "two\n"
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 3"
    assert kcat(broker, "-Q", "-t", f"{topic}:0:1").strip() == f"{topic} [0] offset 0"


@pytest.mark.both
def test_group_reads_to_the_end_and_continues_at_its_commit(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    group = unique("group")
    options = ["-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic]
    kcat(broker, "-P", "-t", topic, text="".join(f"{i}\n" for i in range(20)))
    assert sorted(kcat(broker, *options).split(), key=int) == [str(i) for i in range(20)]
    kcat(broker, "-P", "-t", topic, text="new\n")
    assert kcat(broker, *options) == "new\n"


@pytest.mark.both
def test_unknown_topic_and_partition_are_reported_by_name(broker: RunningBroker, make_topic: MakeTopic) -> None:
    said = kcat(broker, "-C", "-t", unique("nowhere"), "-e", "-X", "allow.auto.create.topics=false", code=1)
    assert "Unknown topic or partition" in said
    assert "Unknown partition" in kcat(broker, "-P", "-t", make_topic(), "-p", "9", text="x\n", code=1)


@pytest.mark.both
def test_idempotent_producer_with_acks_all(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    lines = "".join(f"{i}\n" for i in range(5000))
    kcat(broker, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "acks=all", text=lines)
    assert kcat(broker, "-C", "-t", topic, "-e", "-q") == lines
