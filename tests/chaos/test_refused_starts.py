"""A start that fails prints one line with the reason, exits with 1, and changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.creation import removed_if_refused
from ottla.log.files import Files
from ottla.log.storage import DirectoryLock, StorageError
from tests.chaos.support import WAIT_S, create_topic
from tests.clients.wire import Connection, batch, produce
from tests.ottla_process import ForkedOttla, OttlaProcess


def refused(process: OttlaProcess) -> str:
    """The error of a failed start, without the log lines before it."""
    process.directory.mkdir(exist_ok=True)
    result = subprocess.run(process.command(), capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]


def test_port_or_directory_in_use_is_an_error(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path / "first") as first:
        create_topic(first, "t")
        second = OttlaProcess(tmp_path / "second")
        second.bootstrap = first.bootstrap
        assert f"{first.bootstrap} is in use" in refused(second)
        second = OttlaProcess(tmp_path / "second")
        second.data = first.data
        assert f"{first.data}/.lock is held by process {first.pid}: " in refused(second)
        assert {".lock", "meta.properties", "t-0"} <= set(content(first.data))
        with Connection(first.bootstrap) as connection:
            assert produce(connection, "t", batch([b"undisturbed"])) == (0, 0)


def content(directory: Path) -> list[str]:
    """The names of all files below a directory; none if it does not exist."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_refused_start_removes_only_what_it_created(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path / "first") as first:
        second = OttlaProcess(tmp_path / "second")
        second.bootstrap = first.bootstrap
        second.data = tmp_path / "a" / "new" / "data"
        assert "is in use" in refused(second)
        assert not (tmp_path / "a").exists()
        second.data = tmp_path / "empty"
        second.data.mkdir()
        assert "is in use" in refused(second)
        assert content(second.data) == []
        # The first directory is new, the second one belongs to a broker that runs.
        several = OttlaProcess(tmp_path / "third", {"log.dirs": f"{tmp_path}/new,{first.data}"})
        assert f"is held by process {first.pid}: " in refused(several)
        assert not (tmp_path / "new").exists()
        # Stopped and started again without recovery: a refused start keeps the mark of the clean stop.
        several = OttlaProcess(tmp_path / "fourth")
        with several:
            create_topic(several, "t")
        used = content(several.data)
        again = OttlaProcess(tmp_path / "fourth", {"log.dirs": f"{several.data},{first.data}"})
        assert f"is held by process {first.pid}: " in refused(again)
        again = OttlaProcess(tmp_path / "fourth")
        again.bootstrap = first.bootstrap
        assert "is in use" in refused(again)
        assert content(several.data) == used
        assert ".kafka_cleanshutdown" in used


def test_directory_of_the_metadata_log_alone_is_locked_too(tmp_path: Path) -> None:
    metadata = {"metadata.log.dir": f"{tmp_path}/metadata"}
    first = ForkedOttla(tmp_path / "first", metadata)
    with first:
        create_topic(first, "t")
        second = OttlaProcess(tmp_path / "second", metadata)
        assert f"{tmp_path}/metadata/.lock is held by process {first.pid}: " in refused(second)
        assert not second.data.exists()
    with first:
        pass


def test_start_that_is_refused_while_another_one_starts_removes_nothing_of_it(tmp_path: Path) -> None:
    holder = DirectoryLock(str(tmp_path))

    def start() -> None:
        with removed_if_refused(Files(), [str(tmp_path)]):
            holder.acquire()
            (tmp_path / "meta.properties").touch()
            DirectoryLock(str(tmp_path)).acquire()

    with pytest.raises(StorageError, match=f"is held by process {os.getpid()}"):
        start()
    holder.release()
    assert content(tmp_path) == [".lock", "meta.properties"]


def test_lock_on_a_file_that_was_removed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = DirectoryLock(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("fcntl.lockf", lambda *_: (tmp_path / ".lock").unlink())
        with pytest.raises(StorageError, match="start again"):
            lock.acquire()
    lock.acquire()
    lock.release()


def corrupt(data: Path, change: Callable[[str], str]) -> None:
    path = data / "meta.properties"
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "rubbish\n", "meta.properties"),
        (lambda text: "", "meta.properties"),
        (lambda text: text.replace("version=1", "version=7"), "version"),
        (lambda text: text.replace("node.id=1", "node.id=one"), "node.id"),
    ],
    ids=["rubbish", "empty", "of a later version", "without a number"],
)
def test_unreadable_identity_is_an_error(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    process = OttlaProcess(tmp_path)
    with process:
        before = (process.data / "meta.properties").read_text()
    corrupt(process.data, change)
    assert words in refused(process)
    (process.data / "meta.properties").write_text(before)
    with process:
        pass


def test_directory_of_another_node_is_an_error(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path / "one", {"node.id": 1}) as one:
        pass
    other = OttlaProcess(tmp_path / "two", {"node.id": 2})
    other.data = one.data
    message = refused(other)
    assert "1" in message
    assert "2" in message


def test_data_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    process = OttlaProcess(tmp_path)
    process.data.write_text("not a directory")
    assert str(process.data) in refused(process)
