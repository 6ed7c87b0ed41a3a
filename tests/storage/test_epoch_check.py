"""`leader-epoch-checkpoint` has Kafka's bytes. Where it disagrees with the batches, the batches are right."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ottla.log import LogConfig
from ottla.records import iter_batches
from tests.storage.helpers import append, batch, open_at

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0)
EPOCHS = [0] * 6 + [1] * 6 + [4] * 6
ENTRIES = ((0, 0), (1, 6), (4, 12))
CONTENT = "0\n3\n0 0\n1 6\n4 12\n"


def written(directory: Path, epochs: list[int] = EPOCHS) -> Path:
    """The checkpoint of a closed log with a batch of each of these epochs."""
    log = open_at(str(directory), config=SMALL)
    for i, epoch in enumerate(epochs):
        append(log, batch(b"%03d" % i), epoch=epoch)
    assert len(log.segments) > 3
    log.close()
    return Path(log.directory) / "leader-epoch-checkpoint"


def test_checkpoint_is_what_kafka_writes(tmp_path: Path) -> None:
    assert written(tmp_path).read_text() == CONTENT


@pytest.mark.parametrize("clean", [True, False])
def test_sound_checkpoint_is_not_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool) -> None:
    written(tmp_path)
    log = open_at(str(tmp_path), config=SMALL, clean=clean, recovery_point=18)
    assert log.epochs.entries == ENTRIES
    assert "leader epochs" not in caplog.text


def test_checkpoint_with_each_entry_twice_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path)
    path.write_text("0\n6\n0 0\n0 0\n1 6\n1 6\n4 12\n4 12\n")
    assert open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=18).epochs.entries == ENTRIES
    assert "leader epochs" not in caplog.text


def changed_bits(content: str) -> list[bytes]:
    data = content.encode()
    return [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at, bit in itertools.product(range(len(data)), range(8))
    ]


@pytest.mark.parametrize("epochs", [EPOCHS, [0] * 18], ids=["three epochs", "one epoch"])
def test_every_changed_bit_is_found(tmp_path: Path, epochs: list[int]) -> None:
    path = written(tmp_path, epochs)
    sound = ENTRIES if epochs is EPOCHS else ENTRIES[:1]
    for content in changed_bits(path.read_text()):
        path.write_bytes(content)
        log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=18)
        assert log.epochs.entries == sound, content
        log.abandon()


@pytest.mark.parametrize("content", [None, "", "0\n0\n", "0\n1\n4 12\n", "0\n2\n0 0\n4 6\n"])
def test_missing_entries_are_read_from_the_batches(tmp_path: Path, content: str | None) -> None:
    path = written(tmp_path)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=18)
    assert log.epochs.entries == ENTRIES


def test_epoch_without_batches_is_dropped_and_deleted_records_are_no_disagreement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stock Kafka stores an epoch when its leader is elected. The log may start within an epoch or a batch."""
    path = written(tmp_path)
    path.write_text("0\n3\n1 8\n4 12\n7 18\n")
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=18, log_start_offset=8)
    assert log.epochs.entries == ((1, 8), (4, 12))
    assert "leader epochs" not in caplog.text


@pytest.mark.parametrize("epochs", [EPOCHS, [0] * 18], ids=["three epochs", "one epoch"])
def test_corrupt_epoch_in_the_last_batch_does_not_enter_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, epochs: list[int]
) -> None:
    path = written(tmp_path, epochs)
    segment = max(path.parent.glob("*.log"))
    data = bytearray(segment.read_bytes())
    position = [at for at, _ in iter_batches(memoryview(data))][-1]
    data[position + 12] ^= 0x40
    segment.write_bytes(data)
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=18)
    assert log.epochs.entries == (ENTRIES if epochs is EPOCHS else ENTRIES[:1])
    assert "A leader epoch in" in caplog.text
