"""The walks in docs/architecture follow the code: their files exist, import each other, and have what the text names.

A walk tells how work goes from file to file. A file counts as linked to a walk if it imports another file of the walk,
or is imported by one, directly or through one module in between (a package's `__init__`, or the part that joins both).
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.sources import by_path

# One process parses the sources for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/ottla"
WALKS = sorted((ROOT / "docs/architecture").glob("*.md"))
FILE = re.compile(r"`([\w/]+\.py)`")
# A name in backquotes: a class, a function or a method, perhaps with its class or with parentheses.
NAME = re.compile(r"`((?:[A-Za-z_]\w*\.)?(?!py`)([A-Za-z_]\w*))(?:\(\))?`")
# Words of the protocol and of Kafka's interface, which are not names in the code of their step.
WORDS = {"acks", "bootstrap", "latency", "metrics"}


@cache
def imports() -> dict[Path, set[Path]]:
    """Each file of the sources with the files that it imports or that import it, type-only imports included."""
    linked: dict[Path, set[Path]] = {path: set() for path in by_path() if path.is_relative_to(SOURCES)}
    for path in linked.copy():
        for node in by_path()[path].nodes:
            modules: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("ottla."):
                modules = [node.value]  # a module that is imported at its first use
            for module in modules:
                target = file_of(module)
                if target is not None and target != path:
                    linked[path].add(target)
                    linked[target].add(path)
    return linked


def file_of(module: str) -> Path | None:
    """The file of a module of Ottla, without the packages' own files, which most modules import."""
    path = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py")
    return path if module.startswith("ottla.") and path.is_file() else None


def files_of(text: str) -> list[tuple[str, Path | None]]:
    """Each file that a walk names; a name without a directory is looked up in the directories named before it."""
    found: list[tuple[str, Path | None]] = []
    directories: list[Path] = []
    for named in FILE.findall(text):
        if "/" in named:
            path = SOURCES / named
            directories.insert(0, path.parent)
        else:
            path = next((directory / named for directory in directories if (directory / named).is_file()), SOURCES)
        found.append((named, path if path.is_file() else None))
    return found


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_files_of_a_walk_exist(page: Path) -> None:
    assert [named for named, path in files_of(page.read_text()) if path is None] == []


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_files_of_a_walk_import_each_other(page: Path) -> None:
    walk = {path for _, path in files_of(page.read_text()) if path is not None}
    alone = []
    for path in walk:
        neighbours = imports()[path]
        near = neighbours.union(*(imports()[neighbour] for neighbour in neighbours)) - {path}
        if not near & walk:
            alone.append(str(path.relative_to(SOURCES)))
    assert alone == []


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_names_of_a_walk_are_in_its_files(page: Path) -> None:
    text = page.read_text()
    code = "\n".join(path.read_text() for _, path in files_of(text) if path is not None)
    defined = set(re.findall(r"\b[A-Za-z_]\w*", code))
    assert [full for full, name in NAME.findall(text) if name not in defined | WORDS] == []


def test_map_lists_all_walks() -> None:
    listed = re.findall(r"\]\(architecture/([\w-]+)\.md\)", (ROOT / "docs/ARCHITECTURE.md").read_text())
    assert sorted(listed) == [page.stem for page in WALKS]
