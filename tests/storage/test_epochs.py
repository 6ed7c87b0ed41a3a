"""Leader epochs by themselves: a log of batches with epochs is the model of their entries. KIP-101, KIP-279."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import Files
from ottla.log.epochs import EpochEntry, LeaderEpochs

# The epoch of each record of a log; rising, since later leaders have later epochs.
LOGS = st.lists(st.integers(0, 6), max_size=20).map(sorted)


def of_log(log: list[int], start: int = 0) -> LeaderEpochs:
    epochs = LeaderEpochs(Files(), "/nowhere")
    for offset, epoch in enumerate(log):
        if offset >= start:
            epochs.assign(epoch, offset)
    return epochs


def end_of(log: list[int], epoch: int) -> tuple[int, int]:
    """Return the answer to a follower that asks for the end of an epoch."""
    later = [offset for offset, each in enumerate(log) if each > epoch]
    if not log or epoch > log[-1]:
        return -1, -1
    return max((each for each in log if each <= epoch), default=epoch), later[0] if later else len(log)


@settings(max_examples=60)
@given(LOGS)
def test_epochs_answer_as_the_records_of_the_log(log: list[int]) -> None:
    epochs = of_log(log)
    assert [epochs.at(offset) for offset in range(len(log))] == log
    assert epochs.latest == (log[-1] if log else -1)
    for epoch in range(8):
        assert epochs.end_of(epoch, len(log)) == end_of(log, epoch)
    assert epochs.end_of(-1, len(log)) == (-1, -1)


@settings(max_examples=60)
@given(LOGS, st.integers(0, 20), st.integers(0, 20))
def test_truncated_epochs_are_the_epochs_of_the_remaining_records(log: list[int], start: int, end: int) -> None:
    start, end = min(start, len(log)), min(end, len(log))
    epochs = of_log(log)
    epochs.truncate_from_end(end)
    assert epochs.entries == of_log(log[:end]).entries
    assert epochs.latest == (log[end - 1] if end else -1)
    epochs = of_log(log)
    epochs.truncate_from_start(start)
    if start < len(log):
        assert epochs.entries == of_log(log, start).entries
    else:
        # The epoch of the last record remains known.
        assert epochs.entries == ((EpochEntry(log[-1], start),) if log else ())


@settings(max_examples=60)
@given(LOGS, st.integers(0, 20), LOGS)
def test_batches_of_another_leader_replace_what_they_contradict(log: list[int], at: int, more: list[int]) -> None:
    """A follower whose log diverged is truncated, and reads the records of the new leader."""
    at = min(at, len(log))
    replaced = log[:at] + [max([*log[:at], 0]) + each for each in more]
    epochs = of_log(log)
    epochs.truncate_from_end(at)
    for offset in range(at, len(replaced)):
        epochs.assign(replaced[offset], offset)
    assert epochs.entries == of_log(replaced).entries


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (-1, 30, [(0, 0), (2, 10), (5, 20)]),
        (6, -1, [(0, 0), (2, 10), (5, 20)]),
        (5, 25, [(0, 0), (2, 10), (5, 20)]),
        (5, 15, [(0, 0), (2, 10), (5, 15)]),
        (6, 20, [(0, 0), (2, 10), (6, 20)]),
        (6, 10, [(0, 0), (6, 10)]),
        (1, 30, [(0, 0), (1, 30)]),
        (0, 0, [(0, 0)]),
    ],
)
def test_entries_rise_after_each_assignment(epoch: int, start: int, entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(Files(), "/nowhere", [EpochEntry(0, 0), EpochEntry(2, 10), EpochEntry(5, 20)])
    epochs.assign(epoch, start)
    assert list(epochs.entries) == entries
    assert epochs.latest == entries[-1][0]


@settings(max_examples=15)
@given(log=LOGS)
def test_epochs_are_read_from_their_file(tmp_path_factory: pytest.TempPathFactory, log: list[int]) -> None:
    directory = str(tmp_path_factory.mktemp("epochs"))
    epochs = LeaderEpochs(Files(), directory, list(of_log(log).entries))
    epochs.write()
    read = LeaderEpochs.load(Files(), directory)
    assert (read.entries, read.latest, read.is_corrupt) == (epochs.entries, epochs.latest, False)


@pytest.mark.parametrize(
    "content", ["0\n2\n1 5\n1 9\n", "0\n2\n1 5\n2 5\n", "0\n2\n2 5\n1 9\n", "0\n1\nx 5\n", "1\n0\n"]
)
def test_file_whose_entries_do_not_rise_is_corrupt(tmp_path: Path, content: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    epochs = LeaderEpochs.load(Files(), str(tmp_path))
    assert epochs.is_corrupt
    assert epochs.entries == ()


class FullDisk(Files):
    """A disk without space for a new file."""

    is_full = False

    def write_atomically(self, path: str, data: bytes | bytearray | memoryview) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_atomically(path, data)


def test_epochs_that_could_not_be_written_are_written_by_the_next_flush(tmp_path: Path) -> None:
    files = FullDisk()
    epochs = LeaderEpochs.load(files, str(tmp_path))
    epochs.assign(3, 7)
    files.is_full = True
    with pytest.raises(OSError, match="No space"):
        epochs.write()
    files.is_full = False
    epochs.write()
    assert LeaderEpochs.load(files, str(tmp_path)).entries == ((3, 7),)


def test_unchanged_epochs_are_not_written_again(tmp_path: Path) -> None:
    epochs = LeaderEpochs.load(Files(), str(tmp_path))
    epochs.assign(3, 7)
    epochs.write()
    path = tmp_path / "leader-epoch-checkpoint"
    path.unlink()
    epochs.assign(3, 9)
    epochs.write()
    assert not path.exists()
    epochs.assign(4, 9)
    epochs.write()
    assert path.read_text() == "0\n2\n3 7\n4 9\n"
