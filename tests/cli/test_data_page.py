"""The examples of docs/cli-data.md: each command is run in a shell, and its output must equal the page's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.clients import Admin
from tests.conftest import RunningBroker

from .commands import SIMPLE, run_with_pipes

PAGE = Path(__file__).parents[2] / "docs" / "cli-data.md"
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)


def output_of(command: str) -> str:
    """Run a command, with a shell only if it needs one."""
    if SIMPLE.fullmatch(command):
        done = run_with_pipes(*shlex.split(command)[1:])
        assert done.code == 0, f"{command}\n{done.err}"
        return done.out.decode()
    run = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True
    )
    return run.stdout.decode()


@pytest.mark.both
def test_examples_of_the_page_print_the_output_of_the_page(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla.cli.main "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    assert len(BLOCKS) == 5
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        existing = {row.name for row in admin.list_topics()} & {"orders", "copy"}
        if existing:
            admin.delete_topics(existing)
        try:
            for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(BLOCKS), re.MULTILINE):
                printed = output_of(command)
                pattern = re.escape(wanted).replace(re.escape("..."), ".*")
                assert re.fullmatch(pattern, printed), f"{command}\n{printed}"
        finally:
            admin.delete_topics([row.name for row in admin.list_topics() if row.name in {"orders", "copy"}])
