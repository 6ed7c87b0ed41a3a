"""A controller's core with any response of another node, decoded from any message, in any state and at any time.

A core may ignore or refuse a response, or stop because two nodes claim to have led the same epoch. An assertion or
another Python exception is a defect, since it would end the node. Responses that lie may break the promises of the
quorum: only the core's own consistency is checked.
"""

from __future__ import annotations

import contextlib
import os
from random import Random

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import registry
from ottla.protocol.message import Message
from ottla.raft import LogEnd, wire_requests, wire_responses
from ottla.raft.control import KRaftVersion
from ottla.raft.events import (
    AppendControl,
    Appended,
    AppendFetched,
    Effect,
    Event,
    Failed,
    Flush,
    Flushed,
    LoadSnapshot,
    Responded,
    Send,
    SnapshotLoaded,
    SnapshotRejected,
    Ticked,
)
from ottla.raft.messages import ApiVersionsRequest
from ottla.raft.state import QuorumError
from ottla.raft.voters import VoterSet
from ottla.raft.wire_responses import InvalidResponseError
from tests.unit.raft.support import Replica

from .test_client_cores import Broker

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "40")))
STEPS = 250
# One partition of the metadata log, and nodes that exist.
LIKELY = {
    "topics": (), "responses": (), "partitions": (), "topic_name": (METADATA_TOPIC,), "topic": (METADATA_TOPIC,),
    "name": (METADATA_TOPIC,), "topic_id": (METADATA_TOPIC_ID,), "partition_index": (0,), "index": (0,),
    "error_code": (0, 0, 0, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "leader_id": (1, 2, 2, 3, -1), "leader_epoch": (0, 1, 2, 3, 5, 9), "vote_granted": (True, True, False),
}  # fmt: skip


class Node(Replica):
    """Node 1 of three voters. Its shell obeys the effects; the other nodes answer anything."""

    def __init__(self, seed: int) -> None:
        self.broker = Broker(seed, largest=5, likely=LIKELY)
        self.random: Random = self.broker.random
        self.sends: list[Send] = []
        self.flush: int | None = None
        self.response: Message | None = None
        super().__init__(1, 2, 3)

    def _step(self, event: Event) -> list[Effect]:
        effects = self.core.step(event, self.now_ms)
        for effect in effects:
            self._obey(effect)
        self.core.validate()
        return effects

    def _obey(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.sends.append(effect)
        elif isinstance(effect, Flush):
            self.flush = effect.end_offset
        elif isinstance(effect, AppendFetched):
            assert self.response is not None
            wire_responses.records_of(self.response)
            end = self.core.end
            epoch = self.random.randint(end.epoch, max(end.epoch, self.core.epoch))
            self._step(Appended(end.offset + self.random.randint(1, 3), epoch, ()))
        elif isinstance(effect, LoadSnapshot):
            loaded = SnapshotLoaded(effect.snapshot, 100)
            self._step(loaded if self.random.random() < 0.7 else SnapshotRejected(effect.snapshot))
        elif isinstance(effect, AppendControl):
            start = self.core.end.offset
            numbered = enumerate(effect.records, start)
            records = tuple((at, each) for at, each in numbered if isinstance(each, KRaftVersion | VoterSet))
            self._step(Appended(start + len(effect.records), effect.epoch, records))

    def respond(self) -> None:
        """Answer one of the requests, or lose it."""
        if not self.sends:
            return
        send = self.sends.pop(self.random.randrange(len(self.sends)))
        message = None
        if not isinstance(send.request, ApiVersionsRequest) and self.random.random() < 0.9:
            message = self.broker.fill(registry.response_class(wire_requests.encode(send.request).API_KEY))
        try:
            event: Event = Failed(send.request_id)
            if message is not None:
                event = Responded(send.request_id, wire_responses.decode(message, "CONTROLLER"))
                self.response = message
        except InvalidResponseError:
            event = Failed(send.request_id)
        self._step(event)

    def flushed(self) -> None:
        if self.flush is not None:
            end, self.flush = self.flush, None
            self._step(Flushed(max(end, self.core.end.offset)))

    def tick(self) -> None:
        self.now_ms += self.random.choice((1, 100, 2_500))
        self._step(Ticked())


@pytest.mark.parametrize("seed", SEEDS)
def test_controller_survives_any_response(seed: int) -> None:
    node = Node(seed)
    with contextlib.suppress(QuorumError):  # two leaders of one epoch: the node stops
        for _ in range(STEPS):
            node.random.choice((node.respond, node.respond, node.flushed, node.tick))()
    assert node.core.end >= LogEnd(0, 0)
