"""The examples of docs/cli.md: each command is run on a new broker, and its output must equal the page's.

Nothing is prepared but what the page itself asks for: a broker, and the programs that it shows.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.ottla_process import ForkedOttla

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
# Programs that the page asks the reader to write: the first line is the name of the file.
PROGRAMS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
# The address of the broker that the page asks the reader to start.
DEFAULT = "127.0.0.1:9092"
EXAMPLES = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
# Parts of the output that differ from run to run.
CHANGING = (
    (r"\b[A-Za-z0-9_-]{22}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "MOMENT"),
    (r"\d+(\.\d)? ([KMGT]i)?B\b", "SIZE"),
    (r"in \d\S* \w+ \([\d,]+/s\)", "in NO TIME"),
    (r"(?<= )/\S+", "PATH"),
    (r" +", " "),
)


def commands() -> Iterator[tuple[str, str]]:
    """Each command of the page with its output."""
    for example in EXAMPLES:
        for part in re.split(r"^\$ ", example, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.strip()


def steady(text: str) -> str:
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text)
    return text


@pytest.fixture(autouse=True)
def _own_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a new broker for the commands."""
    with ForkedOttla(tmp_path / "broker") as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        monkeypatch.chdir(tmp_path)
        for name, program in PROGRAMS:
            Path(name).write_text(program.replace(DEFAULT, broker.bootstrap))
        yield


def run(command: str) -> str:
    """Run a command; returns its standard output and standard error together."""
    name, *words = shlex.split(command)
    if name != "ottla" or "|" in words:
        ended = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return ended.stdout
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(words)
    return printed.getvalue()


def test_examples_of_the_page_print_the_output_of_the_page() -> None:
    pairs = list(commands())
    assert len(pairs) > 30
    for command, output in pairs:
        printed = run(command)
        assert steady(printed.strip()) == steady(output), f"$ {command}\n{printed}"
