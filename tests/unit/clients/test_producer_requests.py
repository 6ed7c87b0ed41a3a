"""Requests and responses of the producer on real sockets: topic ids, new leaders, forked children."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
import warnings
from collections.abc import Callable, Coroutine

from ottla.clients.producer import AsyncProducer, Producer
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from .fake_broker import Answer, FakeBroker

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def on_a_loop(story: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @functools.wraps(story)
    def test() -> None:
        asyncio.run(asyncio.wait_for(story(), 30))

    return test


class Script:
    """A broker: metadata of one broker with the `topic_id` of the test, and `produce` for produce requests."""

    def __init__(self, topic_id: Uuid) -> None:
        self.topic_id = topic_id
        self.metadata_requests = 0
        self.produced: list[tuple[int, Uuid, str]] = []
        self.port = 0

    def answer(self, header: RequestHeader, request: Message) -> Answer:
        if isinstance(request, MetadataRequest):
            self.metadata_requests += 1
            row = MetadataResponsePartition(leader_id=0, leader_epoch=1, replica_nodes=[0], isr_nodes=[0])
            topic = MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[row])
            broker = MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port)
            return MetadataResponse(brokers=[broker], controller_id=0, topics=[topic] if request.topics else [])
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        assert isinstance(request, ProduceRequest)
        (asked,) = request.topic_data
        self.produced.append((header.api_version, asked.topic_id, asked.name))
        return self.produce(header, asked.topic_id)

    def produce(self, header: RequestHeader, topic_id: Uuid) -> Answer:
        refused = header.api_version >= 13 and topic_id != self.topic_id
        return self.answered(header, topic_id, ErrorCode.UNKNOWN_TOPIC_ID if refused else 0)

    def answered(
        self,
        header: RequestHeader,
        topic_id: Uuid,
        code: int,
        endpoints: tuple[NodeEndpoint, ...] = (),
        leader: int = -1,
    ) -> ProduceResponse:
        row = PartitionProduceResponse(
            index=0, error_code=code, base_offset=len(self.produced) - 1,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=2 if endpoints else -1),
        )  # fmt: skip
        name = "t" if header.api_version < 13 else ""
        return ProduceResponse(
            responses=[TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[row])],
            node_endpoints=list(endpoints),
        )


@on_a_loop
async def test_new_leader_in_a_response_needs_no_metadata_request() -> None:
    script, second = Script(OLD), Script(OLD)
    async with FakeBroker(script.answer) as first_broker, FakeBroker(second.answer) as second_broker:
        script.port = first_broker.port
        hint = (NodeEndpoint(node_id=1, host="127.0.0.1", port=second_broker.port),)
        script.produce = lambda header, topic_id: script.answered(  # type: ignore[method-assign]
            header, topic_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, hint, 1
        )
        async with AsyncProducer(bootstrap_servers=first_broker.address, retry_backoff_ms=5000) as producer:
            delivery = await producer.send("t", b"v")
            assert (await asyncio.wait_for(delivery, 3)).offset == 0
        assert len(script.produced) == len(second.produced) == 1


@on_a_loop
async def test_bootstrap_connection_is_reused_for_its_broker() -> None:
    script = Script(OLD)
    async with FakeBroker(script.answer) as broker:
        script.port = broker.port
        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            await asyncio.wait_for(await producer.send("t", b"v"), 5)
            assert broker.connections == 1


@on_a_loop
async def test_recreated_topic_is_noticed_by_its_id() -> None:
    script = Script(OLD)
    async with FakeBroker(script.answer) as broker:
        script.port = broker.port
        async with AsyncProducer(bootstrap_servers=broker.address, retry_backoff_ms=10) as producer:
            await (await producer.send("t", b"v"))
            script.topic_id = NEW
            asked = script.metadata_requests
            await asyncio.wait_for(await producer.send("t", b"v"), 5)
        *before, last = script.produced
        assert set(before) == {(13, OLD, "")}
        assert last == (13, NEW, "")
        assert script.metadata_requests == asked + 1


@on_a_loop
async def test_blocking_producer_notices_a_recreated_topic_by_its_id() -> None:
    script = Script(OLD)
    async with FakeBroker(script.answer) as broker:
        script.port = broker.port

        def story() -> None:
            with Producer(bootstrap_servers=broker.address, retry_backoff_ms=10) as producer:
                for _ in range(8):
                    producer.send("t", b"v").result(5)
                script.topic_id = NEW
                for _ in range(8):
                    producer.send("t", b"v").result(5)

        await asyncio.wait_for(asyncio.to_thread(story), 20)
        ids = [topic_id for _, topic_id, _ in script.produced]
        refused = len(ids) - 16
        assert refused >= 1
        assert ids == [OLD] * (8 + refused) + [NEW] * 8


@on_a_loop
async def test_requests_contain_topic_names_if_there_are_no_ids() -> None:
    script = Script(ZERO_UUID)
    async with FakeBroker(script.answer) as broker:
        script.port = broker.port

        def story() -> None:
            with Producer(bootstrap_servers=broker.address) as producer:
                for _ in range(8):
                    producer.send("t", b"v").result(5)

        await asyncio.wait_for(asyncio.to_thread(story), 20)
        assert script.produced == [(12, ZERO_UUID, "t")] * 8


def in_a_child(story: Callable[[], None]) -> str:
    """The exception that `story` raised in a forked child, as text; "" if none. A child that hangs is killed."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in programs with threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        said = ""
        try:
            story()
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child hung"
    return said


@on_a_loop
async def test_every_call_in_a_forked_child_raises_immediately() -> None:
    script = Script(OLD)
    async with FakeBroker(script.answer) as broker:
        script.port = broker.port

        def story() -> None:
            with Producer(bootstrap_servers=broker.address, linger_ms=60_000, batch_size=1000) as producer:
                done = producer.send("t", b"v")
                done.result(5)
                pending = producer.send("t", b"v")  # there is an open batch with space
                for call in (
                    lambda: producer.send("t", b"v"),
                    lambda: producer.send("t", b"v", headers={"n": b"v"}),
                    lambda: producer.send("unknown", b"v"),
                    lambda: pending.result(30),
                    lambda: pending.result(0.1),
                    lambda: producer.flush(30),
                ):
                    start = time.monotonic()
                    with producer._lock:  # as another thread may at that moment
                        said = in_a_child(call)  # type: ignore[arg-type]
                    assert said.startswith("ClientError"), said
                    assert "before a fork" in said
                    assert time.monotonic() - start < 15, "it is an error at once"
                assert in_a_child(lambda: print(done.result(5)) or producer.close()) == ""  # type: ignore[func-returns-value]
                assert pending.result(5).offset == 1

        await asyncio.wait_for(asyncio.to_thread(story), 25)
