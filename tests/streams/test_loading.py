"""The pipelines of a file, and the lines of `ottla stream` for wrong ones; without a Spark session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.cli.main import main
from ottla.streams import StreamsError
from ottla.streams.description import Description
from ottla.streams.loading import load_pipelines

PROGRAM = """
from __future__ import annotations
from dataclasses import dataclass
from ottla.streams import pipeline, stream, to
from neighbour import TOPIC

@dataclass
class Order:
    price: int

@pipeline
def first(rows=stream(TOPIC, "json", schema=Order)):
    return to("b", rows)

@pipeline(name="second")
def other(rows=stream("c")):
    return to("d", rows)

again = first
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour.py").write_text("TOPIC = 'a'\n")
    path = tmp_path / "program_of_two.py"
    path.write_text(PROGRAM)
    return path


def test_all_pipelines_of_a_file_or_the_named_ones(file: Path) -> None:
    assert [each.name for each in load_pipelines(file)] == ["first", "second"]
    (second,) = load_pipelines(file, ["second", "second"])
    assert second.inputs["rows"].topic == "c"


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (PROGRAM, ["frist"], "has no pipeline 'frist'; did you mean 'first'?"),
        ("x = 1", [], "has no pipeline: decorate a function with @pipeline"),
        (f"{PROGRAM}\nthird = pipeline(name='first')(lambda rows=stream('a'): to('b', rows))", [], "two pipelines"),
    ],
)  # fmt: skip
def test_wrong_choice_of_pipelines(file: Path, text: str, names: list[str], message: str) -> None:
    file.write_text(text)
    with pytest.raises(StreamsError) as raised:
        load_pipelines(file, names)
    assert message in str(raised.value)


def test_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "explain", str(tmp_path / "nothing.py")]) == 1
    assert "There is no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import ottla\nx = (1\n", ["FILE, line 2: SyntaxError: '(' was never closed (FILE, line 2)"]),
        (
            "def f():\n    return 1 / 0\nf()\n",
            [
                "FILE, line 2: ZeroDivisionError: division by zero",
                '       File "PATH", line 3, in <module>',
                "         f()",
                '       File "PATH", line 2, in f',
                "         return 1 / 0",
            ],
        ),
        (
            "from ottla.streams import stream\n\nstream('t', 'jsn')\n",
            ["FILE, line 3: value is 'jsn'; did you mean 'json'?"],
        ),
        ("import absent_module\n", ["FILE, line 1: ModuleNotFoundError: No module named 'absent_module'"]),
        (
            "from ottla.streams import *\np = pipeline(name='p')(lambda rows=stream('t'): rows.select('x'))\n",
            ["FILE, line 2: Pipeline 'p': no column"],
        ),
    ],
)
def test_error_in_the_program_is_shown_from_the_program_on(
    file: Path, text: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Rows:
        def select(self, _: str) -> None:
            raise KeyError

    def explain(path: Path, names: list[str]) -> None:
        (first,) = load_pipelines(path, names)
        try:
            first.outputs(rows=cast("Any", Rows()))
        except KeyError as error:
            raise StreamsError("Pipeline 'p': no column") from error

    file.write_text(text)
    monkeypatch.setattr("ottla.cli.late.explain_file", explain)
    assert main(["stream", "explain", str(file)]) == 1
    shown = capsys.readouterr().err.replace(str(file), "PATH").replace(file.name, "FILE").splitlines()
    assert shown[1].removeprefix("ottla: ") == lines[0]
    assert [line for line in shown[2:] if line.strip(" ^~")][: len(lines) - 1] == lines[1:]


def test_problems_are_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [Description("p", False, {"a": "a: stream of text"}, [], [], {}, ["to('b'): wrong"])]
    monkeypatch.setattr("ottla.cli.late.explain_file", lambda *_: found)
    assert main(["stream", "explain", "p.py"]) == 1
    assert capsys.readouterr().out == "p (at least once)\n  in   a: a: stream of text\n  !    to('b'): wrong\n"
    assert main(["stream", "explain", "p.py", "--json"]) == 1
    assert '"problems":["to(\'b\'): wrong"]' in capsys.readouterr().out
    assert main(["stream", "explain", "p.py", "--mermaid"]) == 1
    assert capsys.readouterr().out == "flowchart LR\n"
