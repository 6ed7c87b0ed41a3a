"""The steps of a task between which a test crashes it. In production `reached` does nothing."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from ottla.connect.runtime import TaskId


class Step(StrEnum):
    """A moment in the life of a task; sources and sinks have some of them."""

    STARTED = "started"
    BEFORE_POLL = "before poll"
    AFTER_POLL = "after poll"
    AFTER_SEND = "after send"
    AFTER_OFFSETS = "after offsets"
    AFTER_COMMIT = "after commit"
    AFTER_TASK_COMMIT = "after task commit"
    BEFORE_PUT = "before put"
    AFTER_PUT = "after put"
    AFTER_FLUSH = "after flush"


Reached: TypeAlias = Callable[[Step, TaskId], None]


def nothing(step: Step, task: TaskId) -> None:
    """Do nothing."""
    del step, task
