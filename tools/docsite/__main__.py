"""`python -m tools.docsite`: build the documentation site into build/site, or another directory: `--output DIR`.

Needs no network, but for the library of diagrams in a first build. A broken link or anchor is an error. The exit code
comes from mkdocs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 600.0


def main() -> int:
    """Return the exit code of mkdocs."""
    parser = argparse.ArgumentParser(prog="python -m tools.docsite", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    output = parser.parse_args().output.resolve()
    # The hooks import `tools`. The theme's news are for its maintainers.
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", str(output)]
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=BUILD_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
