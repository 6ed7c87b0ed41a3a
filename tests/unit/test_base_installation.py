"""The base installation runs a broker: no feature needs an extra, and a start imports no library that can wait."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.sources import by_path

# One process parses the sources for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]
# The packages of the broker; see docs/ARCHITECTURE.md.
PACKAGES = (
    "broker", "cli", "common", "config", "controller", "coordinators", "launch", "log", "metadata", "network",
    "protocol", "raft", "records", "replication", "security",
)  # fmt: skip
# Extras: what a module needs only for its own feature, with an error that names the extra if it is missing.
OPTIONAL = {
    "broker/contracts/checks.py": {"google", "jsonschema_rs"},
    "security/jwt.py": {"jwt"},
    "network/oauth.py": {"jwt", "cryptography"},
    "network/tls_settings.py": {"cryptography"},
}
# Only the build needs it: pure mode has the module `cython` from Ottla itself.
BUILD_ONLY = {"cython"}


def imported(path: Path) -> Iterator[str]:
    """The top-level names of the modules that a file imports, also within functions."""
    for node in by_path()[path].nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def test_libraries_of_the_broker_are_in_the_base_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[<>=!~\[ ]", line)[0].lower() for line in project["dependencies"]}
    files = [path for name in PACKAGES for path in (ROOT / "src/ottla" / name).rglob("*.py")]
    names = (
        {
            name
            for path in files
            for name in set(imported(path)) - OPTIONAL.get(str(path.relative_to(ROOT / "src/ottla")), set())
        }
        - set(sys.stdlib_module_names)
        - {"ottla"}
        - BUILD_ONLY
    )
    distributions = packages_distributions()
    needed = {distributions[name][0].lower().replace("_", "-") for name in names}
    assert needed == base


def test_start_of_the_broker_does_not_import_what_few_brokers_need() -> None:
    program = "import sys, ottla.launch.serve, ottla.broker.server; print(*{'click', 're2', 'lz4'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == ""
