"""Tests the adapter to Spark and a pipeline with each supported version of pyspark: `make spark-versions`.

Each version has a virtual environment in the cache directory, with its own pyspark and py4j, and with the other
packages of the environment that runs this script. A version takes 450 MB to download, 500 MB of disk, and a minute or
two to test. Exit code 0; 1 if a version failed or could not be installed. Uses nothing but the standard library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

from environment import SPARK_OPTIONS  # type: ignore[import-not-found]  # this directory is on the path of a script

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("4.2.0", "4.2.1", "4.3.0")
"""The first and the last release of each line that `pyproject.toml` allows."""
TESTS = (
    "tests/spark/test_internals.py",
    "tests/streams/test_pipelines.py::test_invalid_records_are_written_in_transactions_of_the_query",
)
INSTALL_S, TEST_S = 1800.0, 900.0


def environment_of(version: str) -> Path:
    """Return the directory of the virtual environment of a version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla-spark" / version


def install(version: str) -> Path:
    """Return the Python of a version's environment, which is created if necessary. Raises subprocess exceptions."""
    directory = environment_of(version)
    python, stamp = directory / "bin/python", directory / ".installed"
    if not stamp.is_file():
        venv.create(directory, clear=True, with_pip=True)
        quiet = ("--disable-pip-version-check", "--no-input", "--no-cache-dir", "--quiet")
        pip: list[str | Path] = [python, "-m", "pip", "install", *quiet]
        subprocess.run([*pip, "setuptools", "wheel", "py4j>=0.10.9.9,<0.11"], check=True, timeout=INSTALL_S)
        subprocess.run([*pip, *SPARK_OPTIONS, f"pyspark=={version}"], check=True, timeout=INSTALL_S)
        stamp.touch()
    # Its own packages come before the packages of this environment.
    (site,) = directory.glob("lib/python3*/site-packages")
    (site / "other.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def test(version: str, tests: tuple[str, ...]) -> str:
    """Return in a word or a line what came out."""
    try:
        python = install(version)
    except (subprocess.SubprocessError, OSError) as error:
        return f"ABSENT, not tested: {error}"
    begun_s = time.monotonic()
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=TEST_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"FAILED: no end within {TEST_S:g} s"
    return f"{'passed' if code == 0 else 'FAILED'} in {time.monotonic() - begun_s:.0f} s"


def main() -> int:
    """Test the given versions, by default all supported ones."""
    versions = sys.argv[1:] or VERSIONS
    found = {version: test(version, TESTS) for version in versions}
    for version, outcome in found.items():
        print(f"pyspark {version}: {outcome}")
    return 0 if all(outcome.startswith("passed") for outcome in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
