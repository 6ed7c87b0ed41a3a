"""Commands of `raft_*.txt`: voters of a quorum, their logs, and the messages between them, moved one by one.

    voters N                 start N voters with empty logs
    timeout V                let the election timeout of voter V elapse
    deliver [V->W]           deliver the messages in flight (of one connection); messages that result stay in flight
    settle                   let messages, flushes and fetches run until nothing changes; prints the status
    drop [V->W]              lose the messages in flight (of one connection)
    flush V                  the flush of voter V finishes
    propose V VALUE          voter V, a leader, appends a record
    crash V [lose=N]         voter V stops; the last N records, not flushed, are lost
    start V                  voter V starts from its disk
    status                   print each voter: role, epoch, leader, high watermark and log

A log is written as EPOCH:VALUE entries. `2@1` is a log end: offset 2, and epoch 1 of the last record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

from ottla.raft.core import RaftCore
from ottla.raft.events import (
    NO_NODE,
    Appended,
    AppendFetched,
    AppendLeaderChange,
    Commit,
    Effect,
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
from tests.simulation.world.quorum import Entry, VoterDisk

ELECTION_TIMEOUT_MS, FETCH_TIMEOUT_MS = 10_000, 8_000
# A follower without new records repeats its fetch after an eighth of the fetch timeout.
FETCH_INTERVAL_MS = FETCH_TIMEOUT_MS // 8


class NoJitter:
    """Timeouts without a random part."""

    def randrange(self, stop: int, /) -> int:
        return 0


class Message(NamedTuple):
    source: int
    target: int
    event: Event
    records: tuple[Entry, ...]


class RaftScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        # Each voter has its own clock, so that the timeout of one voter does not let the others' timers elapse.
        self._now_ms: Counter[int] = Counter()
        self._disks: dict[int, VoterDisk] = {}
        self._cores: dict[int, RaftCore] = {}
        self._flushing: dict[int, int] = {}
        self._messages: list[Message] = []
        self._output: list[str] = []

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        self._output = []
        match verb, arguments:
            case "voters", [count]:
                self._disks = {voter: VoterDisk() for voter in range(1, int(count) + 1)}
                for voter in self._disks:
                    self._start(voter)
            case "timeout", [voter]:
                self._now_ms[int(voter)] = self._cores[int(voter)]._election_deadline_ms
                self._step(int(voter), Ticked())
            case "deliver", _:
                self._deliver(arguments)
            case "settle", _:
                self._settle()
            case "drop", _:
                dropped = self._take(arguments)
                self._output += [f"lost {_message(message)}" for message in dropped]
            case "flush", [voter]:
                self._flush(int(voter))
            case "propose", [voter, value]:
                core, disk = self._cores[int(voter)], self._disks[int(voter)]
                if not core.is_leader:
                    raise ValueError(f"voter {voter} is not the leader")
                disk.log.append((core.epoch, value))
                self._step(int(voter), Appended(len(disk.log), core.epoch))
            case "crash", [voter]:
                self._crash(int(voter), int(options.get("lose", "0")))
            case "start", [voter]:
                self._start(int(voter))
            case "status", _:
                self._output += [self._status(voter) for voter in self._disks]
            case _:
                raise ValueError(f"unknown command {verb} {arguments}")
        return self._output

    # -- commands --------------------------------------------------------------------------------------------------

    def _start(self, voter: int) -> None:
        disk = self._disks[voter]
        self._cores[voter] = RaftCore(
            voter,
            self._disks,
            disk.election,
            NoJitter(),
            election_timeout_ms=ELECTION_TIMEOUT_MS,
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
        )
        starts: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(disk.log):
            starts.setdefault(epoch, offset)
        self._step(voter, Started(_log_end(disk), disk.flushed, tuple(starts.items())))

    def _crash(self, voter: int, lost: int) -> None:
        disk = self._disks[voter]
        if lost > len(disk.log) - disk.flushed:
            raise ValueError(f"only {len(disk.log) - disk.flushed} records of voter {voter} are not flushed")
        del disk.log[len(disk.log) - lost :]
        disk.flushed = len(disk.log)
        del self._cores[voter]
        self._flushing.pop(voter, None)

    def _deliver(self, arguments: list[str]) -> None:
        for message in self._take(arguments):
            self._output.append(_message(message))
            if message.target in self._cores:
                self._step(message.target, message.event, message.records)

    def _take(self, arguments: list[str]) -> list[Message]:
        taken, left = [], []
        for message in self._messages:
            matches = not arguments or arguments[0] == f"{message.source}->{message.target}"
            (taken if matches else left).append(message)
        self._messages = left
        return taken

    def _settle(self) -> None:
        before: list[str] = []
        while True:
            while self._flushing or self._messages:
                for voter in sorted(self._flushing):
                    self._flush(voter)
                self._deliver([])
            status = [self._status(voter) for voter in self._disks]
            if status == before:
                break
            before = status
            for voter, core in self._cores.items():
                self._now_ms[voter] += FETCH_INTERVAL_MS
                if core.deadline_ms <= self._now_ms[voter]:
                    self._step(voter, Ticked())
        self._output = status

    def _flush(self, voter: int) -> None:
        end_offset = self._flushing.pop(voter)
        disk = self._disks[voter]
        disk.flushed = max(disk.flushed, min(end_offset, len(disk.log)))
        self._step(voter, Flushed(end_offset))

    # -- effects ---------------------------------------------------------------------------------------------------

    def _step(self, voter: int, event: Event, records: tuple[Entry, ...] = ()) -> None:
        core = self._cores[voter]
        for effect in core.step(event, self._now_ms[voter]):
            self._output.append(f"  {voter}: {_effect(effect, records)}")
            self._obey(voter, effect, records)
        core.validate()

    def _obey(self, voter: int, effect: Effect, records: tuple[Entry, ...]) -> None:
        disk = self._disks[voter]
        match effect:
            case Persist():
                disk.election = effect.election
            case Truncate():
                del disk.log[effect.offset :]
                disk.flushed = min(disk.flushed, effect.offset)
            case AppendLeaderChange():
                disk.log.append((effect.epoch, f"leader-{effect.leader_id}"))
                self._step(voter, Appended(len(disk.log), effect.epoch))
            case AppendFetched():
                for entry in records:
                    disk.log.append(entry)
                    self._step(voter, Appended(len(disk.log), entry[0]))
            case Flush():
                self._flushing[voter] = effect.end_offset
            case Send(to=target, message=message):
                fetched: tuple[Entry, ...] = ()
                if isinstance(message, FetchResponse) and message.diverged is None:
                    fetched = tuple(disk.log[message.from_offset :])
                self._messages.append(Message(voter, target, message, fetched))

    # -- output ----------------------------------------------------------------------------------------------------

    def _status(self, voter: int) -> str:
        disk, core = self._disks[voter], self._cores.get(voter)
        log = " ".join(f"{epoch}:{value}" for epoch, value in disk.log) or "empty"
        if core is None:
            return f"{voter}: stopped log={log}"
        return (
            f"{voter}: {core.role.value} epoch={core.epoch} leader={_voter(core.election.leader_id)}"
            f" high_watermark={core.high_watermark} log={log}"
        )


def _log_end(disk: VoterDisk) -> LogEnd:
    return LogEnd(len(disk.log), disk.log[-1][0] if disk.log else -1)


def _voter(voter: int) -> str:
    return "none" if voter == NO_NODE else str(voter)


def _message(message: Message) -> str:
    records = " ".join(f"{epoch}:{value}" for epoch, value in message.records)
    text = f"{message.source}->{message.target} {_value(message.event)}"
    return f"{text} records={records}" if records else text


def _effect(effect: Effect, records: tuple[Entry, ...]) -> str:
    match effect:
        case Persist(election=election):
            return (
                f"Persist epoch={election.epoch} leader={_voter(election.leader_id)} vote={_voter(election.voted_id)}"
            )
        case Send(to=target, message=message):
            return f"Send to={target} {_value(message)}"
        case AppendFetched():
            return f"AppendFetched {' '.join(f'{epoch}:{value}' for epoch, value in records) or 'nothing'}"
        case Commit(high_watermark=offset):
            return f"Commit high_watermark={offset}"
    return _value(effect)


def _value(value: object) -> str:
    """The type and the fields of an event or effect."""
    parts = [type(value).__name__]
    for field in fields(value):  # type: ignore[arg-type]
        content = getattr(value, field.name)
        if content is None:
            continue
        if isinstance(content, LogEnd):
            content = f"{content.offset}@{content.epoch}"
        elif isinstance(content, tuple):
            content = ",".join(map(str, content))
        elif field.name == "leader_id":
            content = _voter(content)
        parts.append(f"{field.name}={content}")
    return " ".join(parts)
