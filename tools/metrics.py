"""Prints the shape of the code, package by package: `make metrics`.

Files and lines are counted as they are, with comments and blank lines. A function's parameters are counted without
`self` and `cls`; nesting is the number of compound statements around its deepest statement. A broad except catches
Exception or BaseException and does not end with `raise`. `tests/unit/test_tidy.py` has the limits. Uses nothing but the
standard library.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
TESTS = ROOT / "tests"

Definition = ast.FunctionDef | ast.AsyncFunctionDef
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


def files(root: Path) -> list[SourceFile]:
    return [SourceFile(path) for path in sorted(root.rglob("*.py"))]


def _package(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    return parts[1] if parts[0] == "ottla" and len(parts) > 2 else parts[0]


def _row(name: str, group: list[SourceFile]) -> str:
    functions = [function for file in group for function in file.functions]
    sizes = [function.lines for function in functions] or [0]
    lines = sum(file.lines for file in group)
    broad = sum(1 for file in group for _ in file.broad_excepts)
    comments = sum(file.comment_lines for file in group)
    return (
        f"{name:14}{len(group):6}{lines:8}{max(file.lines for file in group):9}{len(functions):7}{median(sizes):8.0f}"
        f"{max(sizes):6}{max((f.nesting for f in functions), default=0):8}"
        f"{max((f.parameters for f in functions), default=0):8}{broad:7}{comments / max(lines, 1):9.0%}"
    )


def main() -> int:
    """Print the table."""
    sources, tests = files(SOURCES), files(TESTS)
    groups: dict[str, list[SourceFile]] = {}
    for file in sources:
        groups.setdefault(_package(file.path), []).append(file)
    print("                                longest          function lines   deepest    most  broad   comment")
    print("package        files   lines     file  funcs  median   max nesting  params excepts    share")
    for name, group in sorted(groups.items()):
        print(_row(name, group))
    print(_row("src", sources))
    print(_row("tests", tests))
    code = sum(file.lines for file in sources)
    print(f"\nTest lines per code line: {sum(file.lines for file in tests) / code:.2f}")
    broad = sum(1 for file in sources for _ in file.broad_excepts)
    print(f"Broad excepts per 1,000 lines: {1000 * broad / code:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
