"""One byte changes in any file of a broker's directory: it is reported and never served; everything else is served.

A template is written once: a group, and topics in several segments. One topic has deleted records, one will be
compacted and one was compacted. Each case copies the template, changes a byte, starts a broker and reads everything.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.log import StorageError
from ottla.log.cleaner import Cleaner
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records import BatchProducer
from tests.simulation.world.broker import NodeOnDisk
from tests.storage.test_cleaner import Here
from tests.unit.broker.harness import HastyFiles, batch

CASES = int(os.environ.get("OTTLA_CORRUPT_BYTES", "2"))
BATCHES = 24
IN_BATCH = 2
DELETED_TO = 5
PLAIN, SHORT, COMPACT, FORMER = "plain", "short", "compact", "former"
KEYS = 4
TOPICS = {PLAIN: 0, SHORT: DELETED_TO}
ROLLING = {"segment_index_bytes": 80, "index_interval_bytes": 0}
SETTINGS = {"metadata_log_max_record_bytes_between_snapshots": 1}
# A broker does not start without its identity and the list of topics.
MAY_REFUSE = {"meta.properties", "metadata log", "metadata snapshot"}
KINDS = {
    "segment": f"{PLAIN}-0/*.log",
    "newest segment": f"{PLAIN}-0/*.log",
    "index": f"{PLAIN}-0/*.index",
    "time index": f"{PLAIN}-0/*.timeindex",
    "producer snapshot": f"{PLAIN}-0/*.snapshot",
    "newest producer snapshot": f"{PLAIN}-0/*.snapshot",
    "leader epochs": f"{PLAIN}-0/leader-epoch-checkpoint",
    "topic id": f"{PLAIN}-0/partition.metadata",
    "recovery points": "recovery-point-offset-checkpoint",
    "log starts": "log-start-offset-checkpoint",
    "high watermarks": "replication-offset-checkpoint",
    "clean shutdown": ".kafka_cleanshutdown",
    "meta.properties": "meta.properties",
    "vote": "__cluster_metadata-0/quorum-state",
    "bootstrap": "bootstrap.checkpoint",
    "metadata log": "__cluster_metadata-0/*.log",
    "metadata index": "__cluster_metadata-0/*index",
    "metadata synced": "__cluster_metadata-0/synced-offset",
    "metadata snapshot": "__cluster_metadata-0/*.checkpoint",
    "metadata producers": "__cluster_metadata-0/*.snapshot",
    "metadata leader epochs": "__cluster_metadata-0/leader-epoch-checkpoint",
    "metadata topic id": "__cluster_metadata-0/partition.metadata",
    "groups": "__consumer_offsets-0/*.log",
    "cleaned segment": f"{COMPACT}-0/*.log",
    "cleaned segment of old": f"{FORMER}-0/*.log",
    "cleaner offsets": "cleaner-offset-checkpoint",
}
# A killed broker has not created these files, or has written nothing to them.
NOT_KILLED = {"clean shutdown", "metadata index", "metadata producers"}


@dataclass
class Template:
    """The directories of a stopped broker and of a killed one."""

    clean: Path
    killed: Path
    timestamps: list[int] = field(default_factory=list)
    cleaned: dict[str, dict[int, bytes | None]] = field(default_factory=dict)


def value_of(offset: int) -> bytes:
    return b"value %06d of a record" % offset


def _compact(node: NodeOnDisk) -> None:
    logs = node.node.broker.logs
    cleaner = Cleaner(logs, backoff_ms=0, start_work=lambda job: Here(job, logs.files))
    for _ in range(10):
        cleaner.step(node.clock.wall_ms())


async def _alter(node: NodeOnDisk, topic: str, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    answer = await node.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0


async def _write(home: Path, template: Template) -> None:
    node = NodeOnDisk(HastyFiles(), home, log_flush_interval_messages=1, **SETTINGS)
    await node.start()
    for topic in TOPICS:
        await node.create(topic, **ROLLING)
    for topic in (COMPACT, FORMER):
        await node.create(topic, **ROLLING, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    first_ms = node.clock.wall_ms() - 1_000_000
    for i in range(BATCHES):
        offset = i * IN_BATCH
        values = [value_of(offset + n) for n in range(IN_BATCH)]
        timestamp = first_ms + 1000 * i
        template.timestamps += [timestamp] * IN_BATCH
        for producer, topic in enumerate(TOPICS):
            data = batch(*values, producer=BatchProducer(producer + 5, 0, offset), timestamp=timestamp)
            assert await node.produce(topic, data) == (0, offset)
        assert await node.commit("g", PLAIN, offset) == 0
        for topic in (COMPACT, FORMER):
            data = batch(value_of(i), key=b"%d" % (i % KEYS), timestamp=timestamp)
            assert await node.produce(topic, data) == (0, i)
    _compact(node)
    for topic in (COMPACT, FORMER):
        template.cleaned[topic], refused = await node.read(topic)
        assert not refused
        assert len(template.cleaned[topic]) < BATCHES / 2
    await _alter(node, FORMER, "cleanup.policy", "delete")
    partitions = [DeleteRecordsPartition(partition_index=0, offset=DELETED_TO)]
    topics = [DeleteRecordsTopic(name=SHORT, partitions=partitions)]
    await node.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    for _ in range(8):  # each call writes a part of a snapshot
        node.chores()
        await asyncio.sleep(0.01)
    node.check()
    shutil.copytree(home, template.killed)
    await node.stop()
    shutil.copytree(home, template.clean)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    home = tmp_path_factory.mktemp("template")
    (home / "data").mkdir()
    template = Template(home / "clean", home / "killed")
    with asyncio.Runner() as runner:
        runner.run(_write(home / "data", template))
    return template


def harm(home: Path, kind: str, chance: random.Random) -> tuple[Path, int]:
    """Change one byte of a file of this kind. Return the file and the position."""
    files = [path for path in sorted(home.glob(KINDS[kind])) if path.stat().st_size]
    assert files, f"the template has no {kind}"
    path = files[-1] if kind.startswith("newest") else chance.choice(files[:-1] or files)
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    if kind == "groups":  # in the last commit: the offset is in its value
        position = data.rindex(b"plain") + len(b"plain") + 4 + chance.randrange(12)
    data[position] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path, position


async def _check(home: Path, kind: str, template: Template, path: Path) -> None:
    node = NodeOnDisk(HastyFiles(), home, log_flush_interval_messages=1, **SETTINGS)
    if not await _starts(node, kind, path):
        await node.abandon()
        return
    try:
        node.chores()
        node.check()
        for topic, start in TOPICS.items():
            harmed = topic == PLAIN and "segment" in kind
            await _check_topic(node, topic, start, template, harmed=harmed)
        for topic in (COMPACT, FORMER):
            await _check_cleaned(node, topic, template, harmed=path.parent.name == f"{topic}-0")
        committed = (await node.committed("g")).get((PLAIN, 0), -1)
        latest = (BATCHES - 1) * IN_BATCH
        assert committed == latest or (kind == "groups" and committed < latest and committed % IN_BATCH == 0)
        node.check()
    finally:
        await node.abandon()


async def _starts(node: NodeOnDisk, kind: str, path: Path) -> bool:
    try:
        await node.start()
    except (StorageError, KafkaError) as error:
        if kind not in MAY_REFUSE or str(path.parent) not in str(error):
            raise
        return False
    return True


async def _check_topic(node: NodeOnDisk, topic: str, start: int, template: Template, *, harmed: bool) -> None:
    end = BATCHES * IN_BATCH
    log = node.node.broker.partitions.get(topic, 0).log
    assert log.log_start_offset == start
    assert log.epochs.entries[0] == (0, start)
    assert harmed or len(log.epochs.entries) == 1
    found, refused = await node.read(topic, start)
    lost = [offset for offset in range(start, end) if offset not in found]
    assert all(found[offset] == value_of(offset) for offset in found), "never served as good data"
    if not harmed:
        assert not lost
        assert not refused
        for offset in range(start, end):
            answer = log.offset_for_timestamp(template.timestamps[offset], end)
            assert answer is not None
            assert answer[:2] == (template.timestamps[offset], max(offset - offset % IN_BATCH, start))
        sequence = end - IN_BATCH
        again = batch(
            *(value_of(sequence + n) for n in range(IN_BATCH)),
            producer=BatchProducer(5 + list(TOPICS).index(topic), 0, sequence),
            timestamp=template.timestamps[-1],
        )
        assert await node.produce(topic, again) == (0, sequence), "sent again, and known"
    else:
        assert len(lost) <= IN_BATCH, f"one batch is corrupt, and {lost} are lost"
    error, _ = await node.produce(topic, batch(b"go on", timestamp=node.clock.wall_ms()))
    assert error == 0


async def _check_cleaned(node: NodeOnDisk, topic: str, template: Template, *, harmed: bool) -> None:
    """No record that compaction retained is lost. Compaction continues and retains the newest record of each key."""
    expected = template.cleaned[topic]
    found, _ = await node.read(topic)
    assert found.items() <= expected.items(), "never served as good data"
    lost = expected.keys() - found.keys()
    assert len(lost) <= harmed, f"{topic} lost {lost}"
    assert await node.produce(topic, batch(b"go on", key=b"another")) == (0, BATCHES)
    _compact(node)
    found, _ = await node.read(topic)
    assert found.items() <= {**expected, BATCHES: b"go on"}.items()
    assert set(range(BATCHES - KEYS, BATCHES + 1)) - lost <= found.keys()


def test_every_kind_of_file_has_a_case(template: Template) -> None:
    """All partitions have the same contents, so one of them represents all."""
    for home in (template.clean, template.killed):
        for path in home.rglob("*"):
            where = path.parent.relative_to(home).name
            if path.is_dir() or not path.stat().st_size or path.suffix == ".deleted":
                continue
            name = f"{where}/{path.name}" if where in {"", "__cluster_metadata-0"} else f"{PLAIN}-0/{path.name}"
            assert any(fnmatch.fnmatch(name.lstrip("/"), kind) for kind in KINDS.values()), path


ENDED = [
    (kind, ended) for kind in KINDS for ended in ("stopped", "killed") if ended == "stopped" or kind not in NOT_KILLED
]


@pytest.mark.parametrize(("kind", "ended"), ENDED, ids=[f"{kind}-{ended}" for kind, ended in ENDED])
def test_corrupt_byte_costs_only_what_it_touches(tmp_path: Path, template: Template, kind: str, ended: str) -> None:
    source = template.clean if ended == "stopped" else template.killed
    for seed in range(CASES):
        home = tmp_path / f"data-{seed}"
        shutil.copytree(source, home)
        path, position = harm(home, kind, random.Random(f"{kind} {seed}"))
        try:
            with asyncio.Runner() as runner:
                runner.run(_check(home, kind, template, path))
        except Exception as error:
            error.add_note(f"byte {position} of {path}, seed {seed}, {ended}")
            raise
        shutil.rmtree(home)
