"""The race of two guarantees: its ratio is that within pairs, and the driver's answers have a pipe for themselves."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import streams_guarantees
from benchmarks.process_times import COMPILER
from benchmarks.streams_guarantees import SIDES, SIZES, Compared

ROOT = Path(__file__).parents[2]
SIZE = SIZES["guarantees"]
PROGRAM = """
import os
from benchmarks.streams_program import own_output
answers = own_output()
print("of Python", flush=True)
os.system("printf without-a-line-end")
print("started", file=answers, flush=True)
"""


def test_answers_have_standard_output_for_themselves() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "started\n"
    assert "of Python" in done.stderr
    assert "without-a-line-end" in done.stderr


def test_machine_that_becomes_slower_does_not_change_the_ratio() -> None:
    found = Compared("")
    for pair in range(1, 6):
        for who, factor in zip(SIDES, (1.5, 1.0), strict=True):
            found.blocks[who].append({SIZE.unit: pair * factor})
    assert found.ratio(SIZE.unit) == 1.5


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> streams_guarantees._Both:
    """Pairs whose part of the compiler is in `shares`; a pair takes a second."""
    both = object.__new__(streams_guarantees._Both)
    both._size, both._programs = SIZES["guarantees-small"], {}
    for limit in ("LONGEST_WARM_UP_S", "LONGEST_RACE_S"):
        monkeypatch.setattr(streams_guarantees, limit, 7.5)
    return both


def compiled(monkeypatch: pytest.MonkeyPatch, both: streams_guarantees._Both, shares: list[float]) -> None:
    now = [0.0]
    unit = both._size.unit
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def pair(_: int) -> dict[str, dict[str, float]]:
        now[0] += 1
        share = shares[int(now[0]) - 1]
        return {who: {unit: 1.0, f"{COMPILER}: {unit}": share} for who in SIDES}

    monkeypatch.setattr(both, "_pair", pair)


@pytest.mark.parametrize(("shares", "pairs"), [([0.4, 0.1, 0.02, 0.02, 0.02, 0.5], 5), ([0.4] * 8, 8)])
def test_warm_up_ends_when_the_compiler_has_little_to_do_or_after_its_limit(
    both: streams_guarantees._Both, shares: list[float], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(monkeypatch, both, shares)
    assert f"{pairs} pairs" in both.warm_up()


def test_pairs_with_the_least_of_the_compiler_count(
    both: streams_guarantees._Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(monkeypatch, both, [0.01, 0.5, 0.02, 0.5])
    found, told = both.measure(2)
    assert [row[SIDES[0]][f"{COMPILER}: {both._size.unit}"] for row in found] == [0.01, 0.02]
    assert told == "2 of 3 pairs count: the compiler had at most 2.0% in them"
    compiled(monkeypatch, both, [0.01, *[0.5] * 6, 0.1])
    assert both.measure(2)[1] == "2 of 8 pairs count: the compiler had at most 10.0% in them"
