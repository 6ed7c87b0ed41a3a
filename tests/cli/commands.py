"""The commands of `ottla` for tests: their help pages, and the options that their words are parsed to."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ottla.cli.commands import Options
from ottla.cli.root import ROOT, SUMMARIES, command


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Each command by its name, followed by its verbs as `topic create`."""
    for name in SUMMARIES:
        found = command(name)
        yield name, found
        if isinstance(found, click.Group):
            yield from ((f"{name} {verb}", each) for verb, each in found.commands.items())


def help_page(path: str, found: click.Command) -> str:
    context = click.Context(found, info_name=f"ottla {path}".rstrip(), **found.context_settings)
    return found.get_help(context)


def options_of(*words: str) -> Options:
    """Parse the words after `ottla` without running the command."""
    found: click.Command = ROOT
    rest = list(words)
    while isinstance(found, click.Group):
        name = rest.pop(0)
        below = found.get_command(click.Context(found), name)
        assert below is not None, name
        found = below
    return Options(**found.make_context("ottla", rest).params)
