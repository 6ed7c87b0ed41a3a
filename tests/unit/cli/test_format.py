"""`ottla format` of a node of a cluster: the files that it writes, and the mistakes that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.cluster.formatting import feature_levels
from ottla.cluster.metadata import snapshots
from ottla.common.control_types import ControlType
from ottla.common.ids import uuid_from_text
from ottla.log.files import Files
from ottla.log.storage import MetaProperties, StorageError, read_meta
from ottla.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, default_levels
from ottla.protocol.control_records import KRaftVersionRecord, VotersRecord

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FIRST, SECOND = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
DYNAMIC = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9095",
}
STATIC = {"listeners": DYNAMIC["listeners"], "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9095"}
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def words_for(directory: Path, settings: dict[str, str], *more: str) -> list[str]:
    named = {"log.dirs": f"{directory}/a,{directory}/b"} | settings
    return ["format", *(word for name, value in named.items() for word in ("-X", f"{name}={value}")), *more]


def snapshot(path: Path) -> snapshots.Snapshot:
    return snapshots.parse(path.read_bytes(), path.name)


def voters_of(directory: Path) -> dict[int, tuple[str, int, bytes]]:
    controls = snapshot(directory / FIRST_SNAPSHOT).controls
    assert KRaftVersionRecord.decode(controls[ControlType.KRAFT_VERSION], 0).kraft_version == 1
    voters = VotersRecord.decode(controls[ControlType.KRAFT_VOTERS], 0).voters
    return {each.voter_id: (each.endpoints[0].host, each.endpoints[0].port, each.voter_directory_id) for each in voters}


def test_first_controller_becomes_the_only_voter(tmp_path: Path) -> None:
    assert main(words_for(tmp_path, DYNAMIC, "--standalone")) == 0
    meta = read_meta(Files(), f"{tmp_path}/a")
    assert meta is not None
    assert voters_of(tmp_path / "a") == {1: ("127.0.0.1", 9093, meta.directory_id)}
    assert not (tmp_path / "b" / FIRST_SNAPSHOT).exists()


def test_each_initial_controller_has_its_directory_id_of_the_list(tmp_path: Path) -> None:
    controllers = f"1@127.0.0.1:9093:{FIRST},2@[fe80::1%eth0]:9095:{SECOND}"
    for node_id, directory_id in (("1", FIRST), ("2", SECOND)):
        home = tmp_path / node_id
        assert main(words_for(home, DYNAMIC | {"node.id": node_id}, "-t", CLUSTER, "-I", controllers)) == 0
        meta = read_meta(Files(), f"{home}/a")
        assert meta == MetaProperties(CLUSTER, int(node_id), uuid_from_text(directory_id))
        assert voters_of(home / "a") == {
            1: ("127.0.0.1", 9093, uuid_from_text(FIRST)),
            2: ("fe80::1%eth0", 9095, uuid_from_text(SECOND)),
        }


@pytest.mark.parametrize("settings", [STATIC, DYNAMIC | {"process.roles": "broker", "listeners": "PLAINTEXT://:1"}])
def test_node_whose_voters_are_elsewhere_has_only_the_levels_of_features(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    assert main(words_for(tmp_path, settings, "-t", CLUSTER, "-r", "4.0", "-f", "share.version=1")) == 0
    for name in ("a", "b"):
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
        levels = {r.name: r.feature_level for r in snapshot(tmp_path / name / "bootstrap.checkpoint").records}  # type: ignore[attr-defined]
        assert levels == {"metadata.version": 25, "group.version": 1, "share.version": 1, "transaction.version": 2}


@pytest.mark.parametrize(
    ("settings", "words", "problem"),
    [
        (DYNAMIC, ["-t", CLUSTER], "you must specify one of the following: --standalone"),
        (DYNAMIC, ["-N"], "--cluster-id is missing"),
        (DYNAMIC, ["-t", CLUSTER, "-s", "-N"], "exclude each other"),
        (DYNAMIC, ["-t", CLUSTER, "-I", "1@127.0.0.1:9093"], "is not of the form ID@HOST:PORT:DIRECTORY-ID"),
        (DYNAMIC, ["-t", CLUSTER, "-I", f"1@a:1:{FIRST},1@b:1:{SECOND}"], "node 1 is named twice"),
        (DYNAMIC, ["-s", "-f", "kraft.version=0"], "Cannot set kraft.version to 0"),
        (STATIC, ["-t", CLUSTER, "-f", "kraft.version=1"], "Cannot set kraft.version to 1 unless"),
        ({}, ["-t", CLUSTER, "-f", "kraft.version = 1"], "Cannot set kraft.version to 1 unless"),
        (STATIC, ["-t", CLUSTER, "-s"], "You cannot specify controller.quorum.voters and format the node with"),
        (STATIC, [], "--cluster-id is missing"),
        (STATIC, ["-t", CLUSTER, "-r", "3.2"], "Unknown metadata.version '3.2'"),
        ({}, ["-s"], "--standalone needs a listener of the controller"),
        ({**DYNAMIC, "process.roles": "broker", "listeners": "PLAINTEXT://:1"}, ["-s"], "on a controller"),
    ],
)
def test_wrong_format_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, str], words: list[str], problem: str
) -> None:
    assert main(words_for(tmp_path, settings, *words)) != 0
    assert problem in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("release", "features", "problem"),
    [
        ("4.0", ["metadata.version=25"], "to avoid ambiguity"),
        (None, ["group.version=x"], "unable to parse x as a short"),
        (None, ["group.version=7"], "No feature:group.version with feature level 7"),
        (None, ["foo.version=0"], "Unsupported feature: foo.version"),
    ],
)
def test_wrong_feature_is_refused(release: str | None, features: list[str], problem: str) -> None:
    with pytest.raises(StorageError, match=problem):
        feature_levels(release, features)


def test_levels_follow_the_release() -> None:
    assert feature_levels(None, []) == default_levels()
    assert feature_levels(None, [])[METADATA_VERSION] == LATEST_METADATA_VERSION
    assert feature_levels("3.9", []) == {METADATA_VERSION: 21}
    assert feature_levels("4.1-IV0", ["kraft.version=1"])["eligible.leader.replicas.version"] == 1
    assert "eligible.leader.replicas.version" not in feature_levels("4.0", [])
    assert feature_levels(None, ["metadata.version=22"]) == {METADATA_VERSION: 22, "group.version": 1}


def test_directory_of_another_cluster_keeps_the_others_unformatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words_for(tmp_path, {"log.dirs": f"{tmp_path}/a"} | STATIC, "-t", CLUSTER)) == 0
    assert main(words_for(tmp_path, STATIC, "-t", FIRST, "-g")) == 1
    assert f"belongs to cluster {CLUSTER}" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_directory_that_cannot_be_created_leaves_no_other_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "b").touch()
    assert main(words_for(tmp_path / "home", DYNAMIC, "--standalone")) == 1
    assert "cannot be used" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["b"]
