"""A core without a shell: events in, and the effects of each step as a list."""

from __future__ import annotations

from random import Random

from ottla.raft import Election, LogEnd, QuorumConfig, RaftCore, ReplicaKey, Voter, VoterSet
from ottla.raft import messages as m
from ottla.raft.control import KRaftVersion
from ottla.raft.events import AppendControl, Appended, Effect, Event, Received, Respond, Responded, Send, Started
from ottla.raft.values import BOOTSTRAP_SNAPSHOT, Endpoint
from ottla.raft.voters import VersionRange

EMPTY = LogEnd(0, 0)


def directory(node: int) -> bytes:
    """The directory id of a node."""
    return bytes([node]) * 16


def key(node: int) -> ReplicaKey:
    """The replica of a node."""
    return ReplicaKey(node, directory(node))


def voter(node: int) -> Voter:
    """A node as a voter."""
    return Voter(key(node), (Endpoint("CONTROLLER", f"node{node}", 9000 + node),), VersionRange(0, 1))


def voters(*nodes: int) -> VoterSet:
    """Nodes as a voter set."""
    return VoterSet.of(voter(node) for node in nodes)


class Replica:
    """Node 1 with kraft.version 1, unless `static`; appends are reported at once, and flushes by the test."""

    def __init__(self, *nodes: int, election: Election | None = None, started: Started | None = None) -> None:
        config = QuorumConfig(
            node_id=1, directory_id=directory(1), cluster_id="c", endpoints=voter(1).endpoints, fetch_timeout_ms=2000
        )
        self.core = RaftCore(config, election or Election(), Random(0))
        self.now_ms = 0
        self.effects: list[Effect] = []
        default = Started(
            EMPTY,
            0,
            controls=((-1, KRaftVersion(1)), (-1, voters(*nodes))),
            snapshots=((BOOTSTRAP_SNAPSHOT, 100),),
        )
        self.step(started or default)

    def step(self, event: Event) -> list[Effect]:
        """Pass an event, and report appends of control records; returns all effects."""
        self.effects = self._step(event)
        return self.effects

    def _step(self, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self.core.step(event, self.now_ms):
            effects.append(effect)
            if isinstance(effect, AppendControl):
                start = self.core.end.offset
                end = start + len(effect.records)
                records = tuple(
                    (offset, record)
                    for offset, record in enumerate(effect.records, start)
                    if isinstance(record, KRaftVersion | VoterSet)
                )
                effects += self._step(Appended(end, effect.epoch, records))
        self.core.validate()
        return effects

    def ask(self, request: m.Request) -> m.Response:
        """Pass a request; returns the response, which must come at once."""
        effects = self.step(Received("token", request))
        (response,) = [each.response for each in effects if isinstance(each, Respond) and each.token == "token"]
        return response

    def sent(self, kind: type[m.Request]) -> list[Send]:
        """The requests of this type in the last step."""
        return [each for each in self.effects if isinstance(each, Send) and isinstance(each.request, kind)]

    def answer(self, sent: Send, response: m.Response) -> list[Effect]:
        """Pass the response to a request."""
        return self.step(Responded(sent.request_id, response))
