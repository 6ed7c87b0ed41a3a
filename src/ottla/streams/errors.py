"""The exceptions of `ottla.streams`, and where in a program an exception comes from."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path


class StreamsError(ValueError):
    """A program is wrong. `problems` has a sentence for each fault; all faults of a check are reported at once."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: Sequence[str] = problems


class TemporaryError(StreamsError):
    """A program could not be checked, because a broker or a process was unavailable. It may succeed later."""


class PipelineFailed(Exception):
    """A pipeline stopped, and a restart would not help. The message has its name and the reason."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has ended a run after its running micro-batches. The arguments are the statuses of its queries."""


def place_of(path: Path, error: BaseException) -> tuple[str, list[str]] | None:
    """Return the line of a file that an exception comes from, as text, and the traceback from the file on, as lines.

    None if neither the exception nor its cause comes from the file.
    """
    name = str(path.resolve())
    if isinstance(error, SyntaxError) and error.filename == name:
        return f"{path.name}, line {error.lineno}", []
    for each in (error, error.__cause__):
        frames = [] if each is None else traceback.extract_tb(each.__traceback__)
        inside = [number for number, frame in enumerate(frames) if frame.filename == name]
        if inside:
            lines = "".join(traceback.format_list(frames[inside[0] :])).splitlines()
            return f"{path.name}, line {frames[inside[-1]].lineno}", [line.removeprefix("  ") for line in lines]
    return None
