"""Offsets to commit, and the member of a group that commits them: what consumers and transactions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.clients.values import as_offset


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the next record to read, and a string of the user's."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    def checked(self) -> OffsetAndMetadata:
        """Return the same with plain ints. Raises ValueError or TypeError for values that no broker accepts."""
        if not isinstance(self.metadata, str):
            raise TypeError(f"The metadata of an offset must be a str, not {self.metadata!r}")
        if self.leader_epoch == -1:
            return OffsetAndMetadata(as_offset(self.offset), -1, self.metadata)
        return OffsetAndMetadata(as_offset(self.offset), as_offset(self.leader_epoch, "A leader epoch"), self.metadata)


class GroupMetadata(NamedTuple):
    """A consumer's membership: generation -1 and an empty member id while it is not a member of its group."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    reader_report: str = ""
    """The metadata for offsets without metadata of their own (`ottla.clients.reader_reports`)."""
