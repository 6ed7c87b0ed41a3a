"""The shape of the code is tested: banned calls, sizes, nesting, parameters, attributes, broad excepts, import cycles.

`make metrics` prints the figures. Each message says what to do instead.
"""

import ast
import graphlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tools import metrics

from tests.sources import source_files

# One process parses the sources for all of them.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parents[2]
CORES = ("raft", "metadata", "controller", "coordinators")
LONGEST_FUNCTION = 70
LONGEST_FILE = 500
DEEPEST_NESTING = 4
MOST_PARAMETERS = 6
MOST_BROAD_EXCEPTS_PER_1000_LINES = 0.3
# Public functions whose options are keyword arguments: see docs/STYLE.md.
PUBLIC_FUNCTIONS = {
    ("src/ottla/clients/producer/asynchronous.py", "send"),
    ("src/ottla/clients/producer/producer.py", "send"),
    ("src/ottla/clients/producer/_encoder.py", "send"),
    ("src/ottla/connect/functions.py", "source"),
    ("src/ottla/streams/declarations.py", "stream"),
    ("src/ottla/streams/declarations.py", "table"),
    ("src/ottla/streams/declarations.py", "pipeline"),
    ("src/ottla/streams/runtime.py", "run"),
    ("src/ottla/streams/declarations.py", "to"),
    ("src/ottla/testing/faults.py", "fail"),
    ("src/ottla/testing/faults.py", "delay"),
    ("src/ottla/testing/faults.py", "swallow"),
}
# The path of a record from `send` into its batch: an object for each record would cost more than the call.
CALLED_FOR_EACH_RECORD = {
    ("src/ottla/clients/producer/_encoder.py", "try_append"),
    ("src/ottla/clients/producer/_encoder.py", "_send_slowly"),
    ("src/ottla/clients/producer/producer.py", "_send_slowly"),
}
LONG_SIGNATURES = PUBLIC_FUNCTIONS | CALLED_FOR_EACH_RECORD
INLINED = "a compiled kernel: C inlines functions only within one file"
LONG_FILES = {
    "src/ottla/records/_decode_columns.py": INLINED,
    "src/ottla/records/_encode_columns.py": INLINED,
    "src/ottla/records/_record_reader.py": INLINED,
}

# Classes with more attributes than the limit, and how many they may have. Remove a class that is small again.
LARGE_CLASSES = {
    # A value type: 15 are fields of its compiled base, which `send` writes and futures read; one object for each batch.
    "Batch": 26,
}
# Modules that import each other for type checking. Remove a circle that is cut.
TYPE_CIRCLES: list[set[str]] = []
# The fixture for streams is given the broker of the fixture in `ottla.testing`.
TYPES_FROM_ABOVE = {
    ("ottla.streams.testing", "ottla.testing.record"),
    ("ottla.streams.testing", "ottla.testing.view"),
}

BANNED = {
    r"\btime\.time\(": "take `now_ms` as an argument, or a Clock",
    r"\btime\.monotonic\(": "take `now_ms` as an argument, or a Clock",
    r"\bos\.urandom\(": "take a random source as an argument",
    r"\buuid4\(": "take a random source as an argument",
    r"\brandom\.(random|randint|choice)\(": "take a random source as an argument",
}
WITHOUT_DEADLINE = {
    r"\bThreadPoolExecutor\(": "deadlines.in_threads",
    r"\.communicate\(\)": "pass a timeout, or deadlines.kill",
    r"\b(thread|timer|sender|restart)\.join\(\)": "deadlines.join",
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
    missing = [relative(file.path) for file in source_files() if file.text and not ast.get_docstring(file.tree)]
    assert not missing, "say in the module's docstring what it is and promises"


def test_functions_fit_a_screen() -> None:
    long = [
        f"{function.name} has {function.lines} lines"
        for file in source_files()
        for function in file.functions
        if function.lines > LONGEST_FUNCTION
    ]
    assert not long, "split it: parse, decide and apply are separate functions"


def test_nesting_is_shallow() -> None:
    deep = [
        f"{function.name} has {function.nesting} levels"
        for file in source_files()
        for function in file.functions
        if function.nesting > DEEPEST_NESTING
    ]
    assert not deep, "return early, or move the inner block into a function"


def test_functions_have_few_parameters() -> None:
    """Counts parameters without self. The constructors of value types are generated from their fields."""
    many = [
        f"{function.name} has {function.parameters} parameters"
        for file in source_files()
        for function in file.functions
        if function.parameters > MOST_PARAMETERS and (relative(file.path), function.node.name) not in LONG_SIGNATURES
    ]
    assert not many, "pass a frozen dataclass, or split the function"


def test_exceptions_to_the_limits_are_needed() -> None:
    found = {
        (relative(file.path), function.node.name)
        for file in source_files()
        for function in file.functions
        if function.parameters > MOST_PARAMETERS
    }
    assert found >= LONG_SIGNATURES
    assert LONG_FILES.keys() <= {relative(file.path) for file in source_files() if file.lines > LONGEST_FILE}


def test_files_have_one_subject() -> None:
    long = []
    for file in source_files():
        is_table = "messages" in file.path.parts or file.path.name.endswith("_rows.py")
        if file.lines > LONGEST_FILE and not is_table and relative(file.path) not in LONG_FILES:
            long.append(f"{relative(file.path)} has {file.lines} lines")
    assert not long, "make it a table or two files"


def test_broad_excepts_are_rare_and_have_a_reason() -> None:
    broad = [(file, line) for file in source_files() for line in file.broad_excepts]
    code_lines = sum(file.lines for file in source_files())
    assert len(broad) <= MOST_BROAD_EXCEPTS_PER_1000_LINES * code_lines / 1000, "catch the narrowest type"
    bare = [f"{relative(file.path)}:{line}" for file, line in broad if "  # " not in file.text.splitlines()[line - 1]]
    assert not bare, "state the reason beside it, or re-raise"


def test_nothing_swallows_errors() -> None:
    offences = []
    for file in source_files():
        for node in file.nodes:
            if isinstance(node, ast.ExceptHandler):
                bare = node.type is None
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                broad = isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
                if bare or (silent and broad):
                    offences.append(f"{relative(file.path)}:{node.lineno}")
    assert not offences, "catch the narrowest type where you can act on it"


def test_only_the_adapter_uses_private_api_of_spark() -> None:
    """Each version of pyspark may change it; `make spark-versions` tests the adapter alone."""
    inside, outside = metrics.divide_spark(source_files())
    offences = [f"{relative(file.path)}:{line}" for file in outside for line in file.private_spark_uses]
    assert not offences, "add a function to ottla.spark.internals, with a test in tests/spark/test_internals.py"
    assert sum(1 for file in inside for _ in file.private_spark_uses) > 30, "the pattern finds the uses"


def test_adapter_to_spark_names_versions_and_is_tested() -> None:
    tests = (ROOT / "tests/spark/test_internals.py").read_text()
    for file in metrics.divide_spark(source_files())[0]:
        classes = [node for node in file.tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
        for node in [*file.tree.body, *(item for each in classes for item in each.body)]:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                said = ast.get_docstring(node) or ""
                assert re.search(r"pyspark\s4\.\d\sto\s4\.\d", said), f"{node.name}: state the versions of pyspark"
                assert re.search(rf"\b{node.name}\b", tests), f"{node.name}: test it against real Spark"


def test_tests_wait_with_deadlines() -> None:
    """After the one alarm of pytest-timeout, a wait without a deadline would last for ever."""
    offences = [
        f"{relative(path)}: {remedy}"
        for path in (ROOT / "tests").rglob("*.py")
        for pattern, remedy in WITHOUT_DEADLINE.items()
        if re.search(pattern, path.read_text())
    ]
    assert not offences


def test_classes_have_few_attributes() -> None:
    found = {name: count for file in source_files() for name, count in file.classes if count > metrics.MOST_ATTRIBUTES}
    grown = {name: count for name, count in found.items() if count > LARGE_CLASSES.get(name, 0)}
    assert not grown, "group attributes that change together in an object with a name"
    assert found.keys() == LARGE_CLASSES.keys(), "remove classes that are small now from LARGE_CLASSES"


def test_modules_import_each_other_without_cycles() -> None:
    """Considers imports at module level. Imports for type checking have no effect at run time."""
    modules = {file.module: file for file in source_files()}
    graph = {name: metrics.imported(run_statements(file.tree.body), modules) - {name} for name, file in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"{' -> '.join(error.args[1])}: move the shared part into a module of its own")


def run_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            checks_types = "TYPE_CHECKING" in ast.unparse(node.test)
            yield from run_statements([*([] if checks_types else node.body), *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from run_statements([*node.body, *handlers, *node.orelse])


def test_modules_do_not_know_each_other_as_types() -> None:
    circles = metrics.circles(metrics.imports(source_files()))
    new = [sorted(circle) for circle in circles if not any(circle <= known for known in TYPE_CIRCLES)]
    assert not new, "declare what is used in a small Protocol, or move the type into a module of its own"
    obsolete = [sorted(known) for known in TYPE_CIRCLES if not any(circle <= known for circle in circles)]
    assert not obsolete, "remove it from TYPE_CIRCLES"


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f", "a"}, "f": {"e"}}
    assert set(metrics.circles(graph)) == {frozenset("bc"), frozenset("ef")}


def test_types_and_lazy_names_are_imported_from_lower_packages() -> None:
    """import-linter has the same layers, but sees neither imports for type checking nor the stubs of lazy names."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    level = {f"ottla.{name.strip()}": number for number, layer in enumerate(layers) for name in layer.split("|")}
    graph = metrics.imports(source_files())
    stubs = [metrics.SourceFile(path) for path in metrics.SOURCES.rglob("*.pyi")]
    offences = set()
    for name, targets in [*graph.items(), *((stub.module, metrics.imported(stub.nodes, graph)) for stub in stubs)]:
        package = ".".join(name.split(".")[:2])
        for target in targets:
            other = ".".join(target.split(".")[:2])
            if package in level and other in level and package != other and level[package] >= level[other]:
                offences.add((name, target))
    assert len(level) > 20
    assert offences == TYPES_FROM_ABOVE, "declare what is used in a Protocol of the lower package"
