"""A start that fails prints one line with the reason, exits with 1, and changes nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.support import WAIT_S, create_topic
from tests.clients.wire import Connection, batch, produce
from tests.ottla_process import OttlaProcess


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
    with OttlaProcess(tmp_path / "first") as first:
        create_topic(first, "t")
        second = OttlaProcess(tmp_path / "second")
        second.bootstrap = first.bootstrap
        assert f"{first.bootstrap} is in use" in refused(second)
        second = OttlaProcess(tmp_path / "second")
        second.data = first.data
        assert str(first.data) in refused(second)
        with Connection(first.bootstrap) as connection:
            assert produce(connection, "t", batch([b"undisturbed"])) == (0, 0)


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
    with OttlaProcess(tmp_path / "one", {"node.id": 1}) as one:
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
