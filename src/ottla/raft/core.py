"""One voter of the quorum: elections, replication by fetching, the high watermark. KIP-595.

    effects = core.step(event, now_ms)      # also `step(Ticked(), now_ms)` once `core.deadline_ms` has passed

The caller executes the effects in order, before the next step. Two effects have an outcome that the caller reports as
an event: an append by `Appended` (at once), a flush by `Flushed` (later). Records that are appended during a flush are
covered by the next flush (group commit).

A single voter elects itself in `Started`. The same rules apply: it is the leader of the next epoch, writes the epoch's
LeaderChange record, and commits once the record is on disk.

    UNATTACHED --timeout--> CANDIDATE --majority--> LEADER          any --higher epoch--> UNATTACHED or FOLLOWER

Not implemented: pre-votes (KIP-996), changes of the voters (KIP-853), observers, fetching a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from ottla.raft import quorum
from ottla.raft.events import (
    NO_NODE,
    Appended,
    AppendFetched,
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
    Event,
    FetchRequest,
    FetchResponse,
    Flush,
    Flushed,
    LeaderAnnounced,
    LogEnd,
    Persist,
    Send,
    Started,
    Ticked,
    Truncate,
    VoteRequest,
    VoteResponse,
)

FOREVER = 1 << 62


class Role(Enum):
    """The role of this voter in the current epoch."""

    UNATTACHED = "unattached"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


class RandomSource(Protocol):
    """The source of the jitter in election timeouts."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""
        ...


class RaftCore:
    """One voter. Read `role`, `election`, `high_watermark`; change only through `step`."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int],
        election: Election,
        random: RandomSource,
        *,
        election_timeout_ms: int = 1000,
        fetch_timeout_ms: int = 2000,
    ) -> None:
        self.node_id = node_id
        self.voters = frozenset(voters)
        self.election = election
        self.role = Role.UNATTACHED
        self.end = LogEnd(0, -1)
        self.flushed_offset = 0
        self.high_watermark = 0
        self._election_deadline_ms = FOREVER
        self._fetch_deadline_ms = FOREVER
        self.epoch_start_offset = 0
        # For the leader only: the end offset that each replica has on disk, and the time of its last fetch.
        self.replica_ends: dict[int, int] = {}
        self.last_fetch_ms: dict[int, int] = {}
        self.caught_up_ms: dict[int, int] = {}
        self._epoch_starts: list[tuple[int, int]] = []
        self._granted: set[int] = set()
        self._rejected: set[int] = set()
        self._flushing = False
        self._random = random
        self._election_timeout_ms = election_timeout_ms
        self._fetch_timeout_ms = fetch_timeout_ms
        self._effects: list[Effect] = []
        self._handlers: dict[type, Callable[..., None]] = {
            Started: self._on_started,
            Ticked: self._on_ticked,
            Appended: self._on_appended,
            Flushed: self._on_flushed,
            VoteRequest: self._on_vote_request,
            VoteResponse: self._on_vote_response,
            LeaderAnnounced: self._on_leader_announced,
            FetchRequest: self._on_fetch_request,
            FetchResponse: self._on_fetch_response,
        }

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def deadline_ms(self) -> int:
        """When `step(Ticked(), ...)` is due, on the monotonic clock."""
        return min(self._election_deadline_ms, self._fetch_deadline_ms)

    @property
    def is_leader(self) -> bool:
        """Whether this voter leads, so that it may append its own records."""
        return self.role is Role.LEADER

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns the effects in the order in which the caller must execute them."""
        before = self.election
        self._handlers[type(event)](event, now_ms)
        effects, self._effects = self._effects, []
        if self.election != before:
            # One write stores all changes of the election in this step, because no message was sent in between.
            effects.insert(0, Persist(self.election))
        return effects

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert self.flushed_offset <= self.end.offset, "flushed more than was appended"
        assert self.high_watermark <= self.end.offset, "committed beyond the end of the log"
        assert self.end.epoch <= self.epoch, "records of a future epoch"
        assert (self.role is Role.LEADER) == (self.election.leader_id == self.node_id), "leader and election differ"
        if self.role is Role.LEADER:
            assert self.election.voted_id in (self.node_id, NO_NODE), "leads after voting for another"
        if self.role is Role.CANDIDATE:
            assert self.election.voted_id == self.node_id, "stands without its own vote"

    # -- elections ---------------------------------------------------------------------------------------------

    def _on_started(self, event: Started, now_ms: int) -> None:
        self.end = event.end
        self.flushed_offset = event.flushed_offset
        self._epoch_starts = list(event.epoch_starts)
        if self.election.epoch < event.end.epoch:
            # The quorum-state file was lost. The epoch of the last record is a lower bound of the voter's epoch.
            self.election = Election(event.end.epoch)
        if self.election.leader_id == self.node_id:
            # This voter led the epoch before it stopped. The epoch has no leader any more.
            self.election = self.election._replace(leader_id=NO_NODE)
        if self.voters == {self.node_id}:
            # The flush of the record that opens the epoch also covers earlier unflushed records.
            self._stand(now_ms)
            return
        self._flush()
        if self.election.leader_id != NO_NODE:
            self._follow(self.election.epoch, self.election.leader_id, now_ms)
        else:
            self._wait_for_leader(now_ms)

    def _on_ticked(self, _event: Ticked, now_ms: int) -> None:
        if now_ms >= self._election_deadline_ms:
            if self.role is Role.LEADER:
                self._check_quorum(now_ms)
            elif self.node_id in self.voters:
                self._stand(now_ms)
        elif now_ms >= self._fetch_deadline_ms:
            self._fetch(now_ms)

    def _stand(self, now_ms: int) -> None:
        self.role = Role.CANDIDATE
        self._fetch_deadline_ms = FOREVER
        self.election = Election(self.election.epoch + 1, NO_NODE, self.node_id)
        self._granted, self._rejected = {self.node_id}, set()
        self._set_election_deadline(now_ms)
        if quorum.is_won(self.voters, self._granted):
            self._lead(now_ms)
            return
        for voter in sorted(self.voters - {self.node_id}):
            self._effects.append(Send(voter, VoteRequest(self.node_id, self.epoch, self.end)))

    def _on_vote_request(self, event: VoteRequest, now_ms: int) -> None:
        self._see_epoch(event.epoch, now_ms)
        granted = (
            event.epoch == self.epoch
            and self.election.leader_id == NO_NODE
            and self.election.voted_id in (NO_NODE, event.candidate_id)
            and not event.end.is_behind(self.end)
        )
        if granted:
            self.election = self.election._replace(voted_id=event.candidate_id)
            self._set_election_deadline(now_ms)
        response = VoteResponse(self.node_id, self.epoch, granted, self.election.leader_id)
        self._effects.append(Send(event.candidate_id, response))

    def _on_vote_response(self, event: VoteResponse, now_ms: int) -> None:
        self._see_epoch(event.epoch, now_ms)
        # Other voters may name this voter, if it led the epoch before it restarted.
        if event.leader_id not in (NO_NODE, self.node_id) and event.epoch == self.epoch:
            self._follow(event.epoch, event.leader_id, now_ms)
            return
        if self.role is not Role.CANDIDATE or event.epoch != self.epoch:
            return
        (self._granted if event.granted else self._rejected).add(event.voter_id)
        if quorum.is_won(self.voters, self._granted):
            self._lead(now_ms)

    def _lead(self, now_ms: int) -> None:
        self.role = Role.LEADER
        self.election = self.election._replace(leader_id=self.node_id)
        self.epoch_start_offset = self.end.offset
        self.replica_ends = {self.node_id: self.flushed_offset}
        self.last_fetch_ms = dict.fromkeys(self.voters, now_ms)
        self.caught_up_ms = {}
        self._fetch_deadline_ms = FOREVER
        self._election_deadline_ms = FOREVER if len(self.voters) == 1 else now_ms + self._fetch_timeout_ms
        for voter in sorted(self.voters - {self.node_id}):
            self._effects.append(Send(voter, LeaderAnnounced(self.node_id, self.epoch)))
        change = AppendLeaderChange(
            self.epoch, self.node_id, tuple(sorted(self.voters)), tuple(sorted(self._granted & self.voters))
        )
        self._effects.insert(0, change)

    def _check_quorum(self, now_ms: int) -> None:
        """Resign if no majority has fetched recently, because another leader may exist (KIP-595, check quorum)."""
        recent = {v for v in self.voters if now_ms - self.last_fetch_ms.get(v, 0) < self._fetch_timeout_ms}
        if quorum.is_won(self.voters, recent | {self.node_id}):
            self._election_deadline_ms = now_ms + self._fetch_timeout_ms // 2
        else:
            self.election = self.election._replace(leader_id=NO_NODE)
            self._wait_for_leader(now_ms)

    def _on_leader_announced(self, event: LeaderAnnounced, now_ms: int) -> None:
        self._see_epoch(event.epoch, now_ms)
        if event.epoch == self.epoch and self.role is not Role.LEADER:
            self._follow(event.epoch, event.leader_id, now_ms)

    def _see_epoch(self, epoch: int, now_ms: int) -> None:
        """Move to a higher epoch, which ends this voter's role."""
        if epoch > self.epoch:
            self.election = Election(epoch)
            self._wait_for_leader(now_ms)

    def _wait_for_leader(self, now_ms: int) -> None:
        self.role = Role.UNATTACHED
        self._fetch_deadline_ms = FOREVER
        self._set_election_deadline(now_ms)

    def _follow(self, epoch: int, leader_id: int, now_ms: int) -> None:
        if self.role is Role.FOLLOWER and self.election.leader_id == leader_id and self.epoch == epoch:
            return
        self.role = Role.FOLLOWER
        self.election = self.election._replace(leader_id=leader_id)
        self._hear_leader(now_ms)
        self._fetch(now_ms)

    def _hear_leader(self, now_ms: int) -> None:
        jitter = self._random.randrange(max(1, self._fetch_timeout_ms))
        self._election_deadline_ms = now_ms + self._fetch_timeout_ms + jitter

    def _set_election_deadline(self, now_ms: int) -> None:
        jitter = self._random.randrange(max(1, self._election_timeout_ms))
        self._election_deadline_ms = now_ms + self._election_timeout_ms + jitter

    # -- the log -----------------------------------------------------------------------------------------------

    def _on_appended(self, event: Appended, _now_ms: int) -> None:
        if event.end_offset <= self.end.offset:
            return
        if event.epoch > self.end.epoch:
            self._epoch_starts.append((event.epoch, self.end.offset))
        self.end = LogEnd(event.end_offset, event.epoch)
        self._flush()

    def _flush(self) -> None:
        if not self._flushing and self.flushed_offset < self.end.offset:
            self._flushing = True
            self._effects.append(Flush(self.end.offset))

    def _on_flushed(self, event: Flushed, now_ms: int) -> None:
        self._flushing = False
        self.flushed_offset = max(self.flushed_offset, min(event.end_offset, self.end.offset))
        if self.role is Role.LEADER:
            self.replica_ends[self.node_id] = self.flushed_offset
            self._advance()
        elif self.role is Role.FOLLOWER and self.flushed_offset == self.end.offset:
            self._fetch(now_ms)
        self._flush()

    def _advance(self) -> None:
        agreed = quorum.majority_offset(self.voters, self.replica_ends)
        # Records of previous epochs commit only together with a record of this epoch (Raft, figure 8).
        if agreed > self.high_watermark and agreed > self.epoch_start_offset:
            self._commit(agreed)

    def _commit(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._effects.append(Commit(high_watermark))

    def _fetch(self, now_ms: int) -> None:
        # The fetch is repeated when this deadline passes, i.e. if the response is lost or has no records.
        self._fetch_deadline_ms = now_ms + max(1, self._fetch_timeout_ms // 8)
        self._effects.append(Send(self.election.leader_id, FetchRequest(self.node_id, self.epoch, self.end)))

    def _on_fetch_request(self, event: FetchRequest, now_ms: int) -> None:
        """Answer a replica's fetch, and advance the high watermark by what the fetch acknowledges.

        `event.end` is the end of the replica's log on disk: its offset, and the epoch of its last record. If the
        leader's log has that epoch up to that offset, the replica's log is a prefix of the leader's. Two logs with a
        record of the same epoch at the same offset are equal up to it, because an epoch has one leader, which writes
        each offset once. Only then does the offset count towards the majority that commits.

        Otherwise the logs diverge. The response then has no records, but the end of the latest epoch in the leader's
        log that is not later than the replica's. The replica truncates there and fetches again. Each such round
        moves the replica back by at least one epoch, so the number of rounds is at most that of the differing epochs.

        Fetches of an older epoch are ignored. A fetch of a higher epoch ends this voter's leadership first. Cost: a
        sort of the voters' offsets, and a scan back over the epochs after the replica's.
        """
        self._see_epoch(event.epoch, now_ms)
        if self.role is not Role.LEADER or event.epoch != self.epoch:
            return
        diverged = self._divergence(event.end)
        self.last_fetch_ms[event.replica_id] = now_ms
        if diverged is None:
            self.replica_ends[event.replica_id] = event.end.offset
            if event.end.offset >= self.end.offset:
                self.caught_up_ms[event.replica_id] = now_ms
            self._advance()
        response = FetchResponse(self.node_id, self.epoch, event.end.offset, self.high_watermark, diverged)
        self._effects.append(Send(event.replica_id, response))

    def _divergence(self, other: LogEnd) -> LogEnd | None:
        """Return the end of the other log's last epoch in this log, if the other log continues beyond it."""
        if other.offset == 0:
            return None
        own = self._end_of_epoch(other.epoch)
        return own if own.epoch != other.epoch or own.offset < other.offset else None

    def _end_of_epoch(self, epoch: int) -> LogEnd:
        """Return the end of the latest epoch in this log that is not later than `epoch`."""
        end_offset = self.end.offset
        for known, start in reversed(self._epoch_starts):
            if known <= epoch:
                return LogEnd(end_offset, known)
            end_offset = start
        return LogEnd(0, -1)

    def _on_fetch_response(self, event: FetchResponse, now_ms: int) -> None:
        self._see_epoch(event.epoch, now_ms)
        if event.epoch != self.epoch or self.role is Role.LEADER:
            return
        if self.role is not Role.FOLLOWER:
            self._follow(event.epoch, event.leader_id, now_ms)
            return
        self._hear_leader(now_ms)
        if self._flushing:
            # Ignore the response, because a flush must not run while its records change. A fetch follows the flush.
            return
        if event.diverged is not None:
            self._truncate(event.diverged, now_ms)
        elif event.from_offset == self.end.offset:
            self._effects.append(AppendFetched())
            self._commit(min(event.high_watermark, self.flushed_offset))

    def _truncate(self, leader_end: LogEnd, now_ms: int) -> None:
        own = self._end_of_epoch(leader_end.epoch)
        offset = min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset
        if offset < self.high_watermark:
            raise AssertionError(
                f"The leader requests truncation to {offset}, below the high watermark {self.high_watermark}"
            )
        while self._epoch_starts and self._epoch_starts[-1][1] >= offset:
            self._epoch_starts.pop()
        self.end = LogEnd(offset, self._epoch_starts[-1][0] if self._epoch_starts else -1)
        self.flushed_offset = min(self.flushed_offset, offset)
        self._effects.append(Truncate(offset))
        self._fetch(now_ms)
