"""Responses kept in bytes for as long as the metadata image that they describe is the current one.

Clients ask for the same metadata again and again, and a thousand partitions take milliseconds to encode. Any new image
empties the store, so an answer is never older than the image. Bounded: when it is full it starts afresh.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.frames import Encoded

MOST_ANSWERS = 256
MOST_BYTES = 16 * 1024 * 1024


class ResponseCache:
    """Answers by what was asked, of one image."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._answers: dict[Hashable, Encoded] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, image: MetadataImage, question: Hashable) -> Encoded | None:
        """What was answered to the same question in the same image."""
        return self._answers.get(question) if image is self._image else None

    def keep(self, image: MetadataImage, question: Hashable, answer: Encoded) -> None:
        """Remember an answer; those of another image go."""
        if image is not self._image or len(self._answers) >= MOST_ANSWERS or self._bytes + len(answer) > MOST_BYTES:
            self._answers.clear()
            self._image = image
            self._bytes = 0
        if len(answer) <= MOST_BYTES:
            self._answers[question] = answer
            self._bytes += len(answer)
