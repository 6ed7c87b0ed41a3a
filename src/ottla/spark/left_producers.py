"""Files in which a worker leaves the producer of a task, for the worker that gets the task's next batch.

Spark gives the batches of a task to different Python workers, so a worker that has committed leaves the producer's id
and epoch with the task's marker, and forgets them. Another worker of the executor *takes* them, and marks the file
before it uses them, so that at most one process has them at any time. Two processes with one epoch are not fenced from
each other. Producers that are lost in a crash are initialized again.

The files are in a directory that Spark creates for each executor and removes at its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.clients.producer.transaction_requests import Identity
from ottla.spark.exactly_once import Marker

logger = logging.getLogger("ottla.spark")

DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Spark sets this variable in its Python workers; separated by commas."""
LEFT, TAKEN, LARGEST = b"1", b"0", 1 << 16


class Left(NamedTuple):
    """A producer between two transactions."""

    identity: Identity
    marker: Marker
    """Of its last transaction; the task's, unless another producer has been initialized for the task since."""


class Place:
    """Where the producer of one task is left. It is locked from `take` to `close`."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> Left | None:
        """Mark what was left as taken, and return it. None if there is nothing, or if another process has it."""
        try:
            file = self._file = self._open(os.O_RDWR)
            text = b"" if file is None else os.read(file, LARGEST)
            if file is None or text[:1] != LEFT:
                return None
            os.pwrite(file, TAKEN, 0)
        except OSError as error:
            logger.warning("The producer that was left in %s cannot be taken: %s", self._path, error)
            return None
        producer_id, epoch, batches, transactional_id, metadata, _ = text[1:].decode().split("\n", 5)
        identity = Identity(transactional_id, int(producer_id), int(epoch))
        return Left(identity, Marker.read(int(batches), metadata))

    def leave(self, left: Left) -> None:
        """Store the producer for the next worker. A failure is logged: the next batch initializes it again."""
        (transactional_id, producer_id, epoch), marker = left
        lines = (producer_id, epoch, marker.batches, transactional_id, marker.metadata, "")
        text = LEFT + "\n".join(map(str, lines)).encode()
        try:
            if self._file is None:
                self._file = self._open(os.O_RDWR | os.O_CREAT)
            if self._file is None or "\n" in transactional_id or len(text) >= LARGEST:
                return
            if os.pwrite(self._file, text, 0) < len(text):
                os.pwrite(self._file, TAKEN, 0)  # the disk is full
        except OSError as error:
            logger.warning("No producer is left for %s: %s", transactional_id, error)

    def close(self) -> None:
        """Unlock the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

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


class Places:
    """Where the producers of the tasks of one sink are left."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """`settings` configure the producers: the name of the sink and its cluster among others."""
        directory = os.environ.get(DIRECTORIES, "").split(",")[0]
        name = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()
        self._prefix = f"{directory}/ottla-{name[:32]}." if directory else None

    def of_task(self, task: int) -> Place:
        """Return the place of one task's producer."""
        return Place(None if self._prefix is None else f"{self._prefix}{task}")
