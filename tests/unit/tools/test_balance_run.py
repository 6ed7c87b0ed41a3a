"""The file of a balance run, and which of its moves can be continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients.admin import Reassignment
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.balance_run import Measured, Run, alone, forget, load, path_of, remaining, save
from ottla.tools.admin.placement import Target
from ottla.tools.admin.throttle import Throttle

NAMES = ("done", "moving", "waiting", "deleted", "elsewhere", "down")
DONE, MOVING, WAITING, DELETED, ELSEWHERE, DOWN = (TopicPartition(name, 0) for name in NAMES)
RUN = Run(
    {each: [1] for each in (DONE, WAITING, MOVING, DELETED, ELSEWHERE, DOWN)},
    {each: [2] for each in (DONE, WAITING, MOVING, DELETED, ELSEWHERE)} | {DOWN: [9]},
    Throttle(1000, {1: {"rate": None}, 2: {"rate": "7"}}, {"t": {"replicas": ["0:1"]}}),
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_run_is_read_as_it_was_written() -> None:
    assert load("a/../b") is None
    with alone("a/../b"):
        save("a/../b", RUN)
    assert load("a/../b") == RUN
    assert load("other") is None
    forget("a/../b")
    assert load("a/../b") is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"version": 2}', b'{"version": 1, "moves": [[]]}', b"[" * 99999]
)
def test_corrupt_file_is_named(content: bytes) -> None:
    with alone("c"):
        path_of("c").write_bytes(content)
    with pytest.raises(Failure, match="is not a file of `ottla cluster balance`"):
        load("c")


def test_second_run_is_refused() -> None:
    with alone("c"), pytest.raises(Failure, match="another"), alone("c"):
        pass
    with alone("c"):
        pass


def test_only_moves_that_still_make_sense_are_continued() -> None:
    now = {DONE: [2], MOVING: [2], WAITING: [1], ELSEWHERE: [3], DOWN: [1]}
    moving = {MOVING: Reassignment((2, 1), (2,), (1,))}
    measured = Measured("c", [Target(1), Target(2), Target(3)], now, {}, {}, set(moving), moving)
    left, lost = remaining(RUN, measured)
    assert list(left.items()) == [(MOVING, [2]), (WAITING, [2])]
    assert lost == [DELETED, ELSEWHERE, DOWN]
