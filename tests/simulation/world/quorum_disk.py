"""The disk of a replica in a simulated quorum: the election file, the log, snapshots. A crash loses unsynced writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

from ottla.raft import quorum_state
from ottla.raft.control import ControlRecord, KRaftVersion, LeaderChange
from ottla.raft.events import Controls, Persist, Started
from ottla.raft.values import BOOTSTRAP_SNAPSHOT, Election, LogEnd, SnapshotId
from ottla.raft.voters import VoterSet


class Data(NamedTuple):
    """An encoded record of a batch in which `left` more records follow. A batch is never divided."""

    value: bytes
    left: int = 0


Entry: TypeAlias = "tuple[int, str | Data | ControlRecord]"
"""The epoch and value of a record."""

RECORD_BYTES = 10


@dataclass(frozen=True)
class Snapshot:
    """All records below its end, so that a test can compare them, and the control records in effect there."""

    entries: tuple[Entry, ...]
    controls: tuple[KRaftVersion | VoterSet, ...]

    @property
    def size(self) -> int:
        return RECORD_BYTES * (len(self.entries) + len(self.controls) + 1)


@dataclass
class ReplicaDisk:
    """The durable state, and the unsynced end of the log from `flushed` on."""

    directory_id: bytes
    election_text: str | None = None
    start: int = 0
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0
    snapshots: dict[SnapshotId, Snapshot] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    @property
    def election(self) -> Election:
        return Election() if self.election_text is None else quorum_state.decode(self.election_text)

    def persist(self, effect: Persist) -> None:
        self.election_text = quorum_state.encode(effect.election, effect.voters, effect.kraft_version)

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        end = offset + count
        while count and end < self.end and _is_divided(self.log[end - self.start - 1]):
            end += 1
        return tuple(self.log[offset - self.start : end - self.start])

    def truncate(self, offset: int) -> None:
        del self.log[offset - self.start :]
        self.flushed = min(self.flushed, offset)

    def crash(self, random: Random) -> None:
        """Lose a random part of the unsynced end."""
        end = random.randint(self.flushed, self.end)
        while end > self.flushed and _is_divided(self.log[end - self.start - 1]):
            end -= 1
        self.truncate(end)
        self.flushed = self.end  # the restart reads the surviving records from the disk

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def history(self) -> tuple[Entry, ...]:
        """All records from offset 0 on: the snapshot at the log's start, then the log."""
        before = next((s.entries for i, s in self.snapshots.items() if i.end_offset == self.start), ())
        return (*before, *self.log)

    def take_snapshot(self, end_offset: int, controls: tuple[KRaftVersion | VoterSet, ...]) -> None:
        """Write a snapshot, and begin the log at its end or at the end of the previous one."""
        entries = self.history()[:end_offset]
        self.snapshots[SnapshotId(end_offset, entries[-1][0])] = Snapshot(entries, controls)

    def start_at(self, snapshot: SnapshotId) -> None:
        """Delete the records below a snapshot's end, and older snapshots."""
        del self.log[: snapshot.end_offset - self.start]
        self.start = snapshot.end_offset
        for each in [each for each in self.snapshots if each < snapshot]:
            del self.snapshots[each]

    def install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the whole log with a snapshot of the leader."""
        self.snapshots = {snapshot_id: snapshot}
        self.start = self.flushed = snapshot_id.end_offset
        self.log = []

    def started(self) -> Started:
        """Return the event that a shell reports to the core at the start."""
        starts: list[tuple[int, int]] = []
        controls: list[tuple[int, KRaftVersion | VoterSet]] = []
        latest = self.latest_snapshot
        if latest is not None:
            offset = latest.end_offset - 1
            controls += [(offset, record) for record in self.snapshots[latest].controls]
        for offset, (epoch, value) in enumerate(self.log, self.start):
            if not starts or starts[-1][0] != epoch:
                starts.append((epoch, offset))
            if isinstance(value, KRaftVersion | VoterSet) and (latest is None or offset >= latest.end_offset):
                controls.append((offset, value))
        at_start = (each.epoch for each in self.snapshots if each.end_offset == self.start)
        last_epoch = self.log[-1][0] if self.log else max(at_start, default=0)
        return Started(
            LogEnd(self.end, last_epoch),
            self.flushed,
            tuple(starts),
            tuple(controls),
            tuple((snapshot_id, snapshot.size) for snapshot_id, snapshot in self.snapshots.items()),
            self.start,
        )


def _is_divided(last: Entry) -> bool:
    return isinstance(last[1], Data) and last[1].left > 0


def format_disk(disk: ReplicaDisk, voters: VoterSet) -> None:
    """Write the snapshot that formatting writes with kraft.version 1: the first voters, at no offset."""
    disk.snapshots[BOOTSTRAP_SNAPSHOT] = Snapshot((), (KRaftVersion(1), voters))


def controls_of(entries: tuple[Entry, ...], offset: int) -> Controls:
    """The control records among entries that begin at `offset`."""
    return tuple(
        (position, value)
        for position, (_, value) in enumerate(entries, offset)
        if isinstance(value, KRaftVersion | VoterSet)
    )


def text(entry: Entry) -> str:
    """An entry as scenarios print it."""
    epoch, value = entry
    if isinstance(value, LeaderChange):
        return f"{epoch}:leader-{value.leader_id}"
    if isinstance(value, KRaftVersion):
        return f"{epoch}:kraft.version-{value.level}"
    if isinstance(value, VoterSet):
        return f"{epoch}:voters-{'+'.join(map(str, sorted(value.ids)))}"
    return f"{epoch}:{value}"
