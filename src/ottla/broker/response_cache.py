"""Caches encoded responses that depend only on the current metadata image.

Clients request the same metadata again and again, and a thousand partitions take milliseconds to encode. A new image
empties the cache, so a response is never older than the image. A full cache is emptied too, which bounds its memory.
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
    """Encoded responses of one image, by request."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._answers: dict[Hashable, Encoded] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, image: MetadataImage, question: Hashable) -> Encoded | None:
        """The response to the same request on the same image, if it is cached."""
        return self._answers.get(question) if image is self._image else None

    def keep(self, image: MetadataImage, question: Hashable, answer: Encoded) -> None:
        """Cache a response; responses of another image are dropped."""
        if image is not self._image or len(self._answers) >= MOST_ANSWERS or self._bytes + len(answer) > MOST_BYTES:
            self._answers.clear()
            self._image = image
            self._bytes = 0
        if len(answer) <= MOST_BYTES:
            self._answers[question] = answer
            self._bytes += len(answer)
