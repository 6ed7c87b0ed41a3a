"""The sink of lines and a disk that is full: no half line, and no line of another task is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.api import SinkTaskContext, SourceTaskContext
from ottla.connect.connectors import file_stream
from ottla.connect.connectors.file_stream import FileStreamSinkTask, FileStreamSourceTask
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.records import SinkRecord

# In a process of its own: the limit is for all files of a process.
FULL_DISK = """
import resource, sys
from tests.unit.connect.test_file_stream import lines, started
from ottla.connect.errors import ConnectError

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

path = sys.argv[1]
task = started(path)
task.put(lines("first"))
limit(len("first\\nsec"))
try:
    task.put(lines("second", "third"))
except ConnectError as error:
    print(error)
limit(resource.RLIM_INFINITY)
task.stop()
task = started(path)
task.put(lines("second", "third"))
task.flush({})
task.stop()
"""


def started(path: Path | str) -> FileStreamSinkTask:
    task = FileStreamSinkTask()
    context = SinkTaskContext("c", 0, lambda _: None, lambda *_: None, lambda: False, lambda _: None)
    task.start(context, {"file": str(path)})
    return task


def lines(*texts: str) -> list[SinkRecord]:
    return [SinkRecord("t", 0, None, None, data.STRING, each, 0, [], 0, "", "t", 0, 0) for each in texts]


def test_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{path} cannot be written: File too large\n"
    assert path.read_text() == "first\nsecond\nthird\n"


@pytest.mark.parametrize(("before", "after"), [("first\nsec", "first\nsec\n"), ("", ""), ("first\n", "first\n")])
def test_half_line_of_a_killed_worker_is_ended(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "f"
    path.write_text(before)
    task = started(path)
    task.put(lines("second"))
    task.stop()
    assert path.read_text() == f"{after}second\n"


def test_file_without_lines_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stream, "LONGEST_LINE", 1 << 18)
    (tmp_path / "f").write_bytes(b"one\n" + bytes(1 << 20))
    task = FileStreamSourceTask()
    context = SourceTaskContext("c", 0, lambda _: None, lambda: False, lambda _: None)
    task.start(context, {"file": str(tmp_path / "f"), "topic": "t"})
    with pytest.raises(ConnectError, match="f has a line of more than 262144 bytes at position 4: it has no lines"):
        task.poll()
    task.stop()


def test_sync_that_fails_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    task = started(tmp_path / "f")
    task.put(lines("a"))
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(ConnectError, match="f cannot be written: Input/output error"):
        task.flush({})
    task.stop()


def test_tasks_that_share_a_file_write_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stream, "LOCK_S", 0.05)
    first, second = started(tmp_path / "f"), started(tmp_path / "f")
    write: Any = file_stream._write_all

    def observed(*given: Any) -> None:
        with pytest.raises(RetriableError, match="is locked by another process"):
            second.put(lines("b"))
        write(*given)

    with monkeypatch.context() as patched:
        patched.setattr(file_stream, "_write_all", observed)
        first.put(lines("a"))
    second.put(lines("b"))
    first.stop()
    second.stop()
    assert (tmp_path / "f").read_text() == "a\nb\n"


def test_pipe_is_written_and_not_synced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    task = started(tmp_path / "pipe")
    task.put(lines("a"))
    task.flush({})
    task.stop()
    assert os.read(reader, 100) == b"a\n"
    os.close(reader)
