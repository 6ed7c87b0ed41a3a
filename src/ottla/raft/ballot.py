"""Elections as pure functions: who may receive a vote, and when an election is decided. KIP-595, KIP-996."""

from __future__ import annotations

from ottla.raft import quorum
from ottla.raft.values import Election, ReplicaKey
from ottla.raft.voters import VoterSet


class Ballot:
    """The votes of one election, of the voters at its begin. A voter's last answer counts."""

    def __init__(self, voters: VoterSet, local_id: int) -> None:
        self.voters = voters
        self.granted: set[int] = {local_id}
        self.rejected: set[int] = set()

    def record(self, node_id: int, *, granted: bool) -> None:
        """Count the answer of a voter. Answers of other nodes are ignored."""
        if node_id in self.voters.ids:
            (self.granted if granted else self.rejected).add(node_id)
            (self.rejected if granted else self.granted).discard(node_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority granted its vote."""
        return quorum.is_won(self.voters.ids, self.granted)

    @property
    def is_lost(self) -> bool:
        """Whether no majority is left, because too many voters rejected."""
        return len(self.voters) - len(self.rejected) < quorum.majority(self.voters.ids)

    @property
    def unanswered(self) -> tuple[ReplicaKey, ...]:
        """The voters without an answer."""
        answered = self.granted | self.rejected
        return tuple(voter.key for voter in self.voters if voter.key.node_id not in answered)


def may_vote(election: Election, candidate: ReplicaKey, *, is_up_to_date: bool, pre_vote: bool) -> bool:
    """Whether an unattached or prospective replica grants its vote in `election`.

    A pre-vote does not bind the voter: it only says that the candidate's log is up to date. A vote is given to one
    replica per epoch; the caller stores it before it answers. An epoch whose leader is known gets no votes.
    """
    if pre_vote:
        return is_up_to_date
    if election.has_voted:
        return election.voted.names(candidate)
    return is_up_to_date and not election.has_leader
