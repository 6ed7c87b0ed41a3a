"""A standalone worker fences the tasks of its earlier runs, also those that it does not have any more (KIP-618)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import TransactionState
from ottla.testing import Ottla
from tests.connect.cluster.counting import check_counts
from tests.connect.cluster.workers import COUNTING, committed
from tests.connect.rest.worker_process import WorkerProcess

pytestmark = pytest.mark.timeout(120)
DEADLINE_S = 60.0


def until(holds: Callable[[], bool], about: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, about()
        time.sleep(0.05)


def words(ottla: Ottla, path: Path, tasks: int) -> tuple[str, ...]:
    path.write_text(
        f"name=count\nconnector.class={COUNTING}\ntopic=counts\ntasks.max={tasks}\n"
        "value.converter=JsonConverter\nvalue.converter.schemas.enable=false\ntransaction.boundary=interval\ntransaction.boundary.interval.ms=300\n"
    )
    # Nothing but fencing ends the open transactions of lost tasks.
    return ("run", str(path), "-b", ottla.bootstrap, "--listen", "127.0.0.1:0",
            "-X", "producer.transaction.timeout.ms=600000")  # fmt: skip


def open_ids(ottla: Ottla) -> set[str]:
    with Admin(ottla.bootstrap) as admin:
        return {each.transactional_id for each in admin.list_transactions(states=[TransactionState.ONGOING])}


def test_open_transactions_of_tasks_that_are_not_there_any_more_are_aborted(ottla: Ottla, tmp_path: Path) -> None:
    """The first run has three tasks and is killed within transactions; the second one has one task."""
    surplus = {"connect-standalone-count-1", "connect-standalone-count-2"}
    with WorkerProcess(tmp_path / "first", *words(ottla, tmp_path / "three.properties", 3)) as first:
        until(lambda: len(committed(ottla.bootstrap, "counts")) > 50, first.log)
        until(lambda: surplus <= open_ids(ottla), first.log)
        first.stop(signal.SIGKILL)
    until(lambda: surplus <= open_ids(ottla), lambda: open_ids(ottla))
    with WorkerProcess(tmp_path / "second", *words(ottla, tmp_path / "one.properties", 1)) as second:
        before = len(committed(ottla.bootstrap, "counts"))
        until(lambda: not surplus & open_ids(ottla), second.log)
        until(lambda: len(committed(ottla.bootstrap, "counts")) > before + 50, second.log)
        assert second.stop() == 0
    counts = check_counts(committed(ottla.bootstrap, "counts"))
    assert min(counts.values()) > 0
