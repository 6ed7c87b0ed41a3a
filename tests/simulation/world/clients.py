"""Clients that speak the wire protocol to a simulated broker, over a network that loses requests and responses.

They keep the rules of Kafka's clients that the broker's promises depend on: an idempotent producer sends a batch with
the same sequence until it is acknowledged, and a consumer continues at its committed offset after a restart.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.records import BatchProducer, encode_batch
from tests.simulation.world.broker import NodeOnDisk
from tests.simulation.world.network import Network

MOST_ATTEMPTS = 50


class MessageLost(Exception):
    """A request or its response was lost; the client cannot know which."""


class Link:
    """The connection of a client to the broker, which may be restarted between two requests."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.broker: NodeOnDisk | None = None

    async def ask(self, request: object, version: int) -> Any:
        """Send a request once; raises MessageLost if there is no response."""
        if self.broker is None or self.network.loses():
            raise MessageLost
        response = await self.broker.ask(request, version)
        if self.network.loses():
            raise MessageLost
        return response

    async def ask_until_answered(self, request: object, version: int) -> Any:
        """Send a request until a response arrives."""
        for _ in range(MOST_ATTEMPTS):
            try:
                return await self.ask(request, version)
            except MessageLost:
                continue
        raise AssertionError(f"no response to {type(request).__name__} in {MOST_ATTEMPTS} attempts")


class IdempotentProducer:
    """Writes to one partition, one batch in flight."""

    def __init__(self, link: Link, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[bytes] = []
        """The values by offset: the producer is the partition's only writer."""
        self._link = link
        self._producer_id = -1
        self._unacknowledged: list[bytes] = []

    async def send(self, values: list[bytes]) -> None:
        """Write `values`; if the broker crashes meanwhile, `resume` finishes the batch."""
        assert not self._unacknowledged, "the previous batch is in flight"
        self._unacknowledged = values
        await self.resume()

    async def resume(self) -> None:
        """Send the batch in flight, if any, until it is acknowledged."""
        if self._producer_id < 0:
            response = await self._link.ask_until_answered(InitProducerIdRequest(transactional_id=None), 4)
            assert response.error_code == 0
            self._producer_id = response.producer_id
        while self._unacknowledged:
            try:
                error, offset = await self._send_once()
            except MessageLost:
                continue
            assert (error, offset) == (0, len(self.acknowledged))
            self.acknowledged += self._unacknowledged
            self._unacknowledged = []

    async def _send_once(self) -> tuple[int, int]:
        now_ms = self._link.network.clock.wall_ms()
        batch = encode_batch(
            [(now_ms, None, value, []) for value in self._unacknowledged],
            producer=BatchProducer(self._producer_id, 0, len(self.acknowledged)),
        )
        network, broker = self._link.network, self._link.broker
        if broker is None or network.loses():
            raise MessageLost
        answer = await broker.produce(self.topic, batch)
        if network.loses():
            raise MessageLost
        return answer


class GroupConsumer:
    """Reads one partition and commits its position for a group without members."""

    def __init__(self, link: Link, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.position = 0
        self.committed = 0
        """The offset of the last acknowledged commit."""
        self.seen: dict[int, bytes | None] = {}
        """All values that were ever read, by offset."""
        self._link = link

    async def poll(self) -> None:
        """Read up to the high watermark; an offset must always have the same value."""
        broker = self._link.broker
        assert broker is not None
        found, refused = await broker.read(self.topic, self.position)
        assert not refused, f"wrong CRCs at {refused}"
        for offset, value in found.items():
            assert offset == self.position, f"skipped from {self.position} to {offset}"
            assert self.seen.setdefault(offset, value) == value, f"the value at offset {offset} changed"
            self.position = offset + 1

    async def commit(self) -> None:
        """Commit the position; a lost response leaves it open whether the commit took effect."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.position)
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=[partition])]
        request = OffsetCommitRequest(group_id=self.group, topics=topics, generation_id_or_member_epoch=-1)
        broker = self._link.broker
        assert broker is not None
        await broker.committed(self.group)  # creates the offsets topic and waits until the coordinator has loaded
        response = await self._link.ask(request, 8)
        assert response.topics[0].partitions[0].error_code == 0
        self.committed = self.position

    async def restart(self) -> None:
        """Lose the position and continue at the committed offset."""
        broker = self._link.broker
        assert broker is not None
        offset = (await broker.committed(self.group)).get((self.topic, 0), 0)
        assert self.committed <= offset <= len(self.seen), "an acknowledged commit is lost"
        self.position = self.committed = offset
