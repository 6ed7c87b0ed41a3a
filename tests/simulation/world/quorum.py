"""A quorum of `RaftCore`s in one thread, under a seed: a faulty network, lost unsynced writes, drifting clocks.

Each node has its own clock, which begins anywhere and runs up to a tenth too fast or too slow. A node can crash between
any two effects of a step. `quorum_checks` has the invariants, which are checked after every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random

from ottla.raft.config import QuorumConfig
from ottla.raft.core import RaftCore
from ottla.raft.events import (
    AppendControl,
    Appended,
    AppendFetched,
    AppendSnapshot,
    BeginSnapshot,
    Commit,
    Disconnected,
    Effect,
    Event,
    Failed,
    Flush,
    Flushed,
    LoadSnapshot,
    Persist,
    Received,
    Respond,
    Responded,
    Send,
    SnapshotLoaded,
    SnapshotsChanged,
    Ticked,
    Truncate,
)
from ottla.raft.messages import (
    ApiVersionsRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.roles import Role
from ottla.raft.values import Endpoint, Node, SnapshotId
from ottla.raft.voters import NO_VOTERS, Voter, VoterSet
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.quorum_checks import QuorumChecks
from tests.simulation.world.quorum_disk import Entry, ReplicaDisk, controls_of, format_disk
from tests.simulation.world.quorum_parts import (
    NONE,
    NOTHING,
    Answers,
    CrashError,
    Faults,
    Fetched,
    Partial,
    Running,
    Setup,
    Token,
)
from tests.simulation.world.quorum_wire import choose_version, pass_request, pass_response

FIRST_PORT = 9000
CLIENT = 0


class Quorum:
    """Nodes 1, 2, ... with one disk each."""

    def __init__(self, seed: int, setup: Setup, faults: Faults = NONE) -> None:
        self.random = Random(seed)
        self.seed, self.setup, self.faults = seed, setup, faults
        self.nodes = range(1, setup.voters + setup.observers + 1)
        self.clock = SimulatedClock()
        self.checks = QuorumChecks(f"seed {seed}")
        self.blocked: set[tuple[int, int]] = set()
        """Pairs (source, target) between which no message arrives."""
        self.limit: int | None = None
        """Records from this offset on are not fetched, as if a response were cut short."""
        self.running: dict[int, Running] = {}
        self.disks = {node: ReplicaDisk(bytes([node]) * 16) for node in self.nodes}
        self.answers = Answers()
        self._fetching: dict[int, Partial] = {}
        self._crash_after: dict[int, int] = {}
        voters = VoterSet.of(self.config(node).voter for node in range(1, setup.voters + 1))
        self._static = NO_VOTERS
        if setup.kraft_version == 0:
            self._static = VoterSet.of_addresses("CONTROLLER", {node: _address(node) for node in voters.ids})
        else:
            for node in voters.ids:
                format_disk(self.disks[node], voters)
        for node in self.nodes:
            self.start(node)

    def config(self, node: int) -> QuorumConfig:
        """The configuration of a node: timeouts are short, so that a run covers many of them."""
        return QuorumConfig(
            node_id=node,
            directory_id=self.disks[node].directory_id,
            cluster_id="simulated",
            static_voters=getattr(self, "_static", NO_VOTERS),
            bootstrap=tuple(Node(-1 - each, *_address(each)) for each in self.nodes),
            endpoints=(Endpoint("CONTROLLER", *_address(node)),),
            auto_join=self.setup.auto_join,
            election_timeout_ms=80,
            fetch_timeout_ms=160,
            election_backoff_max_ms=80,
            request_timeout_ms=120,
            fetch_max_wait_ms=50,
            fetch_snapshot_max_bytes=70,
        )

    # -- actions of a test -----------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start a node from its disk."""
        disk = self.disks[node]
        core = RaftCore(self.config(node), disk.election, self.random)
        rate = 1.0 + self.random.uniform(-self.faults.drift, self.faults.drift)
        self.running[node] = Running(core, self.random.randint(0, 100_000), rate)
        self.checks.started(node)
        self.on_started(node)
        self._step(node, disk.started())

    def start_all(self) -> None:
        """Start the nodes that do not run."""
        for node in self.nodes:
            if node not in self.running:
                self.start(node)

    def crash(self, node: int) -> None:
        """Stop a node at once. Others may notice that its connections are closed."""
        del self.running[node]
        self._fetching.pop(node, None)
        self._crash_after.pop(node, None)
        self.disks[node].crash(self.random)
        self.on_stopped(node)
        for other in list(self.running):
            if self.random.random() < 0.5 and not self._is_blocked(node, other):
                self.clock.plan(self.latency(), partial(self._receive, self.running[other], other, Disconnected(node)))

    def crash_inside_step(self, node: int) -> None:
        """Stop a node during one of its next steps."""
        self._crash_after[node] = self.random.randint(0, 6)

    def pause(self, node: int, duration_ms: int) -> None:
        """Stop a process for a while; then it continues as if no time had passed, as after SIGSTOP and SIGCONT."""
        self.running[node].paused_until_ms = self.clock.now_ms + duration_ms

    def leader(self) -> int | None:
        """The leader of the latest epoch."""
        leaders = [node for node, each in self.running.items() if each.core.is_leader]
        return max(leaders, key=lambda node: self.running[node].core.epoch, default=None)

    def core(self, node: int) -> RaftCore:
        return self.running[node].core

    def propose(self, value: str) -> bool:
        """Append a record at the leader; False if there is no leader."""
        leader = self.leader()
        if leader is None:
            return False
        self._append(leader, ((self.core(leader).epoch, value),))
        return True

    def token(self) -> Token:
        """A token of an administrator."""
        self.answers.count += 1
        return Token(None, CLIENT, self.answers.count, ApiVersionsRequest())

    def ask(self, node: int, request: Request) -> int:
        """Send a request of an administrator to a node; its response is in `answers` under the returned number."""
        token = self.token()
        self._step(node, Received(token, request))
        return token.request_id

    def tell(self, node: int, event: Event) -> None:
        """Pass an event to a node."""
        self._step(node, event)

    def take_snapshot(self, node: int) -> None:
        """Let a node write a snapshot of its committed records, and delete its log up to this or the previous one."""
        core, disk = self.core(node), self.disks[node]
        end = core.high_watermark
        if self.running[node].paused_until_ms > self.clock.now_ms:
            return
        if end <= disk.start or (disk.latest_snapshot and end <= disk.latest_snapshot.end_offset):
            return
        version, voters = core.snapshot_controls(end)
        disk.take_snapshot(end, (version,) if voters is None else (version, voters))
        ids = sorted(each for each in disk.snapshots if each.end_offset > disk.start)
        disk.start_at(self.random.choice(ids))
        sizes = tuple((each, snapshot.size) for each, snapshot in disk.snapshots.items())
        self._step(node, SnapshotsChanged(sizes, disk.start))

    def replace_disk(self, node: int) -> bool:
        """Give an observer that no voter set needs an empty disk with another directory; False if it is a voter."""
        leader = self.leader()
        if leader is None or node in self.core(leader).voters.ids or not self.checks.committed_voters:
            return False
        if node in self.checks.committed_voters[-1].ids or self.core(leader).voters != self.checks.committed_voters[-1]:
            return False
        if node in self.running:
            self.crash(node)
        self.disks[node] = ReplicaDisk(bytes([node + 100 + self.clock.now_ms % 100]) * 16)
        return True

    def run(self, duration_ms: int) -> None:
        """Let time pass: take planned events and elapsed timers in order."""
        clock = self.clock
        end_ms = clock.now_ms + duration_ms
        while clock.now_ms < end_ms:
            times = [end_ms, *(each.deadline_ms for each in self.running.values())]
            next_ms = clock.next_ms()
            clock.advance_to(min(times if next_ms is None else [*times, next_ms]))
            while (event := clock.take_due()) is not None:
                event()
            for node in list(self.running):
                running = self.running.get(node)
                if running is not None and running.deadline_ms <= clock.now_ms < end_ms:
                    self._step(node, Ticked())

    def heal(self) -> None:
        """End all faults, and start all nodes."""
        self.faults, self.blocked = NONE, set()
        self._crash_after.clear()
        self.start_all()

    # -- what the nodes do with the records; the methods are called after the event --------------------------------

    def on_started(self, node: int) -> None:
        """A node begins to run; its log and snapshots are on its disk."""

    def on_stopped(self, node: int) -> None:
        """A node has crashed."""

    def on_stepped(self, node: int) -> None:
        """A node has executed all effects of a step; it may have become the leader, or have ceased to be it."""

    def on_committed(self, node: int, high_watermark: int) -> None:
        """Everything below the high watermark is committed, and in the node's log."""

    def on_loaded(self, node: int, snapshot: SnapshotId) -> None:
        """A snapshot has replaced the node's log."""

    # -- the shell of each core ------------------------------------------------------------------------------------

    def _step(self, node: int, event: Event, fetched: Fetched = NOTHING) -> None:
        running = self.running.get(node)
        if running is None:
            return
        if running.paused_until_ms > self.clock.now_ms:
            later = partial(self._receive, running, node, event, fetched)
            self.clock.plan(running.paused_until_ms - self.clock.now_ms, later)
            return
        if self.random.random() < self.faults.crash_inside_step:
            self.crash_inside_step(node)
        try:
            self._run_step(node, running, event, fetched)
        except CrashError:
            if self.running.get(node) is running:
                self.crash(node)

    def _run_step(self, node: int, running: Running, event: Event, fetched: Fetched) -> None:
        core = running.core
        effects = core.step(event, running.local_ms(self.clock.now_ms))
        for effect in effects:
            left = self._crash_after.get(node)
            if left is not None:
                if left == 0:
                    raise CrashError
                self._crash_after[node] = left - 1
            self._obey(node, running, effect, fetched)
        self.checks.stepped(node, core, self.disks[node])
        self.on_stepped(node)

    def _obey(self, node: int, running: Running, effect: Effect, fetched: Fetched) -> None:
        core, disk = running.core, self.disks[node]
        match effect:
            case Persist():
                disk.persist(effect)
                if effect.election.voted == core.config.key:
                    self.checks.voted(core.config.key, effect.election.epoch, core.config.key, disk)
            case Truncate(offset=offset):
                assert offset >= core.high_watermark, self.checks.fail("truncated below the high watermark")
                disk.truncate(offset)
            case AppendControl(epoch=epoch, records=records):
                for record in records:
                    if isinstance(record, VoterSet):
                        self.checks.appends_voters(core, record)
                self._append_entries(node, running, tuple((epoch, record) for record in records))
            case AppendFetched():
                self._append_fetched(node, running, fetched.entries)
            case Flush(end_offset=offset):
                self.clock.plan(self.flush_ms(), partial(self._flush, node, running, offset))
            case Commit(high_watermark=offset):
                self.checks.commits(node, disk, offset, core.epoch)
                self.on_committed(node, offset)
            case Send():
                self._send(node, running, effect)
            case Respond():
                self._respond(node, running, effect)
            case _:
                self._obey_snapshot(node, running, effect, fetched)

    def _obey_snapshot(self, node: int, running: Running, effect: Effect, fetched: Fetched) -> None:
        disk = self.disks[node]
        match effect:
            case BeginSnapshot(snapshot=snapshot_id):
                self._fetching[node] = Partial(snapshot_id)
            case AppendSnapshot(snapshot=snapshot_id, position=position):
                fetching = self._fetching[node]
                assert (fetching.snapshot_id, fetching.received) == (snapshot_id, position), "a part is missing"
                fetching.received += running.core.config.fetch_snapshot_max_bytes
                fetching.snapshot = fetched.snapshot
            case LoadSnapshot(snapshot=snapshot_id):
                snapshot = self._fetching.pop(node).snapshot
                assert snapshot is not None, "a snapshot without parts"
                self.checks.loads(node, snapshot.entries)
                disk.install(snapshot_id, snapshot)
                self.on_loaded(node, snapshot_id)
                offset = snapshot_id.end_offset - 1
                controls = tuple((offset, record) for record in snapshot.controls)
                self._run_step(node, running, SnapshotLoaded(snapshot_id, snapshot.size, controls), NOTHING)

    def _append(self, node: int, entries: tuple[Entry, ...]) -> None:
        running = self.running[node]
        try:
            self._append_entries(node, running, entries)
        except CrashError:
            self.crash(node)

    def _append_fetched(self, node: int, running: Running, entries: tuple[Entry, ...]) -> None:
        """Append fetched records; each batch has records of one epoch."""
        first = 0
        for i in range(1, len(entries) + 1):
            if i == len(entries) or entries[i][0] != entries[first][0]:
                self._append_entries(node, running, entries[first:i], is_last=i == len(entries))
                first = i

    def _append_entries(self, node: int, running: Running, entries: tuple[Entry, ...], *, is_last: bool = True) -> None:
        disk = self.disks[node]
        offset = disk.end
        disk.log += entries
        self.checks.appended(disk, offset)
        event = Appended(disk.end, entries[-1][0], controls_of(entries, offset), is_last)
        self._run_step(node, running, event, NOTHING)

    def _flush(self, node: int, running: Running, end_offset: int) -> None:
        if self.running.get(node) is running:  # a crash ends the flush
            disk = self.disks[node]
            disk.flushed = max(disk.flushed, min(end_offset, disk.end))
            self._step(node, Flushed(end_offset))

    def flush_ms(self) -> int:
        """Draw the duration of a flush: the disk is slow now and then."""
        is_slow = self.random.random() < self.faults.slow_flushes
        return self.random.randint(50, 300) if is_slow else self.random.randint(1, 10)

    # -- the network -----------------------------------------------------------------------------------------------

    def latency(self) -> int:
        """Draw the delay of one message, in milliseconds."""
        return self.random.randint(*self.faults.latency_ms)

    def _is_blocked(self, source: int, target: int) -> bool:
        return (source, target) in self.blocked

    def transmit(self, source: int, target: int) -> Iterable[int]:
        """The delays after which a message arrives: none if it is lost, two if it is duplicated."""
        if self._is_blocked(source, target) or self.random.random() < self.faults.loss:
            return ()
        copies = 2 if self.random.random() < self.faults.duplication else 1
        return tuple(self.latency() for _ in range(copies))

    def _send(self, node: int, running: Running, effect: Send) -> None:
        target = effect.to.port - FIRST_PORT
        request, version = effect.request, 0
        if self.setup.wire:
            version = choose_version(request, self.random, self.faults.old_versions)
            request = pass_request(request, version)
        token = Token(running, node, effect.request_id, request, version)
        for delay_ms in self.transmit(node, target):
            self.clock.plan(delay_ms, partial(self._deliver_request, target, token))

    def _deliver_request(self, target: int, token: Token) -> None:
        running = self.running.get(target)
        if running is not None and not self._is_blocked(token.node, target):
            self._step(target, Received(token, token.request))
        elif token.source is not None and not self._is_blocked(target, token.node):
            # The connection is refused.
            self.clock.plan(self.latency(), partial(self._receive, token.source, token.node, Failed(token.request_id)))

    def _respond(self, node: int, running: Running, effect: Respond) -> None:
        token, response = effect.token, effect.response
        assert isinstance(token, Token)
        if token.source is None:
            self.answers.received[token.request_id] = response
            return
        fetched = self._fetched(node, token, response)
        if self.setup.wire:
            response = pass_response(token.request, response, token.version)
        for delay_ms in self.transmit(node, token.node):
            event = Responded(token.request_id, response)
            self.clock.plan(delay_ms, partial(self._receive, token.source, token.node, event, fetched))
        if isinstance(response, VoteResponse) and response.granted and running.core.role is not Role.CANDIDATE:
            request = token.request
            if isinstance(request, VoteRequest) and not request.pre_vote:
                key = running.core.config.key
                self.checks.voted(key, request.epoch, request.candidate, self.disks[node])

    def _fetched(self, node: int, token: Token, response: Response) -> Fetched:
        disk = self.disks[node]
        request = token.request
        if isinstance(response, FetchResponse) and response.has_records and isinstance(request, FetchRequest):
            count = self.random.randint(1, 5)
            if self.limit is not None:
                count = max(0, min(count, self.limit - request.end.offset))
            return Fetched(disk.read(request.end.offset, count))
        if isinstance(response, FetchSnapshotResponse) and isinstance(request, FetchSnapshotRequest):
            return Fetched(snapshot=disk.snapshots.get(request.snapshot))
        return NOTHING

    def _receive(self, running: Running, node: int, event: Event, fetched: Fetched = NOTHING) -> None:
        if self.running.get(node) is running:
            self._step(node, event, fetched)


def _address(node: int) -> tuple[str, int]:
    return f"node{node}", FIRST_PORT + node


def voter_of(quorum: Quorum, node: int) -> Voter:
    """A node as a voter."""
    return quorum.config(node).voter
