"""If one extension cannot be compiled, none is installed: extensions call each other in C, not in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&definition); }
"""
# Builds two extensions as setup.py builds the kernels: the same command, in parallel.
SETUP = """
import runpy
from setuptools import Extension, setup

command = runpy.run_path({setup_py!r}, run_name="setup_of_kernels")["BuildAllOrNone"]
setup(
    name="two",
    packages=["two"],
    ext_modules=[Extension("two." + name, [name + ".c"]) for name in ("good", "other")],
    cmdclass={{"build_ext": command}},
    options={{"build_ext": {{"parallel": 2}}}},
)
"""


def build(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "build_ext", "--inplace", *options]
    return subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "CFLAGS": "-O0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def built(project: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in project.rglob("*" + EXTENSION_SUFFIXES[0]))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "__init__.py").touch()
    (tmp_path / "setup.py").write_text(SETUP.format(setup_py=str(ROOT / "setup.py")))
    for name in ("good", "other"):
        (tmp_path / f"{name}.c").write_text(MODULE.replace("NAME", name))
    return tmp_path


def test_extension_that_cannot_be_compiled_removes_the_others_also_of_earlier_builds(project: Path) -> None:
    done = build(project)
    assert done.returncode == 0, done.stderr
    assert set(built(project)) == {"good", "other"}

    (project / "other.c").write_text("this is not C")
    (project / "good.c").write_text(MODULE.replace("NAME", "good") + "\n")
    done = build(project, "--force")
    assert done.returncode == 0, done.stderr
    assert built(project) == []
    assert "THE KERNELS ARE NOT COMPILED" in done.stderr
