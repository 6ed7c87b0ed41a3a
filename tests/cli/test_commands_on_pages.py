"""Each `ottla` command and each Python example on a page exists: its words, options and imported names."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli.commands import DefaultGroup
from ottla.cli.root import ROOT as COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?:\$ |    |.*\| )?(ottla [a-z].*)$")
# The end of a command in a shell: a comment, a pipe, another command.
END = re.compile(r"\s+#.*$|\s*(?:\||;|&&|&|2?>>?)\s.*$|\s+2>.*$")


def commands_of(page: Path) -> Iterator[str]:
    """Return the commands in blocks of a shell and in indented blocks."""
    text = page.read_text()
    shell = [body for kind, body in FENCE.findall(text) if kind in ("console", "bash", "sh")]
    indented = [line for line in FENCE.sub("", text).splitlines() if line.startswith("    ")]
    joined = re.sub(r"\\\n\s*", "", "\n".join([*shell, *indented]))
    for line in joined.splitlines():
        if found := INDENTED.match(line):
            yield END.sub("", found.group(1))


def problem_of(line: str) -> str | None:
    """Return the part of a command that does not exist, or None."""
    words = shlex.split(line)[1:]
    command: click.Command = COMMANDS
    path = "ottla"
    while isinstance(command, click.Group):
        if isinstance(command, DefaultGroup) and (not words or words[0].startswith("-")):
            words = [command.default, *words]
        if not words or words[0].startswith("-"):
            break
        name, words = words[0], words[1:]
        found = command.get_command(click.Context(command), name)
        if found is None:
            return f"{path} {name}"
        command, path = found, f"{path} {name}"
    try:
        command.make_parser(click.Context(command)).parse_args(words)
    except click.UsageError as error:
        return f"{path}: {error.format_message()}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    assert {line: problem for line in commands_of(page) if (problem := problem_of(line))} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_on_a_page_compiles_and_imports_names_that_exist(page: Path) -> None:
    missing = []
    for kind, body in FENCE.findall(page.read_text()):
        if kind != "python":
            continue
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ottla":
                module = importlib.import_module(node.module or "")
                missing += [f"{node.module}.{name.name}" for name in node.names if not hasattr(module, name.name)]
    assert missing == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ottla topic create orders --partitions 3", None),
        ("ottla topic make orders", "ottla topic make"),
        ("ottla topic create orders --shards 3", "ottla topic create: No such option"),
    ],
)
def test_wrong_commands_are_found(line: str, problem: str | None) -> None:
    found = problem_of(line)
    assert found is None if problem is None else found is not None and found.startswith(problem)


def test_commands_are_found_in_all_kinds_of_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ ottla up --data ./data\nottla is up\n```\n\n    ottla top   # live\n\n"
        "```sh\necho a | ottla produce b\n```\n"
    )
    assert list(commands_of(page)) == ["ottla up --data ./data", "ottla is up", "ottla produce b", "ottla top"]
    assert sum(len(list(commands_of(each))) for each in PAGES) > 150
