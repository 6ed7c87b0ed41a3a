"""A complete broker on a given disk: metadata log, log directories and groups, as `Node` composes them.

Requests are encoded, and passed to the broker's dispatcher without a socket. Blocking work runs on the event loop, so
that a run depends on its seed only. To simulate a crash, call `abandon` and start another `NodeOnDisk` on the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.broker.dispatch import Dispatcher
from ottla.broker.server import Node
from ottla.cluster.metadata.log import Phase
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig
from ottla.log import Files
from ottla.protocol import frames
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.records import check_crc, decode_batch, iter_batches
from ottla.testing.clock import MovableClock
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.unit.broker.harness import Connection, produce_request, received

ANSWER_WITHIN_S = 10.0
COORDINATOR_LOADS = 14
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "3600000",
    "log.cleaner.enable": "false",
}


class InlineThreads:
    """Runs work on the event loop, in its next iteration, so that requests of one iteration share an fsync."""

    def run(self, work: Callable[[], object]) -> Completion[None]:
        completion: Completion[None] = Completion()
        asyncio.get_running_loop().call_soon(self._do, work, completion)
        return completion

    @staticmethod
    def _do(work: Callable[[], object], completion: Completion[None]) -> None:
        try:
            work()
        except (KafkaError, OSError) as error:
            completion.fail(error)
        else:
            completion.complete(None)

    def close(self) -> None:
        pass


class NodeOnDisk:
    """A broker from one start to its end."""

    def __init__(self, files: Files, *directories: Path, clock: Any = None, **settings: object) -> None:
        own: Mapping[str, str] = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig({**SETTINGS, "log.dirs": ",".join(map(str, directories)), **own})
        self.clock = clock or MovableClock()
        self.client = Connection()
        self.files = files
        self.problem: BaseException | None = None
        self.stopping = asyncio.Event()
        self.node = Node(self.config, self.clock, self.stopping, files=files)
        for threads in (self.node._schedulers.flush_threads, self.node._metadata.threads):
            threads.close()
        self.node._schedulers.flush_threads = self.node._metadata.threads = InlineThreads()  # type: ignore[assignment]

    async def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_problem)
        await self.node.start()
        self.dispatch = Dispatcher(self.node.broker)

    def _note_problem(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # The broker would log this exception with a traceback: a crash of the disk, or an unhandled error.
        self.problem = context.get("exception") or RuntimeError(str(context))

    def check(self) -> None:
        """Raise the exception of an event loop callback, or Crash if the disk has crashed meanwhile."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        if isinstance(self.files, SimulatedDisk) and self.files.crashed:
            raise Crash  # the broker caught the exception, as it does with unhandled errors

    async def stop(self) -> None:
        await self.node.close()

    async def abandon(self) -> None:
        """Release files, locks and sockets as the operating system does for a dead process; writes nothing."""
        node = self.node
        node._housekeeping.stop()
        if node.network is not None:
            await node.network.close(0.0)
        if node._started:
            node.broker.coordinators.close()
        node._listeners.close()
        metadata = node._metadata.shell
        if metadata is not None:
            metadata._phase = Phase.CLOSED
            metadata.log.abandon()
        node._logs.close(None)
        await asyncio.sleep(0)

    def chores(self) -> None:
        """Run periodic work now: checkpoints, retention, flushes, metadata snapshots."""
        self.node.clock_moved()

    # -- requests ----------------------------------------------------------------------------------------------

    async def ask(self, request: Any, version: int) -> Any:
        frame = memoryview(bytearray(b"".join(frames.encode_request(request, version, 77, "test"))))[4:]
        answer = self.dispatch(self.client, frame)  # type: ignore[arg-type]
        if isinstance(answer, Completion):
            deadline = time.monotonic() + ANSWER_WITHIN_S
            while not answer.done:
                assert time.monotonic() < deadline, f"no answer to {type(request).__name__}"
                self.check()
                await asyncio.sleep(0)
            answer = answer.result()
        return received(request.API_KEY, version, answer)

    async def create(self, name: str, partitions: int = 1, **configs: object) -> None:
        settings = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()]
        request = CreateTopicsRequest(topics=[CreatableTopic(name, partitions, 1, configs=settings)], timeout_ms=1000)
        topic = (await self.ask(request, 5)).topics[0]
        assert topic.error_code == 0, topic.error_message
        await self.until(lambda: self._serves(name, partitions))

    def _serves(self, name: str, partitions: int) -> bool:
        try:
            return all(self.node.broker.partitions.get(name, i) is not None for i in range(partitions))
        except KafkaError:
            return False

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while not condition():
            self.check()
            assert time.monotonic() < deadline, "the condition did not become true"
            await asyncio.sleep(0)

    async def produce(self, topic: str, data: bytes | bytearray, index: int = 0) -> tuple[int, int]:
        """Append one batch; returns (error code, base offset)."""
        answer = await self.ask(produce_request((topic, {index: data})), 7)
        partition = answer.responses[0].partition_responses[0]
        return partition.error_code, partition.base_offset

    async def fetch(self, topic: str, offset: int, index: int = 0) -> tuple[int, int, bytes]:
        """Fetch once; returns (error code, high watermark, batches)."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 25,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 25)],
                )
            ],
        )
        partition = (await self.ask(request, 11)).responses[0].partitions[0]
        return partition.error_code, partition.high_watermark, bytes(partition.records or b"")

    async def read(self, topic: str, offset: int = 0, index: int = 0) -> tuple[dict[int, bytes | None], list[int]]:
        """Read to the end with CRC checks; returns the values by offset and the base offsets of rejected batches."""
        found: dict[int, bytes | None] = {}
        refused: list[int] = []
        while True:
            error, end, data = await self.fetch(topic, offset, index)
            assert error == 0, f"error {error} at offset {offset} of {topic}-{index}"
            before = offset
            for position, header in iter_batches(data):
                if header.next_offset <= offset:
                    continue
                if not check_crc(data, position, header.size):
                    refused.append(header.base_offset)
                else:
                    found.update((r.offset, r.value) for r in decode_batch(data, position) if r.offset >= offset)
                offset = header.next_offset
            if offset >= end:
                return found, refused
            assert offset > before, f"no batch at offset {offset}, although the high watermark is {end}"

    async def commit(self, group: str, topic: str, offset: int, index: int = 0) -> int:
        """Commit an offset for a group without members; returns the error code."""
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        request = OffsetCommitRequest(group_id=group, topics=topics, generation_id_or_member_epoch=-1, member_id="")
        answer = await self._coordinated(lambda: self.ask(request, 8))
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        await self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            found = (await self.ask(request, 8)).groups[0]
            if found.error_code not in (COORDINATOR_LOADS, 15, 16):
                break
            self.check()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)
        assert found.error_code == 0, f"error {found.error_code}"
        return {(t.name, p.partition_index): p.committed_offset for t in found.topics for p in t.partitions}

    async def _coordinated(self, ask: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            coordinator = (await self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)).coordinators
            answer = await ask()
            if not coordinator[0].error_code and answer.topics[0].partitions[0].error_code not in (14, 15, 16):
                return answer
            self.check()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)
