"""A reset that crashes at any step is completed by the next one; without Spark."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer, TopicPartition
from ottla.common import units
from ottla.streams.checkpoint_files import PROGRAM_FILE, START_FILE, StoredProgram, load_groups, load_starts
from ottla.streams.observing import read_statuses
from ottla.streams.publishing import Publisher
from ottla.streams.status import Run, Status

if TYPE_CHECKING:
    from ottla.testing import Ottla

ORDERS = TopicPartition("orders", 0)
MOST_STEPS = 40
STEPS = (
    (shutil, "rmtree"), (Path, "rename"), (Path, "mkdir"), (os, "fsync"),
    (Admin, "alter_group_offsets"), (Admin, "delete_group"), (Producer, "send"),
)  # fmt: skip


class Crash(BaseException):
    """The end of the process, which no handler of exceptions sees."""


class Steps:
    """The calls that change something. Each one before `crash_at` is made, and then the process crashes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crash_at: int | None = None
        self.made = 0
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._counting(getattr(owner, name), name))

    def _counting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            # The broker of the test has threads of its own.
            if self.crash_at is not None and threading.current_thread() is threading.main_thread():
                if self.made == self.crash_at:
                    if name == "rmtree":
                        # In the middle, when the description of the program is deleted.
                        (arguments[0] / PROGRAM_FILE).unlink(missing_ok=True)
                    raise Crash
                self.made += 1
            return function(*arguments, **named)

        return call


def with_pipeline(ottla: Ottla, admin: Admin, directory: Path, name: str, *, has_statuses: bool) -> Path:
    """A pipeline that has run: with two queries, a table, offsets, and a checkpoint."""
    checkpoint = directory / name
    (checkpoint / name / "offsets").mkdir(parents=True)
    queries = (name, f"{name}.totals")
    (checkpoint / PROGRAM_FILE).write_text(StoredProgram(1, {"rows": "orders"}, dict.fromkeys(queries, ())).dumps())
    for group in (*queries, f"ottla.table.{name}.{uuid4()}", f"ottla.table.{name}.{uuid4()}"):
        admin.alter_group_offsets(group, {ORDERS: 3})
    if has_statuses:
        publisher = Publisher({"bootstrap.servers": ottla.bootstrap})
        for query in queries:
            run = Run(name, query, checkpoint=str(checkpoint), streams={"rows": "orders"}, outputs=["invoices"])
            publisher.offer(Status(run, "stopped", units.now_ms()))
        publisher.close()
    return checkpoint


def groups_of(admin: Admin, name: str) -> dict[str, int]:
    found = [each.group_id for each in admin.list_groups() if name in each.group_id]
    return {group: admin.list_group_offsets(group)[ORDERS].offset for group in sorted(found)}


@pytest.mark.parametrize("has_statuses", [True, False], ids=["with statuses", "without"])
@pytest.mark.parametrize("target", [(), ("--to-datetime", "2100-01-01")], ids=["beginning", "offsets"])
def test_reset_that_crashed_at_any_step_is_completed_by_the_next_one(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_statuses: bool, target: tuple[str, ...]
) -> None:
    ottla.topic("orders")
    ottla.produce("orders", "a", "b", "c", "d", "e")
    steps = Steps(monkeypatch)
    with Admin(ottla.bootstrap) as admin:
        others = f"ottla.table.other.p.{uuid4()}"
        admin.alter_group_offsets(others, {ORDERS: 2})
        for crash_at in range(MOST_STEPS):
            directory = tmp_path / str(crash_at)
            name = f"p{crash_at}x"
            checkpoint = with_pipeline(ottla, admin, directory, name, has_statuses=has_statuses)
            reset = partial(main, ["stream", "reset", name, "--yes", "-b", ottla.bootstrap, *target])
            if not has_statuses:
                reset.args[0].extend(["--checkpoints", str(directory)])
            steps.made, steps.crash_at = 0, crash_at
            try:
                assert reset() == 0
                is_complete = True
            except Crash:
                is_complete = False
            steps.crash_at = None
            if not is_complete:
                assert reset() == 0
            assert [each.name for each in directory.iterdir()] == ([name] if target else [])
            if target:
                text = (checkpoint / START_FILE).read_text()
                assert [each.name for each in checkpoint.iterdir()] == [START_FILE]
                assert (load_starts(text), load_groups(text)) == ({"orders": {"0": 5}}, [name, f"{name}.totals"])
            assert groups_of(admin, name) == ({name: 5, f"{name}.totals": 5} if target else {})
            assert not [
                each for each in read_statuses({"bootstrap.servers": ottla.bootstrap}) if each.run.pipeline == name
            ]
            if is_complete:
                break
        assert is_complete
        print("STEPS", crash_at)
        assert groups_of(admin, others) == {others: 2}
