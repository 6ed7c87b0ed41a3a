"""The invariants of a quorum, checked after each event, whatever fails.

- An epoch has at most one leader, and a replica votes for at most one candidate per epoch.
- A vote is on disk when it is sent.
- Two records of the same epoch at the same offset are equal, and so are the records before them.
- A committed record is committed with the same value by every replica, and is in the log of every later leader.
- A high watermark never decreases while its replica runs.
- A new voter set differs from the previous one by one voter, and the previous one is committed.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.raft.core import RaftCore
from ottla.raft.roles import Role
from ottla.raft.values import ReplicaKey
from ottla.raft.voters import VoterSet
from tests.simulation.world.quorum_disk import Entry, ReplicaDisk


class QuorumChecks:
    """Records what happened, and raises AssertionError when an invariant is violated."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self.committed: list[Entry] = []
        self._committed_in: list[int] = []
        """The epoch in which each record was known to be committed first."""
        self.committed_voters: list[VoterSet] = []
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._records: dict[tuple[int, int], tuple[object, int]] = {}
        self._checked: dict[int, int] = {}
        self._high_watermarks: dict[int, int] = {}

    def fail(self, problem: str) -> str:
        return f"{problem} ({self.name})"

    def started(self, node: int) -> None:
        """A replica starts without a known high watermark."""
        self._high_watermarks[node] = -1
        self._checked[node] = 0

    def stepped(self, node: int, core: RaftCore, disk: ReplicaDisk) -> None:
        """Check a replica after a step."""
        core.validate()
        before = self._high_watermarks[node]
        assert core.high_watermark >= before, self.fail(f"the high watermark of {node} decreased from {before}")
        self._high_watermarks[node] = core.high_watermark
        if core.role is Role.LEADER and core.epoch not in self.leaders:
            # A node that was paused may win an old epoch late, when another leader has committed records.
            known = bisect_right(self._committed_in, core.epoch)
            missing = disk.history()[:known] != tuple(self.committed[:known])
            assert not missing, self.fail(f"leader {node} of epoch {core.epoch} lacks committed records")
        if core.role is Role.LEADER:
            leader = self.leaders.setdefault(core.epoch, node)
            assert leader == node, self.fail(f"{leader} and {node} lead epoch {core.epoch}")

    def voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey, disk: ReplicaDisk) -> None:
        """A vote is sent, or a candidate votes for itself."""
        election = disk.election
        assert election.epoch >= epoch, self.fail(f"{voter.node_id} sends a vote of epoch {epoch} without storing it")
        given = self._votes.setdefault((voter, epoch), candidate)
        # Old versions of the request do not name the candidate's directory.
        same = given.names(candidate) or candidate.names(given)
        assert same, self.fail(f"{voter.node_id} votes for {given} and {candidate} in epoch {epoch}")

    def appended(self, disk: ReplicaDisk, offset: int) -> None:
        """Records were appended from `offset` on."""
        if offset > disk.start:
            previous = disk.log[offset - disk.start - 1][0]
        else:
            previous = max((each.epoch for each in disk.snapshots if each.end_offset == disk.start), default=0)
        for position, (epoch, value) in enumerate(disk.log[offset - disk.start :], offset):
            known = self._records.setdefault((position, epoch), (value, previous))
            assert known == (value, previous), self.fail(f"two records of epoch {epoch} at offset {position}")
            previous = epoch

    def appends_voters(self, core: RaftCore, voters: VoterSet) -> None:
        """A leader is about to append a voter set."""
        is_first = any(voter.key == ReplicaKey(voter.key.node_id) for voter in core.voters)
        same = is_first and core.voters.ids == voters.ids  # kraft.version 1 begins: the directories become known
        assert same or overlap(core.voters, voters), self.fail(f"{core.voters.ids} changes to {voters.ids} at once")

    def commits(self, node: int, disk: ReplicaDisk, high_watermark: int, epoch: int) -> None:
        """A replica reports in an epoch that everything below `high_watermark` is committed."""
        assert disk.end >= high_watermark, self.fail(f"{node} committed beyond its log")
        checked = max(self._checked[node], disk.start)
        own = disk.read(checked, high_watermark - checked)
        known = len(self.committed)
        shared = max(0, min(high_watermark, known) - checked)
        expected = tuple(self.committed[checked : checked + shared])
        assert own[:shared] == expected, self.fail(f"{node} committed other records")
        if high_watermark > known:
            assert checked <= known, self.fail(f"{node} committed from {checked} on, known are {known}")
            for _, value in own[shared:]:
                if isinstance(value, VoterSet):
                    self._voters_committed(value)
            self.committed += own[shared:]
            latest = max([epoch, *self._committed_in[-1:]])
            self._committed_in += [latest] * (high_watermark - known)
        self._checked[node] = high_watermark

    def _voters_committed(self, voters: VoterSet) -> None:
        if self.committed_voters:
            last = self.committed_voters[-1]
            assert overlap(last, voters), self.fail(f"committed voters {last.ids} are followed by {voters.ids}")
        self.committed_voters.append(voters)

    def loads(self, node: int, entries: tuple[Entry, ...]) -> None:
        """A replica replaces its log with a snapshot."""
        assert entries == tuple(self.committed[: len(entries)]), self.fail(f"{node} loads another history")
        self._checked[node] = len(entries)


def overlap(voters: VoterSet, others: VoterSet) -> bool:
    """Whether each majority of one set has a voter in common with each majority of the other set."""
    return len(voters.keys - others.keys) <= 1 and len(others.keys - voters.keys) <= 1
