"""The click command `ottla`. The module of a subcommand is imported only if that subcommand is called.

Each subcommand is a module with a `COMMAND` and a row in `GROUPS`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from ottla import __version__
from ottla.cli import late
from ottla.cli.commands import Group, Option
from ottla.common.failure import Failure

# Heading -> name of the command and its module -> one line for --help.
GROUPS: dict[str, dict[str, str]] = {
    "Broker": {
        "up": "start a broker, or a cluster on this machine",
        "format": "format a data directory for a cluster and node",
        "service": "run a broker as a systemd service",
        "security": "create certificates and settings, manage users and rights",
    },
    "Records": {
        "produce": "send records: lines, files, JSON",
        "consume": "print the records of topics",
        "tail": "show the last records, then new ones",
        "log": "read segments, indices and checkpoints without a broker",
        "bench": "measure producing, consuming and end-to-end latency",
    },
    "Topics and groups": {
        "topic": "create, list, describe, alter and delete topics",
        "group": "list, describe, reset and delete groups, show their lag",
        "dlq": "list and show dead letters, write them back to their topics",
        "txn": "list, describe and abort transactions, find hanging ones",
        "config": "show and change settings of topics, brokers, groups",
        "cluster": "show brokers, partitions in trouble, quorum, moves",
        "top": "show the busiest topics, hot partitions, and lag",
        "check": "check whether a cluster is ready for production",
        "health": "check one node: is it alive, is it ready, may it stop?",
        "mirror": "copy topics of another cluster, promote the copy",
        "broker": "drain, replace and remove brokers of a cluster",
    },
    "Schemas and HTTP": {
        "schema": "list, register, check, compare and delete schemas",
        "registry": "run the schema registry",
        "rest": "serve topics over HTTP with Confluent's REST APIs",
        "console": "run a web console for a cluster",
        "mcp": "serve read-only tools over a cluster to an assistant",
    },
    "Pipelines": {
        "stream": "run, observe and reset pipelines on Spark",
        "connect": "run Connect workers, create and observe connectors",
    },
    "Configuration": {
        "profile": "manage the addresses and settings of several clusters",
        "completion": "print the completion script for bash, zsh or fish",
        "version": "show the versions of Ottla and its libraries",
    },
}
# The module `connect` has the connection of all commands.
MODULES = {"connect": "connectors"}
SUMMARIES = {name: summary for rows in GROUPS.values() for name, summary in rows.items()}

EXAMPLES = """
ottla up                                      a broker on 127.0.0.1:9092
ottla topic create orders --partitions 6
echo hello | ottla produce orders
ottla tail orders                             Ctrl-C ends it
ottla topic describe orders
ottla consume orders -e --group billing
ottla group lag billing --watch
ottla group reset billing --to-datetime now-1h
ottla topic list -b 127.0.0.1:9092 --json | jq -r .topic
"""


class Root(Group):
    """All commands, under their headings."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return command(cmd_name) if cmd_name in SUMMARIES else None

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        rows = {heading: list(rows.items()) for heading, rows in GROUPS.items()}
        return rows | self.options_by_section(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        del ctx
        return [CompletionItem(name, help=text) for name, text in SUMMARIES.items() if name.startswith(incomplete)]


def command(name: str) -> click.Command:
    """Import the command of this name."""
    found = importlib.import_module(f"ottla.cli.{MODULES.get(name, name)}").COMMAND
    assert isinstance(found, click.Command)
    return found


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"ottla {__version__}")
        ctx.exit()


ROOT = Root(
    "A Kafka-compatible broker that starts quickly, and tools for it and for any Kafka cluster.\n\n"
    "`ottla COMMAND --help` shows the options and examples of a command.",
    EXAMPLES,
    [Option("--version", "show the version", is_eager=True, expose_value=False, callback=_show_version)],
    metavar="COMMAND",
)


def run(words: Sequence[str]) -> int:
    """Run the command of these words; returns the exit code. Raises Failure for invalid words."""
    instruction = os.environ.get("_OTTLA_COMPLETE")
    if instruction:
        return late.completion.complete(ROOT, instruction)
    try:
        if not words:
            click.echo(ROOT.get_help(click.Context(ROOT, info_name="ottla")))
            return 2
        with ROOT.make_context("ottla", list(words)) as context:
            return int(ROOT.invoke(context))
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "ottla"
        raise Failure(error.format_message(), f"`{path} --help` shows the usage.", exit_code=2, command=path) from None
