"""The largest legal requests of each API must not block other clients of a real broker.

The tests measure CPU time: of one event loop iteration, and of the broker while another client waits for its response.
Memory is the peak of the resident size. CPU time depends on the machine, and grows while other processes use the same
caches or the hypervisor takes the processor away. The limits are therefore multiplied by the measured slowness of the
machine, and a request above a limit is measured again: work that always takes long exceeds the limit each time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.broker.served import ANSWERED
from ottla.common.ids import uuid_to_text
from ottla.protocol import frames, registry
from ottla.protocol.message import Message
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests import deadlines
from tests.chaos.machine import slowness
from tests.chaos.support import WatchedProcess, create_topic
from tests.clients.wire import Connection, batch, produce
from tests.fuzz.largest import BROKER_RESOURCE, GROUP, NODE, TOPIC, Request, World, largest_requests

PARTITIONS = 500
SHARE_KEY = 2
ANSWER_WITHIN_S = 60.0
MIB = 1 << 20
# 150 ms for one iteration, and 15 ms for the interval of the measurement.
LONGEST_ITERATION_MS = 165
LONGEST_WAIT_MS = 375
ATTEMPTS = 3
MOST_MEMORY = 160 * MIB
REPORT_PERIOD_S = 0.05
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")

# One broker with its partitions for all of them.
pytestmark = pytest.mark.xdist_group("largest-requests")


class Response(NamedTuple):
    """The size of a response, and its bytes if they are at most 1 MiB."""

    size: int
    content: bytearray


class Broker:
    """A broker that reports the duration of its event loop iterations."""

    def __init__(self, process: WatchedProcess) -> None:
        self.process = process
        create_topic(process, TOPIC, PARTITIONS)
        create_topic(process, "witness")
        self.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        metadata = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
        self.world = World(metadata.topics[0].topic_id, PARTITIONS)
        share = f"{GROUP}:{uuid_to_text(self.world.topic_id)}:0"
        self.ask(FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=[share]), 6)

    def ask(self, request: Message, version: int) -> Message:
        frame = b"".join(frames.encode_request(request, version, 7, "largest"))[4:]
        answer = self.send(Request("", request.API_KEY, version, frame))
        assert answer is not None
        assert len(answer.content) == answer.size
        response = registry.response_class(request.API_KEY)
        position = frames.decode_response_header(answer.content, request.API_KEY, version)[1]
        return response.decode_from(answer.content, position, version)[0]

    def send(self, request: Request, times: int = 1) -> Response | None:
        """Return the last response; None if the broker closed the connection."""
        host, port = self.process.bootstrap.rsplit(":", 1)
        answer = None
        with socket.create_connection((host, int(port)), ANSWER_WITHIN_S) as sock, contextlib.suppress(ConnectionError):
            frame = struct.pack(">i", len(request.frame)) + request.frame
            sender = threading.Thread(target=sock.sendall, args=(frame * times,), daemon=True)
            sender.start()
            for _ in range(times):
                answer = _receive(sock)
            deadlines.join(sender, "the request is sent")
        return answer

    def cpu_ms(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_MS

    def memory(self, kind: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(kind):
                return int(line.split()[1]) * 1024
        raise AssertionError(kind)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def _receive(sock: socket.socket) -> Response | None:
    header = bytearray(4)
    if not _fill(sock, header):
        return None
    (size,) = struct.unpack(">i", header)
    content, left = bytearray(min(size, MIB)), size
    while left:
        # A response of a gigabyte overwrites its beginning.
        part = memoryview(content)[:left]
        if not _fill(sock, part):
            return None
        left -= len(part)
    return Response(size, content)


def _fill(sock: socket.socket, buffer: bytearray | memoryview) -> bool:
    view, at = memoryview(buffer), 0
    while at < len(buffer):
        got = sock.recv_into(view[at:])
        if not got:
            return False
        at += got
    return True


class Witness(threading.Thread):
    """Another client. It measures the broker's CPU time during each of its requests."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._stopping = threading.Event()
        self.waits_ms: list[float] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with Connection(self._broker.process.bootstrap, ANSWER_WITHIN_S) as connection:
                while not self._stopping.is_set():
                    began_ms = self._broker.cpu_ms()
                    assert produce(connection, "witness", batch([b"witness"])).error == 0
                    self.waits_ms.append(self._broker.cpu_ms() - began_ms)
                    self._stopping.wait(0.005)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.problem = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(ANSWER_WITHIN_S)
        assert not self.is_alive(), "the other client gets no response"
        if self.problem is not None:
            raise self.problem


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "false"}
    process = WatchedProcess(tmp_path_factory.mktemp("largest"), settings)
    process.period_s = REPORT_PERIOD_S
    with process:
        yield Broker(process)
    process.assert_no_traceback()


class Cost(NamedTuple):
    """The effect of a request on the broker: CPU times, and the growth of its memory."""

    answer: Response | None
    longest_ms: float
    p99_ms: float
    memory: int

    def is_within(self, most_memory: int) -> bool:
        excess = max(self.longest_ms / LONGEST_ITERATION_MS, self.p99_ms / LONGEST_WAIT_MS)
        return self.memory < most_memory and (excess < 1 or excess < slowness())


def check(
    watched: Broker, request: Request, most_memory: int = MOST_MEMORY, *, times: int = 1, connections: int = 1
) -> Response | None:
    """Send a request repeatedly on several connections, check its effect on other clients, and return a response."""
    for _ in range(ATTEMPTS):
        cost = measure(watched, request, times, connections)
        answered = cost.answer.size if cost.answer is not None else 0
        figures = (
            f"{request.title}: {len(request.frame) >> 10} KiB, answered with {answered >> 10} KiB; the"
            f" longest iteration of the loop {cost.longest_ms:.0f} ms, the other client's p99 {cost.p99_ms:.0f} ms,"
            f" {cost.memory / MIB:.0f} MiB more"
        )
        print(figures)
        if cost.is_within(most_memory):
            return cost.answer
    raise AssertionError(figures)


def measure(watched: Broker, request: Request, times: int, connections: int) -> Cost:
    """Send a request repeatedly on several connections, beside another client."""
    reported, before = watched.process.reported(), watched.memory("VmRSS:")
    watched.forget_peak()
    witness = Witness(watched)
    witness.start()
    try:
        senders = deadlines.in_threads([partial(watched.send, request, times)] * connections, "sender")
        answers = deadlines.results(senders, "all responses", 2 * ANSWER_WITHIN_S)
        answer = answers[0]
        watched.process.wait_for_reports()
    finally:
        witness.stop()
    longest_ms = max(each["turn"] for each in watched.process.held(reported)) * 1000
    waits_ms = sorted(witness.waits_ms)
    p99_ms = waits_ms[int(len(waits_ms) * 0.99)]
    return Cost(answer, longest_ms, p99_ms, watched.memory("VmHWM:") - before)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("key", ANSWERED, ids=lambda key: registry.API[key].name)
def test_largest_request_of_each_api_does_not_block_other_clients(watched: Broker, key: int) -> None:
    for request in largest_requests(key, watched.world):
        check(watched, request)


@pytest.mark.timeout(120)
def test_repeated_resource_is_described_once(watched: Broker) -> None:
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=NODE, configuration_keys=None)
    describe = DescribeConfigsRequest(resources=[resource] * 2_000, include_synonyms=True, include_documentation=True)
    frame = b"".join(frames.encode_request(describe, 4, 7, "largest"))[4:]
    answer = check(watched, Request("DescribeConfigs of the broker, 2,000 times", 32, 4, frame), 40 * MIB)
    assert answer is not None
    assert answer.size > 50 * MIB, "each duplicate has its own result, as in Kafka"


@pytest.mark.timeout(120)
def test_many_large_requests_at_once_share_the_loop(watched: Broker) -> None:
    names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)]
    frame = b"".join(frames.encode_request(MetadataRequest(topics=names), 12, 7, "largest"))[4:]
    check(watched, Request("Metadata of 100,000 names from 8 connections", 3, 12, frame), 400 * MIB, connections=8)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("connections", [1, 20])
def test_hundreds_of_commits_at_once_share_the_loop(watched: Broker, connections: int) -> None:
    """Each of them is below the size of a large request."""
    rows = [OffsetCommitRequestPartition(partition_index=i, committed_offset=5) for i in range(PARTITIONS)]
    commit = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
    )
    frame = b"".join(frames.encode_request(commit, 9, 7, "largest"))[4:]
    assert len(frame) < 16_000
    title = f"OffsetCommit of {PARTITIONS} partitions, 200 times from {connections} connections"
    assert check(watched, Request(title, 8, 9, frame), times=200 // connections, connections=connections) is not None
