"""A quorum of `RaftCore`s in one thread under a seed: a network that loses, delays and doubles, disks that forget.

After every step the core validates itself and the cluster checks: one leader in an epoch, what was committed once is
in every later leader's log and in the same place, a high watermark that only grows.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.raft.core import RaftCore, Role
from ottla.raft.events import (
    Appended,
    AppendFetched,
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
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

Entry = tuple[int, str]


@dataclass
class Disk:
    """What survives a crash: the election, and the log up to `flushed` (the rest perhaps)."""

    election: Election = field(default_factory=Election)
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0


class Cluster:
    """Voters 1..size."""

    def __init__(self, seed: int, size: int, *, loss: float = 0.1) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.voters = range(1, size + 1)
        self.loss = loss
        self.now_ms = 0
        self.disks = {voter: Disk() for voter in self.voters}
        self.cores: dict[int, RaftCore] = {}
        self.committed: list[Entry] = []
        self.leaders: dict[int, int] = {}
        self.cut: set[int] = set()
        self._events: list[tuple[int, int, Any]] = []
        self._count = 0
        self._incarnation = dict.fromkeys(self.voters, 0)
        for voter in self.voters:
            self.start(voter)

    # -- what a test does --------------------------------------------------------------------------------------

    def start(self, voter: int) -> None:
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
        """Stop at once; of what was not synced, a random part is lost."""
        self._incarnation[voter] += 1
        del self.cores[voter]
        disk = self.disks[voter]
        del disk.log[self.random.randint(disk.flushed, len(disk.log)) :]
        disk.flushed = len(disk.log)  # what is there after a restart was read from the disk

    def leader(self) -> int | None:
        leaders = [v for v, core in self.cores.items() if core.role is Role.LEADER and v not in self.cut]
        return max(leaders, key=lambda v: self.cores[v].epoch, default=None)

    def propose(self, value: str) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        core, disk = self.cores[leader], self.disks[leader]
        disk.log.append((core.epoch, value))
        self._step(leader, Appended(len(disk.log), core.epoch))
        return True

    def run(self, duration_ms: int) -> None:
        end = self.now_ms + duration_ms
        while self.now_ms < end:
            due = min((core.deadline_ms for core in self.cores.values()), default=end)
            if self._events:
                due = min(due, self._events[0][0])
            self.now_ms = max(self.now_ms, min(due, end))
            while self._events and self._events[0][0] <= self.now_ms:
                self._deliver(heapq.heappop(self._events)[2])
            for voter in list(self.cores):
                if self.cores[voter].deadline_ms <= self.now_ms < end:
                    self._step(voter, Ticked())

    # -- how it works ------------------------------------------------------------------------------------------

    def _later(self, delay_ms: int, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, what))

    def _deliver(self, what: Any) -> None:
        kind, voter, incarnation, payload = what
        if voter not in self.cores or (kind == "flushed" and incarnation != self._incarnation[voter]):
            return
        if kind == "flushed":
            disk = self.disks[voter]
            disk.flushed = max(disk.flushed, min(payload, len(disk.log)))
            self._step(voter, Flushed(payload))
        elif voter not in self.cut:
            message, entries = payload
            self._step(voter, message, entries)

    def _step(self, voter: int, event: Any, entries: list[Entry] | None = None) -> None:
        core = self.cores[voter]
        before = core.high_watermark
        for effect in core.step(event, self.now_ms):
            self._obey(voter, effect, entries or [])
        core.validate()
        assert core.high_watermark >= before, self._story(f"high watermark of {voter} went back")
        if core.role is Role.LEADER:
            assert self.leaders.setdefault(core.epoch, voter) == voter, self._story(f"two leaders in {core.epoch}")

    def _obey(self, voter: int, effect: Effect, entries: list[Entry]) -> None:
        core, disk = self.cores[voter], self.disks[voter]
        if isinstance(effect, Persist):
            disk.election = effect.election
        elif isinstance(effect, Truncate):
            assert effect.offset >= core.high_watermark, self._story("cut below the high watermark")
            del disk.log[effect.offset :]
            disk.flushed = min(disk.flushed, effect.offset)
        elif isinstance(effect, AppendLeaderChange):
            disk.log.append((effect.epoch, f"leader {effect.leader_id}"))
            self._step(voter, Appended(len(disk.log), effect.epoch))
        elif isinstance(effect, AppendFetched):
            for entry in entries:
                disk.log.append(entry)
                self._step(voter, Appended(len(disk.log), entry[0]))
        elif isinstance(effect, Flush):
            self._later(self.random.randint(1, 20), ("flushed", voter, self._incarnation[voter], effect.end_offset))
        elif isinstance(effect, Commit):
            self._check_commit(voter, effect.high_watermark)
        elif isinstance(effect, Send):
            self._send(voter, effect)

    def _send(self, voter: int, effect: Send) -> None:
        message = effect.message
        records: list[Entry] = []
        if isinstance(message, FetchResponse) and message.diverged is None:
            records = self.disks[voter].log[message.from_offset : message.from_offset + self.random.randint(1, 4)]
        if voter in self.cut or self.random.random() < self.loss:
            return
        for _ in range(2 if self.random.random() < 0.05 else 1):
            self._later(self.random.randint(1, 30), ("message", effect.to, 0, (message, records)))

    def _check_commit(self, voter: int, high_watermark: int) -> None:
        mine = self.disks[voter].log[:high_watermark]
        assert len(mine) == high_watermark, self._story(f"{voter} committed beyond its log")
        shared = min(len(mine), len(self.committed))
        assert mine[:shared] == self.committed[:shared], self._story(f"{voter} committed something else")
        self.committed += mine[shared:]

    def _story(self, problem: str) -> str:
        return f"{problem} (seed {self.seed}, at {self.now_ms} ms)"
