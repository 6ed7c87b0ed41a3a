"""The check of `python -m benchmarks --check`: ratios are compared with the last ones, in the right direction."""

from pathlib import Path

import pytest
from benchmarks import report, results


def found(figure: str, ottla: float, kafka: float) -> results.Results:
    return {"race": results.compared({figure: ottla}, "kafka", {figure: kafka})}


@pytest.mark.parametrize(
    ("figure", "before", "now", "worse"),
    [
        ("MB/s", 2.0, 1.0, True),
        ("MB/s", 2.0, 1.5, False),
        ("MB/s", 2.0, 9.0, False),
        ("requests per broker-CPU-second", 3.0, 1.0, True),
        ("seconds", 0.05, 0.1, True),
        ("seconds", 0.05, 0.06, False),
        ("seconds", 0.05, 0.01, False),
    ],
)
def test_worse_ratio_is_reported(figure: str, before: float, now: float, worse: bool) -> None:
    last, current = found(figure, before * 10, 10), found(figure, now * 3, 3)
    assert bool(results.regressions(current, last)) is worse


def test_negligible_figures_are_not_a_regression() -> None:
    last, current = found("% of a core", 0.1, 2.0), found("% of a core", 1.0, 2.0)
    assert results.regressions(current, last) == []
    assert results.regressions(found("% of a core", 10.0, 2.0), last)


def test_races_that_were_not_run_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "last.json"
    results.write(path, {"one": found("MB/s", 1, 2)["race"]}, {"cores": 2})
    results.write(path, {"two": found("MB/s", 3, 2)["race"]}, {"cores": 2})
    assert {race: row["MB/s"]["ratio"] for race, row in results.last_results(path).items()} == {"one": 0.5, "two": 1.5}
    assert results.last_results(tmp_path / "absent.json") == {}


def test_the_table_goes_between_its_marks_and_a_missed_aim_is_bold(tmp_path: Path) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "last.json"
    page.write_text(f"before\n\n{report.BEGIN}old\n{report.END}\nafter\n")
    rows = results.compared(
        {"seconds": 1.0, "broker CPU seconds": 1.0}, "kafka", {"seconds": 4.0, "broker CPU seconds": 8.0}
    )
    results.write(kept, {"start": rows}, {"cores": 2})
    summary = tmp_path / "summary.md"
    marks = [mark.replace("races", "summary of races") for mark in (report.BEGIN, report.END)]
    summary.write_text("before\n" + "".join(marks))
    report.update(kept, page, summary, tmp_path / "absent.json")
    assert "| start to the first acknowledged record: seconds | 1 | 4 | 0.25 |" in summary.read_text()
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| seconds | 1 | 4 | **0.25** | ≤ 0.05 |" in text
    assert "|  | broker CPU seconds | 1 | 8 | 0.125 |  |" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lacks"):
        report.update(kept, page, summary, tmp_path / "absent.json")
