"""`python -m tests.scenarios [--write] [FILE...]`: compare scenarios with this run, or write this run into them."""

from __future__ import annotations

import difflib
import sys
import tempfile
from pathlib import Path

from tests.scenarios.script import replay, scenarios


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--write"] or scenarios()
    differences = 0
    for path in paths:
        with tempfile.TemporaryDirectory(prefix="ottla-scenario-") as directory:
            before, after = path.read_text(), replay(path, Path(directory))
        if before == after:
            continue
        differences += 1
        if write:
            path.write_text(after)
            print(f"wrote {path}")
        else:
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path)))
    return 1 if differences and not write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
