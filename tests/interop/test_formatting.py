"""`ottla format` and `kafka-storage format` write the same: the same files, the same records in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.common.control_types import ControlType
from ottla.log.files import Files
from ottla.log.storage import read_meta
from ottla.protocol.control_records import decode_control_key
from ottla.records import decode_batch, iter_batches
from tests.peers.kafka import tool

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FIRST = "JEXY6aqzQY-32P5TStzaFg"
CONTROLLERS = f"1@127.0.0.1:9093:{FIRST},2@localhost:9095:MvDxzVmcRsaTz33bUuRU6A"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9093,127.0.0.1:9095"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9095"
BOTH = "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
ONLY_BROKER = "process.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:9092\nnode.id=3"
SALT = "MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2k="
USERS = (
    f"--add-scram=SCRAM-SHA-256=[name=alice,password=alice=secret,salt={SALT}]",
    f'--add-scram=SCRAM-SHA-512=[name="bob",password="b",salt="{SALT}",iterations=8192]',
    f"--add-scram=SCRAM-SHA-256=[name=carol,saltedpassword={SALT},salt={SALT},iterations=16384]",
)


def contents(home: Path) -> dict[str, object]:
    """Return the contents of each file below `home`, without times and random ids."""
    found: dict[str, object] = {}
    for path in sorted(home.rglob("*.checkpoint")):
        batches = []
        data = path.read_bytes()
        meta = read_meta(Files(), str(home / path.relative_to(home).parts[0]))
        assert meta is not None
        for position, header in iter_batches(data):
            records = []
            for record in decode_batch(data, position):
                value = (record.value or b"").replace(meta.directory_id, b"<directory>")
                if header.is_control and decode_control_key(record.key or b"") is ControlType.SNAPSHOT_HEADER:
                    value = value[:3]  # the rest is the time
                records.append((record.offset, record.key, value))
            batches.append((header.partition_leader_epoch, header.attributes, records))
        found[str(path.relative_to(home))] = batches
    for path in sorted(home.rglob("meta.properties")):
        meta = read_meta(Files(), str(path.parent))
        assert meta is not None
        found[str(path.relative_to(home))] = (meta.cluster_id, meta.node_id)
    assert len(found) == len([path for path in home.rglob("*") if path.is_file()])
    return found


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ([BOTH, DYNAMIC, "node.id=1"], ["--standalone"]),
        ([BOTH, DYNAMIC, "node.id=1"], ["--initial-controllers", CONTROLLERS]),
        ([BOTH, DYNAMIC, "node.id=3"], ["--no-initial-controllers"]),
        ([BOTH, STATIC, "node.id=1"], ["--release-version", "4.0"]),
        ([BOTH, STATIC, "node.id=1"], ["--release-version", "4.1-IV0"]),
        ([BOTH, STATIC, "node.id=1"], ["--feature", "eligible.leader.replicas.version=0"]),
        ([ONLY_BROKER, STATIC], ["--release-version", "3.9", "--feature", "group.version=1"]),
        ([ONLY_BROKER, DYNAMIC], ["--release-version", "4.2-IV1"]),
        ([BOTH, STATIC, "node.id=1"], [*USERS]),
    ],
)
def test_both_programs_write_the_same(tmp_path: Path, settings: list[str], options: list[str]) -> None:
    written = {}
    for name in ("stock", "ottla"):
        home = tmp_path / name
        home.mkdir()
        file = tmp_path / f"{name}.properties"
        file.write_text("\n".join([*settings, "controller.listener.names=CONTROLLER", f"log.dirs={home}/b,{home}/a"]))
        words = ["format", "--config", str(file), "--cluster-id", CLUSTER, *options]
        if name == "stock":
            done = tool("storage", *words)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            assert main(words) == 0
        written[name] = contents(home)
    assert written["ottla"] == written["stock"]
