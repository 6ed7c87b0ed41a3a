"""The directory that a broker leaves behind, read by stock Kafka's dump-log and metadata-shell.

One broker of each kind writes every codec, several segments, group state, settings and deletions, and is stopped; the
tests then read its files. That stock Kafka's own directory passes shows that the tests ask for the right things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.support import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import OttlaProcess
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .conftest import Tools

pytestmark = pytest.mark.jvm

SNAPSHOTS = "__cluster_metadata-0/*-*.checkpoint"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Snapshots of the metadata after every few records instead of 20 MB.
PROPERTIES = {**TEST_PROPERTIES, "metadata.log.max.record.bytes.between.snapshots": 1000}


class Left(NamedTuple):
    """The files that a broker of `kind` left in `data`."""

    kind: str
    data: Path
    topic_id: str

    def files(self, pattern: str) -> list[Path]:
        found = sorted(self.data.glob(pattern))
        assert found, f"no {pattern} in {self.data}"
        return found


def write(tools: Tools, data: Path) -> str:
    """Fill a broker whose files are in `data`; returns the id of topic `codecs`."""
    tools.create_topic("codecs")
    for codec in CODECS:
        lines = [f"h:{codec}\t{codec}-{i}\t{'value ' * 20}{i}" for i in range(20)]
        tools.produce("codecs", lines, "--compression-codec", codec, "--reader-property=parse.headers=true")
    tools.create_topic("rolled", segment_bytes=1_048_576, index_interval_bytes=512)
    load = ("--num-records", 3000, "--record-size", 1000, "--throughput", -1)
    tools.ok("producer-perf-test", "--topic", "rolled", *load, "--command-property", "batch.size=4096")
    assert len(tools.consume("codecs", 100, "--group", "readers")) == 100
    topic = ("--entity-type", "topics", "--entity-name", "codecs")
    tools.ok("configs", "--alter", *topic, "--add-config", "retention.ms=77777777")
    tools.create_topic("shortlived")
    tools.ok("topics", "--delete", "--topic", "shortlived")
    found = re.search(r"TopicId: (\S+)", tools.ok("topics", "--describe", "--topic", "codecs"))
    assert found
    # The records so far have to be in a snapshot; brokers look now and then whether one is due.
    watermark = re.search(r"HighWatermark: +(\d+)", tools.ok("metadata-quorum", "describe", "--status"))
    assert watermark
    for number in range(8):
        tools.create_topic(f"more-{number}")
    wanted = int(watermark[1])
    wait_until(
        lambda: any(int(path.name[:20]) >= wanted for path in data.glob(SNAPSHOTS)), "a snapshot of the metadata"
    )
    return found[1]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("ottla", marks=pytest.mark.xdist_group("left-ottla")),
        pytest.param("kafka", marks=pytest.mark.xdist_group("stock-interop")),
    ],
)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    """The directory of a stopped broker."""
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    directory = tmp_path_factory.mktemp("left")
    if request.param == "kafka":
        with kafka.StockKafka(directory, overrides=PROPERTIES) as stock:
            topic_id = write(Tools(stock.bootstrap), stock.data())
        yield Left("kafka", stock.data(), topic_id)
    else:
        with OttlaProcess(directory, PROPERTIES) as ottla:
            topic_id = write(Tools(ottla.bootstrap), ottla.data)
        yield Left("ottla", ottla.data, topic_id)


def dump(files: list[Path], *options: str) -> str:
    """dump-log over files; fails on whatever it finds amiss."""
    done = kafka.tool("dump-log", *options, "--files", ",".join(map(str, files)))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    for complaint in ("isvalid: false", "Mismatches", "non-consecutive", "Found timestamp mismatch", "out of order"):
        assert complaint not in done.stdout, f"{complaint} in\n{done.stdout[-3000:]}"
    assert "ERROR" not in done.stderr, done.stderr
    return done.stdout


def test_every_record_of_every_codec_is_read(left: Left) -> None:
    text = dump(left.files("codecs-0/*.log"), "--deep-iteration", "--print-data-log")
    assert set(re.findall(r"compresscodec: (\w+)", text)) == set(CODECS)
    records = re.findall(r"offset: (\d+) CreateTime: \d{13} .* headerKeys: \[h\] key: (\w+-\d+) payload: value ", text)
    expected = [f"{codec}-{i}" for codec in CODECS for i in range(20)]
    assert records == [(str(offset), key) for offset, key in enumerate(expected)]


def test_indices_agree_with_their_logs(left: Left) -> None:
    logs = left.files("rolled-0/*.log")
    assert len(logs) >= 3, "the topic did not roll"
    for index in left.files("rolled-0/*.*index"):
        assert "Mismatch" not in dump([index]), index
    assert max(index.stat().st_size for index in left.files("rolled-0/*.index")) >= 100 * 8
    text = dump(left.files("rolled-0/*.*index"), "--index-sanity-check")
    assert text.count("passed sanity check") == 2 * len(logs)


def test_index_entries_point_into_the_log(left: Left) -> None:
    first_log, first_index = left.files("rolled-0/*.log")[0], left.files("rolled-0/*.index")[0]
    batches = dict(re.findall(r"lastOffset: (\d+) .* position: (\d+) ", dump([first_log])))
    entries = re.findall(r"^offset: (\d+) position: (\d+)", dump([first_index]), re.MULTILINE)
    assert len(entries) > 100
    assert all(batches.get(offset) == position for offset, position in entries)


def test_producer_snapshot_names_the_producer(left: Left) -> None:
    # The newest segment's snapshot is written when the broker stops.
    newest = left.files("rolled-0/*.snapshot")[-1]
    text = dump([newest])
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 2999|lastOffset: 2999", text), text


def test_group_state_is_decoded(left: Left) -> None:
    logs = [path for path in left.files("__consumer_offsets-*/*.log") if path.stat().st_size]
    text = dump(logs, "--offsets-decoder")
    committed = re.findall(
        r'key: \{"type":"(\d)","data":\{"group":"readers","topic":"codecs","partition":0\}\} '
        r'payload: \{"version":"\d","data":\{"offset":(\d+),',
        text,
    )
    assert committed[-1] == ("1", "100")
    generations = re.findall(
        r'"data":\{"group":"readers"\}\} payload: .*"protocolType":"consumer","generation":1,"protocol":"range"', text
    )
    assert generations


def test_metadata_log_is_decoded(left: Left) -> None:
    text = dump(left.files("__cluster_metadata-0/*.log"), "--cluster-metadata-decoder")
    assert "LeaderChange" in text
    for record in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"):
        assert f'"type":"{record}"' in text
    assert f'"name":"codecs","topicId":"{left.topic_id}"' in text
    assert '"resourceName":"codecs","name":"retention.ms","value":"77777777"' in text
    assert '"type":"REMOVE_TOPIC_RECORD"' in text
    assert "could not be decoded" not in text.lower()


def shell(snapshot: Path, *command: str) -> str:
    """One command of metadata-shell, in a process of its own: it does not end twice in one JVM."""
    process = kafka.start_tool("metadata-shell", "--snapshot", snapshot, *command)
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        kafka.stop_process(process)
    assert process.returncode == 0, output
    return output


def test_metadata_snapshot_is_browsed(left: Left) -> None:
    snapshot = left.files(SNAPSHOTS)[-1]
    wanted = {"codecs:", "rolled:", f"{left.topic_id}:", "metadataVersion:", "retention.ms:"}
    # On a busy machine the shell may answer before it has read the file (one start of four, measured, also with stock
    # Kafka's): it shows an empty image then, and the test retries.
    for _ in range(5):
        tree = [line.strip() for line in shell(snapshot, "tree", "/image").splitlines()]
        if wanted <= set(tree):
            break
    assert wanted <= set(tree), f"no {wanted - set(tree)} in\n" + "\n".join(tree)
    assert "shortlived:" not in tree


def test_checkpoints_are_in_kafkas_form(left: Left) -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        version, count, *lines = (left.data / name).read_text().splitlines()
        assert version == "0"
        assert int(count) == len(lines)
        assert all(re.fullmatch(r"\S+ \d+ \d+", line) for line in lines)
    assert "rolled 0 3000" in (left.data / "recovery-point-offset-checkpoint").read_text()
    assert (left.data / ".kafka_cleanshutdown").exists()
    # Our checksum follows what Kafka reads.
    metadata = (left.data / "codecs-0" / "partition.metadata").read_text().splitlines()
    assert metadata[:2] == ["version: 0", f"topic_id: {left.topic_id}"]
    assert (left.data / "codecs-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    properties = (left.data / "meta.properties").read_text()
    for key in ("version=1", "cluster.id=", "node.id=", "directory.id="):
        assert key in properties
