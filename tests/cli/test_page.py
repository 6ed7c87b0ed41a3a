"""The examples of docs/cli.md: every command is run, and says what the page says."""

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
from tests.ottla_process import OttlaProcess

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
# What differs from run to run.
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
    """Each command of the page with what it prints."""
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
    """What the commands find is a new broker."""
    with OttlaProcess(tmp_path / "broker") as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield


def run(command: str) -> str:
    """What a command prints, on standard output and standard error together."""
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


def test_examples_of_the_page_do_what_they_say() -> None:
    pairs = list(commands())
    assert len(pairs) > 30
    for command, said in pairs:
        printed = run(command)
        assert steady(printed.strip()) == steady(said), f"$ {command}\n{printed}"
