"""`UnsyncedFiles`: what the next flush of a log must sync, and the lock between a flush and all other calls."""

import threading
from collections.abc import Iterable

from ottla.log.segment import Segment


class UnsyncedFiles:
    """Files written since the last flush, except the active segment, which every flush syncs.

    A flush may run in another thread than everything else. `lock` guards the fields below, the list of segments, and
    every descriptor that a flush may duplicate. Callers hold it while they use this object.
    """

    __slots__ = ("directory_changed", "lock", "paths", "rolled", "segments", "truncations")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.segments: list[Segment] = []
        """Sealed segments. Their descriptors stay open: the system reports a failed write-back to these."""
        self.paths: list[str] = []
        """Small files: producer snapshots and `partition.metadata`."""
        self.rolled: list[int] = []
        """Offsets at which segments were rolled: the `.rolled` files to delete after the sync."""
        self.directory_changed = True
        """Whether files were created or renamed since the directory was last synced."""
        self.truncations = 0
        """How often the log was truncated. A flush that overlaps a truncation must not move the recovery point."""

    def discard(self, segments: Iterable[Segment]) -> None:
        """Remove segments that are no longer part of the log, or active again."""
        removed = {id(segment) for segment in segments}
        self.segments = [segment for segment in self.segments if id(segment) not in removed]
