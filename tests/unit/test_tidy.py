"""The shape of the code is a test: what does not belong in a room, and what to use instead."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CORES = ("raft", "metadata", "controller", "coordinators")
LONGEST_FUNCTION = 70
LONGEST_FILE = 600
TABLES: set[str] = set()

BANNED = {
    r"\btime\.time\(": "take `now_ms` as an argument, or a Clock",
    r"\btime\.monotonic\(": "take `now_ms` as an argument, or a Clock",
    r"\bos\.urandom\(": "take a random source as an argument",
    r"\buuid4\(": "take a random source as an argument",
    r"\brandom\.(random|randint|choice)\(": "take a random source as an argument",
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("core", CORES)
def test_cores_take_time_and_chance_as_arguments(core: str) -> None:
    offences = [
        f"{relative(path)}: {remedy}"
        for path in (ROOT / "src/ottla" / core).rglob("*.py")
        for pattern, remedy in BANNED.items()
        if re.search(pattern, path.read_text())
    ]
    assert not offences


def test_every_module_opens_with_its_contract() -> None:
    missing = [
        relative(path) for path in SOURCES if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not missing, "say in the module's docstring what it is and promises"


def test_functions_fit_a_screen() -> None:
    long = []
    for path in SOURCES:
        if path.name in TABLES:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{relative(path)}:{node.lineno} {node.name} has {length} lines")
    assert not long, "split it: parse, decide and apply are separate functions"


def test_files_hold_one_idea() -> None:
    long = []
    for path in SOURCES:
        lines = path.read_text().splitlines()
        is_table = path.name in TABLES or "messages" in path.parts or "Table" in (lines[0] if lines else "")
        if len(lines) > LONGEST_FILE and not is_table:
            long.append(f"{relative(path)} has {len(lines)} lines")
    assert not long, "make it a table or two files"


def test_nothing_swallows_errors() -> None:
    offences = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                bare = node.type is None
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                broad = isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
                if bare or (silent and broad):
                    offences.append(f"{relative(path)}:{node.lineno}")
    assert not offences, "catch the narrowest type where you can act on it"
