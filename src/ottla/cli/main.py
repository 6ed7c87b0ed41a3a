"""`ottla COMMAND ...`: finds the command's file and runs it.

A command is a module with `add_arguments(parser)` and `run(arguments) -> int` (the exit code), an optional `EXAMPLES`
for the end of its --help, and a row here. Modules are imported only when their command is chosen, so that
`ottla --help` stays quick. Exit codes: 0 done, 1 it failed, 2 it was asked for wrongly (arguments, settings),
130 interrupted, 141 nobody read on.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.parsing import Parser, indented
from ottla.cli.terminal import Failure, Style, open_closed_streams, quiet_pipe

# heading -> name -> (module, one line for --help)
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "a broker of your own": {
        "up": ("ottla.cli.up", "start a broker here and now"),
        "format": ("ottla.cli.format", "give a data directory its cluster and node"),
    },
    "records": {
        "produce": ("ottla.cli.produce", "send records: lines, files, JSON"),
        "consume": ("ottla.cli.consume", "print records from anywhere to anywhere"),
        "tail": ("ottla.cli.tail", "show the last records, then what comes"),
        "log": ("ottla.cli.log", "read segments, indices and checkpoints without a broker"),
        "bench": ("ottla.cli.bench", "measure producing, consuming and the way through"),
    },
    "topics and groups": {
        "topic": ("ottla.cli.topic", "create, list, describe, alter and delete topics"),
        "group": ("ottla.cli.group", "list, describe, reset and delete groups, show their lag"),
        "config": ("ottla.cli.config", "show and change settings of topics, brokers, groups"),
        "cluster": ("ottla.cli.cluster", "show brokers, features, quorum, log directories"),
    },
    "this command": {
        "profile": ("ottla.cli.profile", "keep the addresses and settings of several clusters"),
        "completion": ("ottla.cli.completion", "print what makes bash, zsh or fish complete `ottla`"),
        "version": ("ottla.cli.version", "show the versions of Ottla and of what it runs on"),
    },
}
COMMANDS: dict[str, tuple[str, str]] = {name: row for rows in GROUPS.values() for name, row in rows.items()}

EPILOG = """\
examples:
  ottla up                                      a broker on 127.0.0.1:9092
  ottla topic create orders --partitions 6
  echo hello | ottla produce orders
  ottla tail orders                             Ctrl-C ends it
  ottla topic describe orders
  ottla consume orders -e --group billing
  ottla group lag billing --watch
  ottla group reset billing --to-datetime now-1h
  ottla topic list -b 127.0.0.1:9092 --json | jq -r .topic

`ottla COMMAND --help` tells more. Every command works with any Kafka.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    open_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    chosen = next((word for word in words if not word.startswith("-")), None)
    with quiet_pipe():
        try:
            options = _parse(words, chosen)
            if options.command is None:
                parser_for(None).print_help()
                return 2
            return int(importlib.import_module(COMMANDS[options.command][0]).run(options))
        except Failure as failure:
            return _tell(failure)
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            clients = sys.modules.get("ottla.clients.errors")
            if clients is None or not isinstance(error, clients.ClientError):
                raise
            from ottla.cli.failures import explain

            return _tell(explain(error))


def _parse(words: list[str], chosen: str | None) -> argparse.Namespace:
    gc.disable()  # what imports create stays: there is nothing to find
    try:
        return parser_for(chosen).parse_args(words)
    finally:
        gc.enable()


def _tell(failure: Failure) -> int:
    sys.stdout.flush()  # what was done before it comes first
    print(Style.of(sys.stderr).red(f"ottla: {failure.problem}"), file=sys.stderr)
    for line in failure.advice:
        print(f"       {line}", file=sys.stderr)
    return failure.exit_code


def parser_for(chosen: str | None) -> Parser:
    """The parser with the chosen command alone, since each takes half a millisecond; with all if there is no such."""
    parser = Parser(
        prog="ottla",
        description="A Kafka-compatible broker that is light to start, and the tools for it and for any Kafka.",
        epilog=EPILOG,
        usage="ottla COMMAND [OPTION ...]",
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="ottla", help=argparse.SUPPRESS)
    for heading, rows in GROUPS.items():
        section = parser.add_argument_group(heading)
        for name, (module, summary) in rows.items():
            # A heading of its own for each group, which argparse has for arguments but not for subcommands.
            section._group_actions.append(_Row(name, summary))  # noqa: SLF001
            if chosen in COMMANDS and name != chosen:
                continue
            command = commands.add_parser(name)
            if name == chosen:
                implementation = importlib.import_module(module)
                command.description = implementation.__doc__
                examples = getattr(implementation, "EXAMPLES", "")
                command.epilog = f"examples:\n{indented(examples)}" if examples else None
                implementation.add_arguments(command)
    return parser


class _Row(argparse.Action):
    """A line of --help about a command."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(option_strings=[], dest=name, nargs=0, metavar=name, help=summary)

    def __call__(self, *_: object) -> None:
        raise AssertionError("it is never parsed")


if __name__ == "__main__":
    sys.exit(main())
