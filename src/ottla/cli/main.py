"""`ottla COMMAND ...`: finds the command's file and runs it.

A command is a module with `add_arguments(parser)` and `run(arguments) -> int` (the exit code), and a row here. Modules
are imported only when their command is chosen, so that `ottla --help` stays quick. Exit codes: 0 done, 1 it failed,
2 it was asked for wrongly (arguments, settings), 130 interrupted.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.terminal import Failure, Style

# name -> (module, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("ottla.cli.up", "start a broker here and now; formats its directory first if that is new"),
    "format": ("ottla.cli.format", "give a data directory its cluster and node, as `kafka-storage format` does"),
    "version": ("ottla.cli.version", "show the versions of Ottla and of what it runs on"),
}

EPILOG = """\
examples:
  ottla up                             a broker on 127.0.0.1:9092, data in ~/.local/share/ottla
  ottla up --data ./data --listen 0.0.0.0:9092
  ottla up --config server.properties -X num.partitions=6

`ottla COMMAND --help` tells more.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in words if not word.startswith("-")), None)
    options = _parser(chosen).parse_args(words)
    if options.command is None:
        _parser(None).print_help()
        return 2
    try:
        return int(importlib.import_module(COMMANDS[options.command][0]).run(options))
    except Failure as failure:
        style = Style.of(sys.stderr)
        print(f"{style.red('ottla: ' + failure.problem)}", file=sys.stderr)
        for line in failure.advice:
            print(f"       {line}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return 130


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="A Kafka-compatible broker that is light to start.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog="ottla")
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name == chosen:
            implementation = importlib.import_module(module)
            command.description = implementation.__doc__
            implementation.add_arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
