"""Each test belongs to exactly one of `make test`, `make test-long` and `make test-kafka`. A landing runs all three.

The targets choose tests by two markers, `jvm` and `long`, and collect all of `tests/` except files without such a test.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.mark.expression import Expression

from tests import conftest

ROOT = Path(__file__).parents[2]
TARGETS = ("test", "test-long", "test-kafka")
MARKERS = ("jvm", "long")


def recipe(target: str) -> str:
    (found,) = re.findall(rf"^{target}:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(found)


def expression(target: str) -> str:
    (found,) = re.findall(r'-m ("[^"]+"|\w+)', recipe(target).partition("pytest")[2])
    return str(found).strip('"')


@pytest.mark.parametrize("markers", [set(chosen) for n in range(3) for chosen in itertools.combinations(MARKERS, n)])
def test_each_test_belongs_to_exactly_one_target(markers: set[str]) -> None:
    def has(name: str, /, **_: Any) -> bool:
        assert name in MARKERS, f"a target chooses by {name!r}: add the marker to MARKERS"
        return name in markers

    chosen = [target for target in TARGETS if Expression.compile(expression(target)).evaluate(has)]
    assert len(chosen) == 1


def test_the_targets_differ_only_in_the_markers() -> None:
    whole = {recipe(target).replace(expression(target), "").replace('""', "") for target in TARGETS}
    assert len(whole) == 1, "a path or an option of one target would exclude tests from all"


def test_the_targets_ignore_only_files_without_their_tests() -> None:
    assert {expression("test-kafka"), expression("test-long")} == {conftest.ONLY_JVM, conftest.ONLY_LONG}
    config: Any = SimpleNamespace(getoption=lambda name: expression("test"))
    assert not conftest.pytest_ignore_collect(Path(__file__), config)
    config.getoption = lambda name: expression("test-long")
    marked = ROOT / "tests/spark/test_standalone_cluster.py"
    assert not conftest.pytest_ignore_collect(marked, config)
    assert conftest.pytest_ignore_collect(ROOT / "tests/unit/test_tidy.py", config)
    config.getoption = lambda name: expression("test-kafka")
    assert not conftest.pytest_ignore_collect(marked.parent, config)
    assert conftest.pytest_ignore_collect(ROOT / "tests/unit", config)


@pytest.mark.parametrize(("marker", "file"), [("jvm", "tests/unit/test_tidy.py"), ("long", "tests/unit/test_tidy.py")])
def test_a_test_in_an_ignored_file_is_refused(marker: str, file: str) -> None:
    item: Any = SimpleNamespace(
        nodeid=f"{file}::test", path=ROOT / file, get_closest_marker=lambda name: name == marker or None
    )
    with pytest.raises(pytest.UsageError, match="is not collected by `make test-"):
        conftest.refuse_uncollected([item])


def landing(tmp_path: Path, failing: set[str]) -> tuple[int, list[str]]:
    """Run .ci/run with a `make` that fails for some targets; return its exit code and the targets in order."""
    ran = tmp_path / "ran"
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "$@" >> {ran}\ncase " {" ".join(failing)} " in *" $1 "*) exit 2;; esac\n')
    make.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code = subprocess.run([ROOT / ".ci/run"], env={**os.environ, "PATH": path}, timeout=60, check=False).returncode
    return code, ran.read_text().split()


def test_a_landing_runs_all_targets(tmp_path: Path) -> None:
    assert landing(tmp_path, set()) == (0, ["check", *TARGETS])


@pytest.mark.parametrize("target", TARGETS)
def test_a_landing_repeats_the_tests_that_failed_and_fails_with_them(target: str, tmp_path: Path) -> None:
    assert landing(tmp_path, {target}) == (0, ["check", *TARGETS, "test-failed"])
    (tmp_path / "ran").unlink()
    code, ran = landing(tmp_path, {target, "test-failed"})
    assert code != 0
    assert ran == ["check", *TARGETS, "test-failed"]


def test_a_landing_that_fails_the_checks_runs_no_tests(tmp_path: Path) -> None:
    code, ran = landing(tmp_path, {"check"})
    assert code != 0
    assert ran == ["check"]


def test_a_failed_test_of_a_group_is_repeated(tmp_path: Path) -> None:
    """Otherwise a landing would pass with such a failure."""
    failing = "def test_fails():\n    assert False\n"
    (tmp_path / "test_alone.py").write_text(failing)
    (tmp_path / "test_group.py").write_text(f"import pytest\n@pytest.mark.xdist_group('g')\n{failing}")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for target in ("test", "test-failed"):
        options = recipe(target).partition("-m pytest ")[2].replace("$(WORKERS)", "1").replace("$(PYTEST)", "")
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.group_names", *shlex.split(options)]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        # Without the installed plugins, whose imports take longer than the tests.
        environment = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert "2 failed" in done.stdout, f"{target}: {done.stdout}"
