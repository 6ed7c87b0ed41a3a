"""The exceptions of `ottla.streams`."""

from __future__ import annotations

from collections.abc import Sequence


class StreamsError(ValueError):
    """A program is wrong. `problems` has a sentence for each fault; all faults of a check are reported at once."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: Sequence[str] = problems


class TemporaryError(StreamsError):
    """A program could not be checked, because a broker or a process was unavailable. It may succeed later."""


class PipelineFailed(Exception):
    """A pipeline stopped, and a restart would not help. The message has its name and the reason."""
