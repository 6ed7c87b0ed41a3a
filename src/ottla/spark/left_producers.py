"""Files in which a worker leaves the producer of a task, for the worker that gets the task's next batch.

Spark gives the batches of a task to different Python workers, so a worker that has committed leaves the producer's id
and epoch with the task's marker, and forgets them. Another worker of the executor *takes* them, and marks the file
before it uses them, so that at most one process has them at any time. Two processes with one epoch are not fenced from
each other. What a crash takes along is initialized again.

The files are in a directory that Spark creates for each executor and removes at its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clients.producer.transaction_requests import Identity
from ottla.spark.exactly_once import Marker

logger = logging.getLogger("ottla.spark")

DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Spark sets this variable in its Python workers; separated by commas."""

LEFT, TAKEN, LARGEST = b"1", b"0", 1 << 16


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
        """Mark what was left as taken, and return it. None if there is nothing, or if another process is faster."""
        try:
            file = self._open(os.O_RDWR)
            if file is None:
                return None
            try:
                text = os.read(file, LARGEST)
                if text[:1] != LEFT:
                    return None
                os.pwrite(file, TAKEN, 0)
            finally:
                os.close(file)
        except OSError as error:
            logger.warning("The producer that was left in %s cannot be taken: %s", self._path, error)
            return None
        *identity, batches, metadata = json.loads(text[1:].partition(b"\n")[0])
        return Left(Identity(*identity), Marker.read(batches, metadata))

    def leave(self, left: Left) -> None:
        """Store the producer for the next worker. A failure is logged: the next batch initializes it again."""
        text = json.dumps([*left.identity, left.marker.batches, left.marker.metadata()]).encode() + b"\n"
        try:
            file = self._open(os.O_RDWR | os.O_CREAT)
            if file is None:
                return
            try:
                # The mark comes last: a full disk may take a part of the text.
                if len(text) < LARGEST and os.pwrite(file, text, 1) == len(text):
                    os.pwrite(file, LEFT, 0)
            finally:
                os.close(file)
        except OSError as error:
            logger.warning("No producer is left for %s: %s", left.identity.transactional_id, error)

    def _open(self, flags: int) -> int | None:
        """The file, open and locked. None if it does not exist, or if another process has it. Raises OSError."""
        if self._path is None:
            return None
        try:
            file = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file
