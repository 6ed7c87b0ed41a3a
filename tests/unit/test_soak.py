"""The judgement of a soak: what its ledger finds wrong, and which figures grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import kill
from tests.soak import drawing, measures, verdict
from tests.soak.growth import MIB, growth
from tests.soak.ledger import Ledger

HOUR_S = 3600.0


def test_read_numbers_leave_the_ledger_whether_they_are_read_before_or_after_their_acknowledgement() -> None:
    ledger = Ledger("writer", 2)
    ledger.read(0)
    ledger.acknowledge([0, 1])
    assert ledger.unread() == [1]
    ledger.read(1)
    assert ledger.unread() == []
    assert ledger.problems == []


@pytest.mark.parametrize(("read", "problem"), [([0, 2, 2], "2 was read after 2"), ([0, 4, 2], "2 was read after 4")])
def test_repeated_and_misplaced_numbers_are_problems(read: list[int], problem: str) -> None:
    ledger = Ledger("writer", 2)
    ledger.acknowledge([0, 1, 2, 3, 4])
    for number in read:
        ledger.read(number)
    assert ledger.problems == [f"writer: {problem}"]


def test_lost_numbers_stay_unread() -> None:
    ledger = Ledger("writer", 1)
    ledger.acknowledge([0, 1, 2])
    ledger.read(0)
    ledger.read(2)
    assert ledger.unread() == [1]


def test_aborted_numbers_must_not_be_read_and_doubtful_ones_may_be_late() -> None:
    ledger = Ledger("writer", 1)
    ledger.abort([0])
    ledger.doubt([1])
    ledger.acknowledge([2])
    ledger.read(2)
    ledger.read(1)
    assert ledger.problems == []
    ledger.read(0)
    assert ledger.problems[0] == "writer: 0 was aborted and read"


def test_a_share_group_may_get_records_twice_and_in_any_order() -> None:
    ledger = Ledger("writer", 1, ordered=False)
    ledger.acknowledge([0, 1])
    for number in (1, 0, 1):
        ledger.read(number)
    assert ledger.problems == []
    assert ledger.unread() == []


def points(per_hour: float, noise: float = 0.0) -> list[tuple[float, float]]:
    """Samples of two hours: 50 MiB, a slope, and a saw tooth of ten minutes."""
    return [
        (at_s, 50 * MIB + per_hour * at_s / HOUR_S + noise * (at_s % 600) / 600)
        for at_s in map(float, range(0, int(2 * HOUR_S), 5))
    ]


@pytest.mark.parametrize(
    ("per_hour", "noise", "grows"),
    [(0, 0, False), (0, 20 * MIB, False), (1 * MIB, 0, False), (8 * MIB, 0, True), (8 * MIB, 10 * MIB, True)],
)
def test_a_slope_is_found_below_saw_teeth(per_hour: float, noise: float, *, grows: bool) -> None:
    found = growth("memory", points(per_hour, noise), 2 * HOUR_S)
    assert found is not None
    assert found.grows is grows
    assert found.per_hour == pytest.approx(per_hour, abs=1 * MIB)


def test_growth_during_the_warm_up_does_not_count() -> None:
    found = growth("memory", [(at_s, min(at_s, 2000.0) * MIB) for at_s, _ in points(0)], 2 * HOUR_S)
    assert found is not None
    assert (found.per_hour, found.grows) == (0, False)


def test_a_run_is_judged_and_drawn_from_its_file(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for at_s, value in points(8 * MIB):
        for process in ("broker-1", "broker-3"):
            figures = {"memory": value, "descriptors": 90, "threads": 4, "disk": 30 * MIB}
            rows.append({"at_s": at_s, "process": process, "pid": 1, **figures})
        rows.append({"at_s": at_s, "report": "clients", "a acknowledged": at_s, "p50_ms": 5, "p99_ms": 50})
    rows.append({"at_s": HOUR_S, "killed": "broker-1"})
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    history = verdict.read(file)
    # The memory of a process that was killed says nothing.
    (problem,) = verdict.problems(history)
    assert problem.startswith("broker-3: memory, MiB grows by 8.0 an hour, from 5")
    assert "| broker-1 | disk, MiB | 30.0 | 30.0 | 0.0 |" in verdict.table(history)
    assert "1 kills" in verdict.table(history)
    drawing.draw(history, tmp_path / "soak.svg")
    assert (tmp_path / "soak.svg").read_text().count("<polyline") == 2 * 4 + 2


def test_a_sample_includes_descendants_and_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert len(measures.family(process.pid)) == 2
        figures = measures.sample(process.pid, tmp_path)
        assert figures["threads"] == 2
        assert figures["disk"] >= 10_000
        assert figures["memory"] > 1 * MIB
        assert measures.sample(os.getpid())["memory"] > 1 * MIB
    finally:
        kill(process)
    assert measures.sample(process.pid, tmp_path) == {}
