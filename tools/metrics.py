"""Prints the shape of the code, package by package: `make metrics`.

Files and lines are counted as they are, with comments and blank lines. A function's parameters are counted without
`self` and `cls`; nesting is the number of compound statements around its deepest statement. The attributes of a class
are the names that its methods set on `self`, and the fields of a dataclass that is not frozen. A circle is a set of
modules that import each other, also for type checking or within functions. A broad except catches Exception or
BaseException and does not end with `raise`. `tests/unit/test_tidy.py` has the limits. Uses nothing but the standard
library.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
TESTS = ROOT / "tests"
MOST_ATTRIBUTES = 15

Definition = ast.FunctionDef | ast.AsyncFunctionDef
PRIVATE_MODULES = re.compile(
    r"py4j\b|pyspark\.(?:[\w.]+\.)?_|pyspark\.(?:java_gateway|find_spark_home|worker|sql\.worker|sql\.classic)\b"
)
PRIVATE_NAMES = re.compile(
    r"_(?:jvm|jdf|jsc|jsparkSession|gateway|options|cause)$|java_exception$|org\.apache\.spark\.\S+$"
)
"""Attributes and Java classes of Spark that its documentation does not mention, as texts."""
NOT_OF_SPARK = ("_replace", "_exit", "_HANDLER")
_NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)


@dataclass(frozen=True)
class Function:
    """One function or method, without its nested functions' parameters and nesting."""

    path: Path
    node: Definition
    is_method: bool

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.node.lineno} {self.node.name}"

    @property
    def lines(self) -> int:
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    @property
    def parameters(self) -> int:
        arguments = self.node.args
        is_static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in self.node.decorator_list)
        count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
        return count - (self.is_method and not is_static)

    @property
    def nesting(self) -> int:
        return max(_depth(statement) for statement in self.node.body)


class SourceFile:
    """A Python file with its functions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree. A walk takes longer than parsing."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        methods = {id(item) for node in self.nodes if isinstance(node, ast.ClassDef) for item in node.body}
        definitions = [node for node in self.nodes if isinstance(node, Definition)]
        return [Function(self.path, node, id(node) in methods) for node in definitions]

    @cached_property
    def classes(self) -> list[tuple[str, int]]:
        """The classes with the number of their attributes. Value types have fields instead, which are not counted."""
        return [(node.name, len(_attributes(node))) for node in self.nodes if isinstance(node, ast.ClassDef)]

    @property
    def module(self) -> str:
        """The name by which the file is imported."""
        parts = self.path.relative_to(SOURCES).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def broad_excepts(self) -> Iterator[int]:
        """The lines of handlers that catch everything and do not re-raise it."""
        for node in self.nodes:
            if isinstance(node, ast.ExceptHandler):
                types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                raises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
                broad = any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in types)
                if broad and not raises:
                    yield node.lineno

    @property
    def private_spark_uses(self) -> Iterator[int]:
        """The lines that use private names of pyspark or import py4j, if all other private names are of `self`."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if re.match("_[^_]", node.attr) and node.attr not in NOT_OF_SPARK and not is_own:
                    yield node.lineno
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                names = [module, *(f"{module}.{alias.name}" if module else alias.name for alias in node.names)]
                if any(PRIVATE_MODULES.match(name) for name in names):
                    yield node.lineno
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PRIVATE_NAMES.match(node.value):
                yield node.lineno

    @cached_property
    def comment_lines(self) -> int:
        """Lines of comments and docstrings."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        comments = sum(token.type == tokenize.COMMENT for token in tokens)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        bodies = [node.body for node in self.nodes if isinstance(node, documented) and node.body]
        first = [body[0] for body in bodies]
        return comments + sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in first
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )


def _depth(statement: ast.stmt) -> int:
    """How many compound statements enclose the deepest statement of this one, itself included. elif adds none."""
    if not isinstance(statement, _NESTING):
        return 0
    bodies = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
    bodies += [part.body for field in ("handlers", "cases") for part in getattr(statement, field, [])]
    depths = [1]
    for body in bodies:
        is_elif = isinstance(statement, ast.If) and body is statement.orelse and [type(s) for s in body] == [ast.If]
        depths += [_depth(child) + (not is_elif) for child in body]
    return max(depths)


def _attributes(node: ast.ClassDef) -> set[str]:
    found = {
        each.attr
        for method in node.body
        if isinstance(method, Definition)
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    if any(mark.startswith("dataclass") and "frozen=True" not in mark for mark in marks):
        found |= {ast.unparse(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
    return found


def imported(nodes: Iterable[ast.AST], modules: Collection[str]) -> set[str]:
    """The modules of the project that the import statements among `nodes` name."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & set(modules)) or {node.module}
    return found & set(modules)


def imports(sources: list[SourceFile]) -> dict[str, set[str]]:
    """The modules that each module imports, also for type checking only."""
    modules = {file.module for file in sources}
    return {file.module: imported(file.nodes, modules) - {file.module} for file in sources}


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The largest sets of modules that all import each other, directly or through others of the set."""
    left, found = {name: set(targets) for name, targets in graph.items()}, []
    while left:
        # Modules that import nothing, or that nothing imports, are in no circle.
        targeted = set().union(*left.values())
        done: Collection[str] = {name for name, targets in left.items() if not targets or name not in targeted}
        if not done:
            name = min(left)
            circle = frozenset(each for each in _reachable(left, name) if name in _reachable(left, each))
            found += [circle] if circle else []
            done = circle or {name}
        left = {name: targets.difference(done) for name, targets in left.items() if name not in done}
    return found


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def files(root: Path) -> list[SourceFile]:
    return [SourceFile(path) for path in sorted(root.rglob("*.py"))]


def _package(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    return parts[1] if parts[0] == "ottla" and len(parts) > 2 else parts[0]


def divide_spark(sources: list[SourceFile]) -> tuple[list[SourceFile], list[SourceFile]]:
    """Return the files of the adapter to private API of Spark, and the other files that use Spark."""
    spark, streams, adapter = (SOURCES / "ottla" / name for name in ("spark", "streams", "spark/internals"))
    using = [file for file in sources if file.path.is_relative_to(spark) or file.path.is_relative_to(streams)]
    inside = [file for file in using if file.path.is_relative_to(adapter)]
    return inside, [file for file in using if not file.path.is_relative_to(adapter)]


def _row(name: str, group: list[SourceFile]) -> str:
    functions = [function for file in group for function in file.functions]
    sizes = [function.lines for function in functions] or [0]
    lines = sum(file.lines for file in group)
    broad = sum(1 for file in group for _ in file.broad_excepts)
    comments = sum(file.comment_lines for file in group)
    return (
        f"{name:14}{len(group):6}{lines:8}{max(file.lines for file in group):9}{len(functions):7}{median(sizes):8.0f}"
        f"{max(sizes):6}{max((f.nesting for f in functions), default=0):8}"
        f"{max((f.parameters for f in functions), default=0):8}"
        f"{max((count for file in group for _, count in file.classes), default=0):8}"
        f"{broad:8}{comments / max(lines, 1):8.0%}"
    )


def main() -> int:
    """Print the table."""
    sources, tests = files(SOURCES), files(TESTS)
    groups: dict[str, list[SourceFile]] = {}
    for file in sources:
        groups.setdefault(_package(file.path), []).append(file)
    print("                                longest          function lines   deepest    most    most  broad comment")
    print("package        files   lines     file  funcs  median   max nesting  params  attrib. excepts   share")
    for name, group in sorted(groups.items()):
        print(_row(name, group))
    print(_row("src", sources))
    print(_row("tests", tests))
    code = sum(file.lines for file in sources)
    print(f"\nTest lines per code line: {sum(file.lines for file in tests) / code:.2f}")
    inside, outside = (sum(1 for file in group for _ in file.private_spark_uses) for group in divide_spark(sources))
    print(f"Uses of private Spark API: {inside} in ottla.spark.internals, {outside} elsewhere")
    broad = sum(1 for file in sources for _ in file.broad_excepts)
    classes = sorted(((count, name) for file in sources for name, count in file.classes), reverse=True)
    large = [f"{name} {count}" for count, name in classes if count > MOST_ATTRIBUTES]
    print(f"Classes with more than {MOST_ATTRIBUTES} attributes: {len(large)} ({', '.join(large)})")
    found = circles(imports(sources))
    print(f"Circles of imports, with imports for type checking: {len(found)}")
    for circle in sorted(found, key=min):
        print(f"  {', '.join(sorted(circle))}")
    print(f"Broad excepts per 1,000 lines: {1000 * broad / code:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
