"""Reads a scenario, runs its commands, and returns the text with the output of this run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.scenarios.broker import BrokerScenario
from tests.scenarios.cli import CliScenario
from tests.scenarios.consumer import ConsumerScenario
from tests.scenarios.group import GroupScenario
from tests.scenarios.raft import RaftScenario
from tests.scenarios.share import ShareScenario
from tests.scenarios.stream import StreamScenario
from tests.scenarios.streams import StreamsScenario
from tests.scenarios.transaction import TransactionScenario

DIRECTORY = Path(__file__).parent
SEPARATOR = "----"


class Command(NamedTuple):
    """`verb argument... name=value...`"""

    verb: str
    arguments: list[str]
    options: dict[str, str]


class Interpreter(Protocol):
    """Runs the commands of one scenario."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        """Run a command; returns the lines of its output."""
        ...

    def close(self) -> None: ...


def interpreter(path: Path, directory: Path) -> Interpreter:
    """The interpreter that the file's name selects; `directory` is empty and may be used."""
    match path.name.partition("_")[0]:
        case "group":
            return GroupScenario()
        case "consumer":
            return ConsumerScenario()
        case "raft":
            return RaftScenario()
        case "transaction":
            return TransactionScenario()
        case "stream":
            return StreamScenario()
        case "streams":
            return StreamsScenario()
        case "share":
            return ShareScenario(directory)
        case "broker":
            return BrokerScenario(directory)
        case "cli":
            return CliScenario(directory)
    raise ValueError(f"{path.name} must begin with the name of an interpreter, such as group_ or cli_")


def scenarios() -> list[Path]:
    return sorted(DIRECTORY.glob("*.txt"))


def parse(line: str) -> Command:
    verb, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Command(verb, [word for word in words if "=" not in word], options)


def replay(path: Path, directory: Path) -> str:
    """Run a scenario; returns its text with the present output of each command."""
    text = path.read_text()
    runner = interpreter(path, directory)
    try:
        steps = [_replay_step(runner, step) for step in text.strip().split("\n\n")]
    finally:
        runner.close()
    return "\n\n".join(steps) + "\n"


def _replay_step(runner: Interpreter, step: str) -> str:
    lines = step.split("\n")
    comments = [line for line in lines if line.startswith("#")]
    commands = [line for line in lines if not line.startswith("#")]
    if not commands:
        return "\n".join(comments)
    if len(commands) < 2 or commands[1] != SEPARATOR:
        raise ValueError(f"the line after {commands[0]!r} must be {SEPARATOR}")
    line = commands[0]
    if isinstance(runner, CliScenario) and line.startswith("ottla "):
        output = runner.run_words(line)
    elif isinstance(runner, CliScenario) and line.startswith("sorted ottla "):
        output = sorted(runner.run_words(line.removeprefix("sorted ")))
    elif isinstance(runner, CliScenario) and line.startswith("file "):
        output = runner.write_file(line)
    else:
        output = runner.run(*parse(line))
    return "\n".join([*comments, line, SEPARATOR, *output])
