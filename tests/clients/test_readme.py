"""The examples of the README: shell commands, then Python, as a new user runs them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ottla_process import OttlaProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
CONSOLE = re.findall(r"^```console\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
DEFAULT = "127.0.0.1:9092"


def commands(block: str) -> list[tuple[str, str]]:
    """Return each command of a block with its output."""
    parts = (part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
    return [(command, output.strip()) for command, _, output in parts]


def announced(example: str) -> list[str]:
    """Return the output that an example announces in comments beside `print` or at its end."""
    return re.findall(r"(?:^|\bprint\(.*?\)  )# (.*)$", example, re.MULTILINE)


def test_first_steps_of_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install, first_steps = map(commands, CONSOLE)
    assert [command for command, _ in install[:2]] == [
        "python3 -m venv .venv && . .venv/bin/activate",
        "pip install .",  # tests/packaging
    ]
    up, said = install[2]
    assert (up, said) == ("ottla up --data ./data", f"bootstrap={DEFAULT}")
    with OttlaProcess(tmp_path) as broker:
        assert broker.command()[3:6] == [*shlex.split(up)[1:3], str(broker.data)]
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        for command, said in first_steps:
            done = subprocess.run(
                command, shell=True, capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path
            )
            took = re.compile(r"in [\d.]+ m?s")
            assert took.sub("", (done.stdout + done.stderr).strip()) == took.sub("", said)
        clients = [example for example in EXAMPLES if "def test_" not in example]
        assert len(clients) == 2
        for example in clients:
            exec(compile(example.replace(DEFAULT, broker.bootstrap), "README.md", "exec"), {})
            assert capsys.readouterr().out.splitlines() == announced(example)


def test_example_of_the_pytest_fixture_runs(tmp_path: Path) -> None:
    (example,) = (example for example in EXAMPLES if "def test_" in example)
    (tmp_path / "test_it.py").write_text(example)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest -W error\n")
    command = [sys.executable, "-m", "pytest", "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_links_of_the_readme_exist() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(targets)
