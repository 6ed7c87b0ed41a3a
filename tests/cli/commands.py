"""The commands of `ottla` for tests: their help pages, the options that their words are parsed to, and their output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import click

from ottla.cli.commands import DefaultGroup, Options
from ottla.cli.main import main
from ottla.cli.root import ROOT, SUMMARIES, command
from tests import deadlines

# A command that needs no shell but `shlex.split`, and no process of its own.
SIMPLE = re.compile(r"ottla (?!up\b)[^|<>$;&*?{}~`]*")


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Each command by its name, followed by its verbs as `topic create`."""
    for name in SUMMARIES:
        yield from _with_verbs(name, command(name))


def _with_verbs(path: str, found: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, found
    if isinstance(found, click.Group):
        for verb, each in found.commands.items():
            yield from _with_verbs(f"{path} {verb}", each)


def help_page(path: str, found: click.Command) -> str:
    context = click.Context(found, info_name=f"ottla {path}".rstrip(), **found.context_settings)
    return found.get_help(context)


def options_of(*words: str) -> Options:
    """Parse the words after `ottla` without running the command."""
    found: click.Command = ROOT
    rest = list(words)
    while isinstance(found, click.Group):
        is_default = isinstance(found, DefaultGroup) and (not rest or rest[0].startswith("-"))
        name = found.default if is_default else rest.pop(0)  # type: ignore[attr-defined]
        below = found.get_command(click.Context(found), name)
        assert below is not None, name
        found = below
    return Options(**found.make_context("ottla", rest).params)


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def run_with_pipes(*words: str, feed: bytes = b"") -> Done:
    """Run a command. Its standard streams are pipes, as file descriptors and as Python's objects."""
    read_feed, write_feed = os.pipe()
    ends = [os.pipe(), os.pipe()]
    deadlines.in_threads([partial(_write_all, write_feed, feed)], "feed of a command")
    printed = deadlines.in_threads([partial(_read_all, reading) for reading, _ in ends], "output of a command")
    with _streams_at(read_feed, *(writing for _, writing in ends)):
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    out, err = deadlines.results(printed, f"the output of {words}; a process that it started may still have it open")
    return Done(code, out, err.decode())


@contextlib.contextmanager
def _streams_at(*descriptors: int) -> Iterator[None]:
    """Replace standard input, output and error by these descriptors, which are closed afterwards."""
    objects = sys.stdin, sys.stdout, sys.stderr
    saved = [os.dup(number) for number in range(3)]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = objects
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _write_all(descriptor: int, feed: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as file:
        file.write(feed)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()
