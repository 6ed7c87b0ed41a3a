"""`ottla log dump --verify` reports each kind of damage with its position, and never fails with a traceback."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.cli.main import main
from ottla.log.epochs import EpochEntry, LeaderEpochs
from ottla.log.files import Files
from ottla.records import BatchProducer, Codec, encode_batch, encode_end_transaction_marker, patch
from ottla.tools.dump.files import Found, dump_file
from ottla.tools.dump.rows import Row
from ottla.tools.dump.segment import Depth

START = 1_700_000_000_000
NAME = f"{0:020}"


def batches(count: int, codec: Codec = Codec.NONE) -> list[bytearray]:
    """Batches of ten records each, a second per record."""
    return [
        encode_batch(
            [(START + (10 * b + r) * 1000, b"k%d" % r, b"value", []) for r in range(10)],
            base_offset=10 * b,
            leader_epoch=b // 2,
            codec=codec,
            producer=BatchProducer(7, 0, 10 * b),
        )
        for b in range(count)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    """Write the directory of a partition: one segment of these batches, with matching indices."""

    def write(parts: list[bytearray]) -> Path:
        directory = tmp_path / "orders-0"
        directory.mkdir(exist_ok=True)
        (directory / f"{NAME}.log").write_bytes(b"".join(parts))
        size, positions = 0, []
        for part in parts:
            positions.append(size)
            size += len(part)
        entries = [(10 * b + 9, positions[b]) for b in range(1, len(parts))]
        (directory / f"{NAME}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
        times = [(START + (10 * b + 9) * 1000, 10 * b + 9) for b in range(1, len(parts))]
        (directory / f"{NAME}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in times))
        (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 20\n")
        return directory

    return write


def verify(directory: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = main(["log", "dump", str(directory), "--verify", *more])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("codec", list(Codec))
def test_valid_log_is_reported_without_damage(
    codec: Codec, log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = verify(log(batches(4, codec)), capsys)
    assert code == 0, out
    assert "4 batches, 40 records" in out
    assert "4 files, nothing damaged" in out


def test_leader_epoch_checkpoint_of_a_broker_is_verified(
    log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log(batches(4))
    LeaderEpochs(Files(), str(directory), [EpochEntry(0, 0), EpochEntry(1, 20)]).write()
    code, out = verify(directory, capsys)
    assert (code, "4 files, nothing damaged" in out) == (0, True), out
    assert "leader-epoch-checkpoint  2 entries" in out
    text = (directory / "leader-epoch-checkpoint").read_text()
    for changed, problem in {
        "0 20": "the epoch 0 from 20 on is not greater",
        "3 20": "the batch at offset 20 has leader epoch 1, the checkpoint has another",
        "1 30": "the batch at offset 20 has leader epoch 1, the checkpoint has another",
        "1 10": "the batch at offset 10 has leader epoch 0, the checkpoint has another",
    }.items():
        (directory / "leader-epoch-checkpoint").write_text(text.replace("1 20", changed))
        code, out = verify(directory, capsys)
        assert (code, problem in out) == (1, True), out


def test_each_kind_of_damage_is_reported_with_its_position(
    log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def report(change: Callable[[Path], object], parts: list[bytearray] | None = None) -> str:
        directory = log(batches(4) if parts is None else parts)
        change(directory)
        code, out = verify(directory, capsys)
        assert code == 1, out
        return out

    def write(name: str, position: int, data: bytes) -> Callable[[Path], object]:
        def change(directory: Path) -> None:
            content = bytearray((directory / name).read_bytes())
            content[position : position + len(data)] = data
            (directory / name).write_bytes(content)

        return change

    def cut(name: str, size: int) -> Callable[[Path], object]:
        return lambda directory: (directory / name).write_bytes((directory / name).read_bytes()[:size])

    segment, index, times = f"{NAME}.log", f"{NAME}.index", f"{NAME}.timeindex"
    length = len(batches(1)[0])
    assert "checksum" in report(write(segment, length + 70, b"\xff"))
    assert f"at byte {length}" in report(write(segment, length + 70, b"\xff"))
    assert "the last 5 are missing" in report(cut(segment, 4 * length - 5))
    assert "not a complete batch" in report(cut(segment, 3 * length + 20))
    assert "magic 9" in report(write(segment, length + 16, b"\x09"))
    assert "old format 1" in report(write(segment, length + 16, b"\x01"))
    assert "no batch begins at 1" in report(write(index, 4, struct.pack(">i", 1)))
    assert "is not greater than the previous entry" in report(
        write(index, 8, struct.pack(">ii", 0, 0) + struct.pack(">ii", 5, 5))
    )
    assert "3 bytes at the end" in report(cut(index, 11))
    assert "latest timestamp" in report(write(times, 0, struct.pack(">q", START)))
    assert "ends before offset 99" in report(write(times, 32, struct.pack(">i", 99)))
    assert "Malformed" in report(lambda d: (d / "leader-epoch-checkpoint").write_text("0\n9\n0 0\n"))
    assert "epoch 0" in report(lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n0 20\n"))
    backwards = batches(4)
    patch(backwards[2], 0, 5, 1)
    assert "comes after" in report(lambda _: None, backwards)


def test_gap_in_the_offsets_is_only_a_warning(log: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    parts = batches(3)
    directory = log([parts[0], parts[2]])
    for name in (f"{NAME}.index", f"{NAME}.timeindex"):
        (directory / name).write_bytes(b"")
    code, out = verify(directory, capsys)
    assert code == 0
    assert "10 offsets are missing from 10 on" in out


def test_preallocated_space_is_not_damage(log: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    directory = log(batches(3))
    for name in (f"{NAME}.log", f"{NAME}.index", f"{NAME}.timeindex"):
        with (directory / name).open("ab") as file:
            file.write(bytes(4800))
    code, out = verify(directory, capsys)
    assert code == 0
    assert "4,800 zeros at the end" in out


def test_overlapping_segments_are_damage(log: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    directory = log(batches(2))
    again = batches(2)[1]
    (directory / f"{10:020}.log").write_bytes(again)
    code, out = verify(directory, capsys)
    assert code == 1
    assert "offset 10 comes after 19" in out


def test_records_and_markers_are_shown_with_control_characters_escaped(
    log: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    record = encode_batch([(START, b"\x1b[2J", "ä\u202e".encode(), [("h", b"\x07")])])
    marker = encode_end_transaction_marker(
        commit=False, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp_ms=START
    )
    patch(marker, 0, 1, 0)
    directory = log([record, marker])
    assert main(["log", "dump", str(directory / f"{NAME}.log"), "--deep"]) == 0
    out = capsys.readouterr().out
    assert r"\x1b[2J  ä\xe2\x80\xae  [h=\x07]" in out
    assert "ABORT coordinator_epoch=3" in out
    assert "producer 7/1" in out
    assert main(["log", "dump", str(directory / f"{NAME}.log"), "--deep", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["batch", "record", "batch", "record", "end"]
    assert rows[3]["record"] == {"coordinator_epoch": 3, "type": "ABORT"}


def test_file_that_is_not_part_of_a_log_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    assert main(["log", "dump", str(tmp_path / "letter.txt")]) == 2
    assert main(["log", "dump", str(tmp_path / "nothing")]) == 2
    assert "No such file" in capsys.readouterr().err


KINDS = ["log", "index", "timeindex", "txnindex", "snapshot", "epochs", "offsets", "metadata snapshot", "text"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_arbitrary_bytes_are_dumped_without_an_exception(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    content = bytearray(b"".join(batches(3, data.draw(st.sampled_from(list(Codec))))))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = data.draw(st.sampled_from([content, content[: data.draw(st.integers(0, len(content)))]]))
    content = content if data.draw(st.booleans()) else bytearray(data.draw(st.binary(max_size=120)))
    path = tmp_path / "file.log"
    path.write_bytes(content)
    for row in dump_file(Found(path, kind), Depth(deep=data.draw(st.booleans()), verify=True)):
        assert isinstance(row, Row)
