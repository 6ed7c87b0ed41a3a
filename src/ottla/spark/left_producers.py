"""Files in which a worker leaves the producer of a task, for the worker that gets the task's next batch.

Spark gives the batches of a task to different Python workers, so a worker that has committed leaves the producer's id
and epoch with the task's marker, and forgets them. Another worker of the executor *takes* them. It takes the file away
before it reads it, so that at most one process has them at any time: two processes with one epoch are not fenced from
each other. What a crash takes along is initialized again.

The files are in a directory that Spark creates for each executor and removes at its end.
"""

# ruff: noqa: PTH104, PTH108 - os.rename and os.unlink: a Path costs more than the call

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.clients.producer.transaction_requests import Identity
from ottla.spark.exactly_once import Marker

logger = logging.getLogger("ottla.spark")

DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Spark sets this variable in its Python workers; separated by commas."""


@dataclass(frozen=True)
class Left:
    """A producer between two transactions."""

    identity: Identity
    marker: Marker
    """Of its last transaction; the task's, unless another producer has been initialized for the task since."""


class Place:
    """Where the producer of one task is left."""

    __slots__ = ("_path",)

    def __init__(self, transactional_id: str, settings: Mapping[str, object]) -> None:
        """`settings` are those of the producer, its cluster among them."""
        directory = os.environ.get(DIRECTORIES, "").split(",")[0]
        name = hashlib.sha256(repr((transactional_id, sorted(settings.items()))).encode()).hexdigest()
        self._path = f"{directory}/ottla-{name[:32]}" if directory else None

    def take(self) -> Left | None:
        """Remove what was left, and return it. None if there is nothing, or if another process is faster."""
        if self._path is None:
            return None
        own = f"{self._path}.{os.getpid()}"
        try:
            os.rename(self._path, own)
            with open(own, "rb") as file:
                *identity, batches, metadata = json.loads(file.read())
            os.unlink(own)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("The producer that was left at %s cannot be read: %s", self._path, error)
            return None
        return Left(Identity(*identity), Marker.read(batches, metadata))

    def leave(self, left: Left) -> None:
        """Store the producer for the next worker. A failure is logged: the next batch initializes it again."""
        if self._path is None:
            return
        own = f"{self._path}.{os.getpid()}"
        marker = left.marker
        try:
            with open(own, "wb") as file:
                file.write(json.dumps([*left.identity, marker.batches, marker.metadata()]).encode())
            os.rename(own, self._path)
        except OSError as error:
            logger.warning("No producer is left for %s: %s", left.identity.transactional_id, error)
            with suppress(OSError):
                os.unlink(own)
