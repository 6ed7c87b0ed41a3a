"""The examples that `ottla` prints are run in a shell, exactly as printed, on a new broker.

The examples of all help pages run in one session, in the order of `ottla --help`, so an example may use the topics of
earlier ones. Only the address differs: 127.0.0.1:9092 is replaced by the broker's address.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from ottla.cli.root import ROOT
from ottla.config.authorization import STANDARD
from tests.open_transactions import hang, open_transaction
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.registry.stand_in import StandIn

from .commands import SIMPLE, all_commands, help_page, run_with_pipes

README = Path(__file__).parents[2] / "README.md"
SHELLS = ("zsh", "fish")
ENDLESS = re.compile(r"ottla (up\b|tail (?!.* -e)|consume (?!.* (-e|--until|-n)\b)|.* --watch(?! \d))")


class Endless(NamedTuple):
    """A running command that must not end by itself."""

    command: str
    process: subprocess.Popen[str]
    until_s: float

    def stop(self) -> None:
        """Send Ctrl-C at the time `until_s`; the command must run until then, and end then."""
        try:
            _, said = self.process.communicate(timeout=max(0.0, self.until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGINT)
            _, said = self.process.communicate(timeout=30)
        else:
            raise AssertionError(f"$ {self.command}\nends\n{said}")
        assert self.process.returncode in (0, 130, -signal.SIGINT), f"$ {self.command}\n{said}"
        assert "Traceback" not in said, f"$ {self.command}\n{said}"


class Shell:
    """Runs commands in bash, in the directory where the broker was started with `--data ./data`.

    Endless commands run for two seconds beside the following ones, or until the end of the `with` block. A command that
    deletes waits for them: what they show must not be deleted, also if they are slow to start.
    """

    def __init__(self, broker: OttlaProcess) -> None:
        self._broker = broker
        self._endless: list[Endless] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for each in self._endless:
            if kind is None:
                each.stop()
            else:
                os.killpg(each.process.pid, signal.SIGKILL)
                each.process.communicate(timeout=30)

    def run(self, command: str, directory: Path | None = None) -> None:
        """Run a command. It must exit with 0; an endless command must run until Ctrl-C ends it."""
        deletes = re.search(r"\bdelete\b", command) is not None
        for each in list(self._endless):
            share_a_directory = command.startswith("ottla up") and each.command.startswith("ottla up")
            if deletes or share_a_directory or each.until_s <= time.monotonic():
                self._endless.remove(each)
                each.stop()
        typed = command.replace("127.0.0.1:9092", self._broker.bootstrap)
        is_endless = ENDLESS.search(command) is not None
        if not is_endless and SIMPLE.fullmatch(typed):
            self._run_here(typed, directory)
            return
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", typed],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd=directory or self._broker.directory, start_new_session=True,
        )  # fmt: skip
        if is_endless:
            self._endless.append(Endless(command, process, time.monotonic() + 2))
            return
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, said = process.communicate(timeout=30)
            raise AssertionError(f"$ {command}\ndoes not end\n{said}") from None
        assert process.returncode == 0, f"$ {command}\n{said}"
        assert "Traceback" not in said, f"$ {command}\n{said}"

    def _run_here(self, command: str, directory: Path | None) -> None:
        """Run a command in this process, which is faster."""
        with contextlib.chdir(directory or self._broker.directory):
            done = run_with_pipes(*shlex.split(command)[1:])
        assert done.code == 0, f"$ {command}\n{done.err}"


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OttlaProcess]:
    """A new broker, and an environment that contains only its address."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla.cli.main "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    if not shutil.which("jq"):
        (tmp_path / "jq").write_text("#!/bin/sh\nexec cat\n")
        (tmp_path / "jq").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    # The examples of `ottla security acl` need an authorizer; their user may do everything.
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with ForkedOttla(tmp_path / "broker", settings) as started:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", started.bootstrap)
        yield started


def examples_of(text: str) -> list[str]:
    """The commands of a help page, without the explanations beside them."""
    block = text.partition("examples:\n")[2].partition("\n\n")[0]
    return [re.split(r" {2,}", line.strip())[0] for line in block.splitlines()]


def help_texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Each command with its help page, followed by the help pages of its verbs."""
    monkeypatch.setenv("COLUMNS", "100")
    yield "", help_page("", ROOT)
    for path, command in all_commands():
        yield path.split()[0], help_page(path, command)


def banner(fresh: OttlaProcess) -> list[str]:
    """The commands that `ottla up` prints."""
    text = (fresh.directory / "stdout.log").read_text()
    return re.findall(r"^  \w+ {2,}(.*ottla .*)$", text, re.MULTILINE)


def can_run(command: str) -> bool:
    """Whether the example can run on this machine."""
    if command.startswith("ottla up") and "127.0.0.1:0" not in command and "./data" not in command:
        return False  # port 9092 may be in use
    if "--brokers" in command or command.startswith("ottla broker") or "topic reassign" in command:
        return False  # they need several brokers: see tests/cluster
    if command.startswith(("ottla up", "ottla format")) and "--config" in command:
        return False  # the file of a node of a cluster: see tests/cluster
    if command.startswith("ottla stream"):
        return False  # it needs a program and Spark: see tests/streams
    if command.startswith("ottla connect"):
        return False  # they need a worker: see tests/connect/rest/test_commands.py
    if command.startswith(("ottla registry serve", "ottla rest serve", "ottla console")):
        return False  # their ports may be in use: see tests/registry, tests/rest and tests/console
    if command.startswith("ottla mcp"):
        return False  # an assistant starts it: see tests/mcp_server
    if command.startswith("ottla topic delete-records"):
        return False  # it needs records at this position: see test_topic.py
    if command.startswith("ottla top --by"):
        return False  # it needs metrics endpoints: see test_top.py
    if command.startswith("ottla group skip"):
        return False  # it needs a group at this position: see test_group_skip.py
    if command.startswith(("ottla dlq show", "ottla dlq redrive")):
        return False  # they need dead letters: see test_dlq.py
    if command.startswith("ottla mirror"):
        return False  # they need two clusters: see test_mirror.py
    if command.startswith("ottla security token"):
        return False  # it needs a log-in: see tests/clients/test_security_token_command.py
    if "--arrow" in command and importlib.util.find_spec("pyarrow") is None:
        return False
    return not any(f"completion {shell}" in command for shell in SHELLS)


def test_examples_of_the_start_message_work(fresh: OttlaProcess) -> None:
    commands = banner(fresh)
    assert commands[0].startswith("echo hello | ottla produce")
    assert len(commands) == 3
    with Shell(fresh) as shell:
        for command in commands:
            shell.run(command)
    fresh.assert_no_traceback()


@pytest.mark.parametrize("source", ["ottla --help", "README.md", "ottla produce --help", "ottla bench --help"])
def test_first_example_works_on_a_fresh_broker(
    source: str, fresh: OttlaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "README.md":
        commands = re.findall(r"^\$ (.*)$", README.read_text(), re.MULTILINE)
    else:
        wanted = source.removeprefix("ottla ").removesuffix("--help").strip()
        commands = [c for name, text in help_texts(monkeypatch) if name == wanted for c in examples_of(text)]
    first = next(c for c in commands if "ottla " in c and not c.startswith("ottla up"))
    with Shell(fresh) as shell:
        shell.run(first)


@contextlib.contextmanager
def registry(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry with three versions of a schema, and files with schemas, for the examples of `ottla schema`."""
    fields = [{"name": name, "type": "long", "default": 0} for name in ("id", "count", "price")]
    with StandIn() as running:
        for count in (1, 2, 3):
            text = json.dumps({"type": "record", "name": "Order", "fields": fields[:count]})
            running.register("orders-value", {"schema": text})
        (directory / "order.avsc").write_text(text)
        (directory / "order.proto").write_text('syntax = "proto3"; import "item.proto"; message Order {}')
        monkeypatch.setenv("OTTLA_REGISTRY", running.url)
        yield


@pytest.mark.long
@pytest.mark.timeout(300)  # more than a hundred processes, one after another
def test_all_examples_work_in_order(fresh: OttlaProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    with Shell(fresh) as shell, contextlib.ExitStack() as producers:
        (fresh.directory / "secret.txt").write_text("a password for the examples of `ottla security`\n")
        shell.run("ottla topic create invoices")  # the examples of `ottla txn` show transactions in this topic
        hang(fresh.bootstrap, "invoices")
        producers.enter_context(registry(fresh.directory, monkeypatch))
        producers.callback(open_transaction(fresh.bootstrap, "billing-1", "invoices").close, 1)
        for name, text in help_texts(monkeypatch):
            directory = None
            if name in ("up", "format"):  # these commands create a data directory
                directory = tmp_path / name
                directory.mkdir()
            for command in filter(can_run, examples_of(text)):
                is_free = command.startswith("ottla up") and "--listen" not in command
                shell.run(command + (" --listen 127.0.0.1:0" if is_free else ""), directory)
                count += 1
    assert count > 70


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_examples_work_in_their_shell(
    shell: str, fresh: OttlaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = [c for _, text in help_texts(monkeypatch) for c in examples_of(text) if f"completion {shell}" in c]
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    before = "autoload -U compinit && compinit -u; " if shell == "zsh" else ""
    subprocess.run([shell, "-c", before + command], check=True, timeout=30, stdin=subprocess.DEVNULL)
