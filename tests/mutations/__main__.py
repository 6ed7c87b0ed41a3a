"""`python -m tests.mutations [WORD...]`: the rows whose protection has one of these words, `1/3` a third, or all rows.

Each row is applied to a copy of the source, and its tests must fail there. If they pass, the protection is not tested.
Before that, each test must pass, and not be skipped, with the unchanged copy: a test that always fails proves nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
SECONDS = 150
TESTS_PASSED, TESTS_FAILED = 0, 1


def main(words: list[str]) -> int:
    """Run the rows; exit code 1 if a protection is not tested."""
    chosen = list(MUTATIONS)
    if words and (share := re.fullmatch(r"(\d+)/(\d+)", words[0])):
        chosen = chosen[int(share[1]) - 1 :: int(share[2])]
    elif words:
        chosen = [each for each in MUTATIONS if any(word in each.protection for word in words)]
    green = 0
    with tempfile.TemporaryDirectory(prefix="ottla-mutations-") as place:
        copy = Path(place) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
        for each in chosen:
            begun = time.monotonic()
            problem = tried(each, copy)
            green += problem is not None
            print(f"{'RED' if problem is None else 'GREEN'}  {time.monotonic() - begun:5.1f} s  {each.protection}")
            if problem is not None:
                print(problem)
            sys.stdout.flush()
    print(f"{len(chosen) - green} of {len(chosen)} tests fail, as they must, when their protection is taken out")
    return 1 if green else 0


def tried(mutation: Mutation, copy: Path) -> str | None:
    """The reason why a row fails, or None if all its tests pass with the protection and fail without it."""
    path = copy / "ottla" / mutation.path
    source = path.read_text()
    assert source.count(mutation.old) == 1, f"{mutation.path} has {mutation.old!r} {source.count(mutation.old)} times"
    changed = source.replace(mutation.old, mutation.new)
    compile(changed, mutation.path, "exec")
    environment = {
        **os.environ,
        **dict(mutation.environment),
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for test in mutation.tests:
        problem = other_than(TESTS_PASSED, test, environment)
        if problem is not None:
            return f"    with the protection:\n{problem}"
        path.write_text(changed)
        try:
            problem = other_than(TESTS_FAILED, test, environment)
        finally:
            path.write_text(source)
        if problem is not None:
            return problem
    return None


def other_than(expected: int, test: str, environment: Mapping[str, str]) -> str | None:
    """Return pytest's output if it ended otherwise; None if it ended as expected. A skipped test did not pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"    {test}: no end within {SECONDS} s"
    if done.returncode == expected and (expected != TESTS_PASSED or " skipped" not in done.stdout.splitlines()[-1]):
        return None
    return f"    {test}: pytest ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-500:]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
