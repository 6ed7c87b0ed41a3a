"""Commands of `raft_*.txt`: replicas of a quorum, their logs, and the messages between them, moved one by one.

    voters N [observers=M] [version=0|1]   start N voters with empty logs and M observers; kraft.version 1 by default
    timeout V                let the election or fetch timeout of replica V elapse
    deliver [V->W]           deliver the messages in flight (of one connection); messages that result stay in flight
    settle                   let messages, flushes and fetches run until nothing changes; prints the status
    elapse SECONDS           let time pass for all replicas, and settle in each second; prints the status
    drop [V->W]              lose the messages in flight (of one connection)
    flush V                  the flush of replica V finishes
    propose V VALUE          replica V, a leader, appends a record
    snapshot V               replica V writes a snapshot of its committed records, and deletes the log below its end
    add V at=L               ask replica L, a leader, to make V a voter
    remove V at=L            ask replica L, a leader, to remove voter V
    upgrade at=L             ask replica L, a leader, to raise kraft.version to 1
    disconnect V->W          replica W notices that the connections of V are closed
    shutdown V               replica V is going to stop
    crash V [lose=N]         replica V stops; the last N records, not flushed, are lost
    start V                  replica V starts from its disk
    status                   print each replica: role, epoch, leader, high watermark and log

A log is written as EPOCH:VALUE entries; `[N]` before them is where it starts, if not at 0. `2@1` is a log end: offset
2, and epoch 1 of the last record. Fields that are the same in all messages, and those without a value, are omitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from enum import IntEnum
from typing import NamedTuple

from ottla.raft import events as e
from ottla.raft import messages as m
from ottla.raft.config import QuorumConfig
from ottla.raft.core import RaftCore
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.raft.values import NO_NODE, Endpoint, LogEnd, Node, ReplicaKey, SnapshotId
from ottla.raft.voters import NO_VOTERS, VoterSet
from tests.simulation.world.quorum_disk import Entry, ReplicaDisk, Snapshot, controls_of, format_disk, text

ELECTION_TIMEOUT_MS, FETCH_TIMEOUT_MS = 10_000, 8_000
SETTLE_MS = 100
ADMINISTRATOR = 0
OMITTED = {"cluster_id", "endpoints", "leader_endpoints", "max_wait_ms", "max_bytes", "request_id", "timeout_ms"}


class NoJitter:
    """Timeouts without a random part."""

    def randrange(self, stop: int, /) -> int:
        return 0


class Message(NamedTuple):
    """A request or response in flight; `token` connects the two."""

    source: int
    target: int
    request_id: int
    content: m.Request | m.Response
    records: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None


class RaftScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        # Each replica has its own clock, so that the timeout of one does not let the others' timers elapse.
        self._now_ms: Counter[int] = Counter()
        self._disks: dict[int, ReplicaDisk] = {}
        self._cores: dict[int, RaftCore] = {}
        self._static = NO_VOTERS
        self._first = range(0)
        self._flushing: dict[int, int] = {}
        self._messages: list[Message] = []
        self._output: list[str] = []

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        self._output = []
        match verb, arguments:
            case "voters", [count]:
                self._begin(int(count), int(options.get("observers", "0")), int(options.get("version", "1")))
            case "deliver", _:
                self._deliver(arguments)
            case "settle", _:
                self._settle()
            case "elapse", [seconds]:
                for _ in range(int(seconds)):
                    for node in list(self._cores):
                        self._now_ms[node] += 1000
                        self._step(node, e.Ticked())
                    self._settle()
            case "drop", _:
                self._output += [f"lost {_message(message)}" for message in self._take(arguments)]
            case "propose", [replica, value]:
                self._propose(int(replica), value)
            case "crash", [replica]:
                self._crash(int(replica), int(options.get("lose", "0")))
            case "status", _:
                self._output += [self._status(replica) for replica in self._disks]
            case "disconnect", [connection]:
                source, _, target = connection.partition("->")
                self._step(int(target), e.Disconnected(int(source)))
            case "upgrade", []:
                self._step(int(options["at"]), e.UpgradeRequested((ADMINISTRATOR, 0), 1))
            case _, [replica]:
                self._run_for(verb, int(replica), int(options.get("at", replica)))
            case _:
                raise ValueError(f"unknown command {verb} {arguments}")
        return self._output

    def _run_for(self, verb: str, replica: int, leader: int) -> None:
        match verb:
            case "timeout":
                self._now_ms[replica] = max(self._now_ms[replica], _deadline_ms(self._cores[replica]))
                self._step(replica, e.Ticked())
            case "flush":
                self._flush(replica)
            case "start":
                self._start(replica)
            case "shutdown":
                self._step(replica, e.ShutdownRequested())
            case "snapshot":
                self._take_snapshot(replica)
            case "add":
                voter = self._config(replica).voter
                request = m.AddVoterRequest(None, 1000, voter.key, voter.endpoints)
                self._step(leader, e.Received((ADMINISTRATOR, 0), request))
            case "remove":
                remove = m.RemoveVoterRequest(None, self._config(replica).key)
                self._step(leader, e.Received((ADMINISTRATOR, 0), remove))
            case _:
                raise ValueError(f"unknown command {verb}")

    # -- commands --------------------------------------------------------------------------------------------------

    def _begin(self, voters: int, observers: int, version: int) -> None:
        self._disks = {node: ReplicaDisk(bytes([node]) * 16) for node in range(1, voters + observers + 1)}
        self._first = range(1, voters + 1)
        first = VoterSet.of(self._config(node).voter for node in self._first)
        if version == 0:
            self._static = VoterSet.of_addresses("CONTROLLER", {node: _address(node) for node in first.ids})
        for node, disk in self._disks.items():
            if version == 1:
                format_disk(disk, first)
            self._start(node)

    def _config(self, node: int) -> QuorumConfig:
        return QuorumConfig(
            node_id=node,
            directory_id=self._disks[node].directory_id,
            static_voters=self._static,
            bootstrap=self._bootstrap(node),
            endpoints=(Endpoint("CONTROLLER", *_address(node)),),
            election_timeout_ms=ELECTION_TIMEOUT_MS,
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
            fetch_snapshot_max_bytes=50,
        )

    def _bootstrap(self, node: int) -> tuple[Node, ...]:
        """Observers ask the voters for the leader. Voters only wait, so that scenarios stay short."""
        return tuple(Node(-1 - each, *_address(each)) for each in (self._first if node not in self._first else [node]))

    def _start(self, node: int) -> None:
        disk = self._disks[node]
        self._cores[node] = RaftCore(self._config(node), disk.election, NoJitter())
        self._step(node, disk.started())

    def _propose(self, node: int, value: str) -> None:
        core = self._cores[node]
        if not core.is_leader:
            raise ValueError(f"replica {node} is not the leader")
        self._append(node, ((core.epoch, value),))

    def _append(self, node: int, entries: tuple[Entry, ...], *, is_last: bool = True) -> None:
        disk = self._disks[node]
        offset = disk.end
        disk.log += entries
        self._step(node, e.Appended(disk.end, entries[-1][0], controls_of(entries, offset), is_last))

    def _take_snapshot(self, node: int) -> None:
        core, disk = self._cores[node], self._disks[node]
        end = core.high_watermark
        version, voters = core.snapshot_controls(end)
        disk.take_snapshot(end, (version,) if voters is None else (version, voters))
        disk.start_at(max(disk.snapshots))
        sizes = tuple((each, snapshot.size) for each, snapshot in disk.snapshots.items())
        self._step(node, e.SnapshotsChanged(sizes, disk.start))

    def _crash(self, node: int, lost: int) -> None:
        disk = self._disks[node]
        if lost > disk.end - disk.flushed:
            raise ValueError(f"only {disk.end - disk.flushed} records of replica {node} are not flushed")
        disk.truncate(disk.end - lost)
        disk.flushed = disk.end
        del self._cores[node]
        self._flushing.pop(node, None)
        self._messages = [each for each in self._messages if each.target != node or isinstance(each.content, m.Request)]

    def _deliver(self, arguments: list[str]) -> None:
        for message in self._take(arguments):
            self._output.append(_message(message))
            if message.target not in self._cores:
                continue
            if isinstance(message.content, m.Request):
                token = (message.source, message.request_id, message.content)
                self._step(message.target, e.Received(token, message.content))
            else:
                self._step(message.target, e.Responded(message.request_id, message.content), message)

    def _take(self, arguments: list[str]) -> list[Message]:
        taken, left = [], []
        for message in self._messages:
            matches = not arguments or arguments[0] == f"{message.source}->{message.target}"
            (taken if matches else left).append(message)
        self._messages = left
        return taken

    def _settle(self) -> None:
        before: list[str] = []
        for _ in range(30):
            for _ in range(30):
                for node in sorted(self._flushing):
                    self._flush(node)
                self._deliver([])
            status = [self._status(node) for node in self._disks]
            if status == before:
                break
            before = status
            for node in list(self._cores):
                self._now_ms[node] += SETTLE_MS
                self._step(node, e.Ticked())
        self._output = status

    def _flush(self, node: int) -> None:
        end_offset = self._flushing.pop(node)
        disk = self._disks[node]
        disk.flushed = max(disk.flushed, min(end_offset, disk.end))
        self._step(node, e.Flushed(end_offset))

    # -- effects ---------------------------------------------------------------------------------------------------

    def _step(self, node: int, event: e.Event, message: Message | None = None) -> None:
        core = self._cores[node]
        for effect in core.step(event, self._now_ms[node]):
            self._output.append(f"  {node}: {_effect(effect)}")
            self._obey(node, effect, message)
        core.validate()

    def _obey(self, node: int, effect: e.Effect, message: Message | None) -> None:
        disk = self._disks[node]
        match effect:
            case e.Persist():
                disk.persist(effect)
            case e.Truncate(offset=offset):
                disk.truncate(offset)
            case e.AppendControl(epoch=epoch, records=records):
                self._append(node, tuple((epoch, record) for record in records))
            case e.AppendFetched():
                assert message is not None
                for left, entry in zip(reversed(range(len(message.records))), message.records, strict=True):
                    self._append(node, (entry,), is_last=not left)
            case e.Flush(end_offset=offset):
                self._flushing[node] = offset
            case e.LoadSnapshot(snapshot=snapshot_id):
                assert message is not None
                assert message.snapshot is not None
                disk.install(snapshot_id, message.snapshot)
                controls = tuple((snapshot_id.end_offset - 1, record) for record in message.snapshot.controls)
                self._step(node, e.SnapshotLoaded(snapshot_id, message.snapshot.size, controls))
            case e.Send(request_id=request_id, to=to, request=request):
                self._messages.append(Message(node, to.port, request_id, request))
            case e.Respond(token=token, response=response):
                self._respond(node, token, response)

    def _respond(self, node: int, token: e.Token, response: m.Response) -> None:
        assert isinstance(token, tuple)
        if token[0] == ADMINISTRATOR:
            return
        source, request_id, request = token
        disk, records, snapshot = self._disks[node], (), None
        if isinstance(response, m.FetchResponse) and response.has_records:
            records = tuple(disk.log[request.end.offset - disk.start :])
        elif isinstance(response, m.FetchSnapshotResponse):
            snapshot = disk.snapshots.get(response.snapshot)
        self._messages.append(Message(node, source, request_id, response, records, snapshot))

    # -- output ----------------------------------------------------------------------------------------------------

    def _status(self, node: int) -> str:
        disk, core = self._disks[node], self._cores.get(node)
        start = f"[{disk.start}] " if disk.start else ""
        log = start + (" ".join(map(text, disk.log)) or "empty")
        if core is None:
            return f"{node}: stopped log={log}"
        observes = "" if core.is_voter else " observer"
        return (
            f"{node}: {core.role.value}{observes} epoch={core.epoch} leader={_node(core.election.leader_id)}"
            f" high_watermark={core.high_watermark} log={log}"
        )


def _address(node: int) -> tuple[str, int]:
    return f"node{node}", node


def _deadline_ms(core: RaftCore) -> int:
    state = core._q.state
    if isinstance(state, Unattached | Prospective | Candidate | Resigned):
        return state.election_deadline_ms
    return state.fetch_deadline_ms if isinstance(state, Follower) else state.check_deadline_ms()


def _node(node: int) -> str:
    return "none" if node == NO_NODE else str(node)


def _message(message: Message) -> str:
    records = " ".join(map(text, message.records))
    line = f"{message.source}->{message.target} {_value(message.content)}"
    return f"{line} records={records}" if records else line


def _effect(effect: e.Effect) -> str:
    match effect:
        case e.Persist(election=election):
            voted = _node(election.voted.node_id)
            return f"Persist epoch={election.epoch} leader={_node(election.leader_id)} vote={voted}"
        case e.Send(to=to, request=request):
            return f"Send to={to.port} {_value(request)}"
        case e.Respond(token=token, response=response):
            assert isinstance(token, tuple)
            to = "administrator" if token[0] == ADMINISTRATOR else token[0]
            return f"Respond to={to} {_value(response)}"
        case e.AppendControl(epoch=epoch, records=records):
            return f"AppendControl {' '.join(text((epoch, record)) for record in records)}"
    return _value(effect)


def _value(value: object) -> str:
    """The type and the fields of an event or effect."""
    parts = [type(value).__name__]
    for field in fields(value):  # type: ignore[arg-type]
        content = getattr(value, field.name)
        if field.name in OMITTED or content is None or (content == 0 and isinstance(content, bool | IntEnum)):
            continue
        if field.name == "log_start_offset" and not content:
            continue
        parts.append(f"{field.name}={_text(content, is_node=field.name == 'leader_id')}")
    return " ".join(parts)


def _text(content: object, *, is_node: bool) -> str:
    if isinstance(content, LogEnd):
        return f"{content.offset}@{content.epoch}"
    if isinstance(content, SnapshotId):
        return f"{content.end_offset}@{content.epoch}"
    if isinstance(content, ReplicaKey):
        return _node(content.node_id)
    if isinstance(content, IntEnum):
        return content.name
    if isinstance(content, int) and is_node:
        return _node(content)
    if isinstance(content, tuple):
        return ",".join(_text(each, is_node=False) for each in content)
    return str(content)
