"""A quorum of `RaftCore`s in one thread, under a seed: a faulty network, and disks that lose unsynced writes.

After every step the core validates itself and the cluster checks its own invariants:

- an epoch has at most one leader;
- a committed record is in the log of every later leader, at the same offset;
- a high watermark never decreases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

from ottla.raft.core import RaftCore, Role
from ottla.raft.events import (
    Appended,
    AppendFetched,
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
    Event,
    FetchResponse,
    Flush,
    Flushed,
    LogEnd,
    Persist,
    Send,
    Started,
    Ticked,
    Truncate,
)
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.network import Network

Entry = tuple[int, str]
"""The epoch and value of a record."""


@dataclass
class VoterDisk:
    """The durable state of a voter: its election, and its log up to `flushed`. A crash may keep some of the rest."""

    election: Election = field(default_factory=Election)
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0


class Quorum:
    """Voters with the ids 1 to `size`."""

    def __init__(self, seed: int, size: int, *, loss: float = 0.1) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.voters = range(1, size + 1)
        self.clock = SimulatedClock()
        self.network = Network(self.clock, self.random, loss=loss)
        self.disks = {voter: VoterDisk() for voter in self.voters}
        self.cores: dict[int, RaftCore] = {}
        self.committed: list[Entry] = []
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        for voter in self.voters:
            self.start(voter)

    # -- actions of a test -----------------------------------------------------------------------------------------

    def start(self, voter: int) -> None:
        """Start a voter from its disk."""
        disk = self.disks[voter]
        core = RaftCore(voter, self.voters, disk.election, self.random, election_timeout_ms=200, fetch_timeout_ms=400)
        self.cores[voter] = core
        starts: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(disk.log):
            if not starts or starts[-1][0] != epoch:
                starts.append((epoch, offset))
        end = LogEnd(len(disk.log), disk.log[-1][0] if disk.log else -1)
        self._step(voter, Started(end, disk.flushed, tuple(starts)))

    def crash(self, voter: int) -> None:
        """Stop a voter at once; a random part of its unsynced records is lost."""
        del self.cores[voter]
        disk = self.disks[voter]
        del disk.log[self.random.randint(disk.flushed, len(disk.log)) :]
        disk.flushed = len(disk.log)  # the restart reads the surviving records from the disk

    def leader(self) -> int | None:
        """The leader of the latest epoch that the network does not isolate."""
        isolated = self.network.isolated
        leaders = [v for v, core in self.cores.items() if core.role is Role.LEADER and v not in isolated]
        return max(leaders, key=lambda v: self.cores[v].epoch, default=None)

    def propose(self, value: str) -> bool:
        """Append a record at the leader; False if there is no leader."""
        leader = self.leader()
        if leader is None:
            return False
        core, disk = self.cores[leader], self.disks[leader]
        disk.log.append((core.epoch, value))
        self._step(leader, Appended(len(disk.log), core.epoch))
        return True

    def run(self, duration_ms: int) -> None:
        """Let time pass: take planned events and elapsed timers in order."""
        clock = self.clock
        end_ms = clock.now_ms + duration_ms
        while clock.now_ms < end_ms:
            times = [end_ms, *(core.deadline_ms for core in self.cores.values())]
            next_ms = clock.next_ms()
            clock.advance_to(min(times if next_ms is None else [*times, next_ms]))
            while (event := clock.take_due()) is not None:
                event()
            for voter in list(self.cores):
                if self.cores[voter].deadline_ms <= clock.now_ms < end_ms:
                    self._step(voter, Ticked())

    # -- the shell of each core ------------------------------------------------------------------------------------

    def _step(self, voter: int, event: Event, fetched: tuple[Entry, ...] = ()) -> None:
        core = self.cores[voter]
        before = core.high_watermark
        for effect in core.step(event, self.clock.now_ms):
            self._obey(voter, effect, fetched)
        core.validate()
        assert core.high_watermark >= before, self._problem(f"the high watermark of {voter} decreased")
        if core.role is Role.LEADER:
            assert self.leaders.setdefault(core.epoch, voter) == voter, self._problem(f"two leaders in {core.epoch}")

    def _obey(self, voter: int, effect: Effect, fetched: tuple[Entry, ...]) -> None:
        core, disk = self.cores[voter], self.disks[voter]
        if isinstance(effect, Persist):
            disk.election = effect.election
        elif isinstance(effect, Truncate):
            assert effect.offset >= core.high_watermark, self._problem("truncated below the high watermark")
            del disk.log[effect.offset :]
            disk.flushed = min(disk.flushed, effect.offset)
        elif isinstance(effect, AppendLeaderChange):
            disk.log.append((effect.epoch, f"leader {effect.leader_id}"))
            self._step(voter, Appended(len(disk.log), effect.epoch))
        elif isinstance(effect, AppendFetched):
            for entry in fetched:
                disk.log.append(entry)
                self._step(voter, Appended(len(disk.log), entry[0]))
        elif isinstance(effect, Flush):
            self.clock.plan(self.random.randint(1, 20), partial(self._flush, voter, core, effect.end_offset))
        elif isinstance(effect, Commit):
            self._check_commit(voter, effect.high_watermark)
        elif isinstance(effect, Send):
            self._send(voter, effect)

    def _flush(self, voter: int, core: RaftCore, end_offset: int) -> None:
        if self.cores.get(voter) is core:  # a crash ends the flush
            disk = self.disks[voter]
            disk.flushed = max(disk.flushed, min(end_offset, len(disk.log)))
            self._step(voter, Flushed(end_offset))

    def _send(self, voter: int, effect: Send) -> None:
        message = effect.message
        records: tuple[Entry, ...] = ()
        if isinstance(message, FetchResponse) and message.diverged is None:
            count = self.random.randint(1, 4)
            records = tuple(self.disks[voter].log[message.from_offset : message.from_offset + count])
        self.network.send(voter, effect.to, partial(self._receive, effect.to, message, records))

    def _receive(self, voter: int, message: Event, records: tuple[Entry, ...]) -> None:
        if voter in self.cores:
            self._step(voter, message, records)

    def _check_commit(self, voter: int, high_watermark: int) -> None:
        own = self.disks[voter].log[:high_watermark]
        assert len(own) == high_watermark, self._problem(f"{voter} committed beyond its log")
        shared = min(len(own), len(self.committed))
        assert own[:shared] == self.committed[:shared], self._problem(f"{voter} committed other records")
        self.committed += own[shared:]

    def _problem(self, text: str) -> str:
        return f"{text} (seed {self.seed}, at {self.clock.now_ms} ms)"
