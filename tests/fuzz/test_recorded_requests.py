"""Recorded requests of real clients (`corpus/`), unchanged and corrupted: a response or an error, no traceback.

Conversations are replayed in order, with the topics and members of the test's broker, so that corrupted requests meet
open sessions, groups and producers. Hypothesis searches for single requests that fail, and minimizes them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.served import TELEMETRY
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol import frames, registry
from ottla.protocol.wire import DecodeError
from tests.fuzz.mutation import Requests, served
from tests.fuzz.recorded import Recorded, World, adapted, corpus, shuffled
from tests.simulation.world.broker import NodeOnDisk
from tests.unit.broker.harness import Connection, HastyFiles, batch

SECONDS = float(os.environ.get("OTTLA_FUZZ_MINUTES", "0")) * 60
JOIN_GROUP = 11
# OffsetForLeaderEpoch is only sent by followers, and by clients after a leader change, AlterReplicaLogDirs and
# changes of voters, quotas and users (48 to 51) by tools, 83 to 87 by brokers, 88 and 89 by Kafka Streams. The recorded
# broker had neither security nor telemetry. These requests are generated.
REFUSED_WITHOUT_SECURITY = {17, 29, 30, 31, 36, 38, 39, 40, 41}
NEVER_SENT = {23, 34, 48, 49, 50, 51, 80, 81, *range(83, 90)} | REFUSED_WITHOUT_SECURITY | TELEMETRY
SLOWEST_S = 5.0
SEEDS = 10
SOFTWARE = {"librdkafka", "kafka-python", "aiokafka", "kafkajs", "apache-kafka-java", "ottla"}


class Replay:
    """A broker, and the connections of the recorded clients."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.node = NodeOnDisk(HastyFiles(), home, auto_create_topics_enable="false")
        self.connections: dict[int, Connection] = {}
        self.world = World("t", bytes(16), "")
        self.answered = self.asked = 0

    async def start(self) -> None:
        await self.node.start()
        await self.set_up()

    async def set_up(self) -> None:
        """Create the topic, which a request may have deleted."""
        if self.world.topic not in self.node.node.broker.metadata.image.topics_by_name:
            await self.node.create("t", 3)
            await self.node.produce("t", batch(b"a", b"b"))
        topic = self.node.node.broker.metadata.image.topics_by_name["t"]
        self.world = self.world._replace(topic_id=bytes(topic.topic_id))

    async def send(self, frame: bytearray, number: int = 0) -> bool:
        """Send one request; returns whether it had a response at once."""
        connection = self.connections.setdefault(number, Connection())
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        self.asked += 1
        answer = None
        begun = time.monotonic()
        try:
            answer = self.node.dispatch(connection, memoryview(frame))  # type: ignore[arg-type]
            for _ in range(3):
                await asyncio.sleep(0)
            if isinstance(answer, Completion):
                answer = answer.result() if answer.done else None
        except (KafkaError, DecodeError):
            self.connections.pop(number).drop()
            return False
        self.node.check()
        assert time.monotonic() - begun < SLOWEST_S, f"API {key} version {version} took too long"
        if answer is not None and key == JOIN_GROUP:
            self.world = self.world._replace(member_id=member_in(b"".join(answer), version))
        self.answered += answer is not None
        return answer is not None

    async def replay(self, requests: list[Recorded], chance: random.Random, share: float) -> None:
        """Send the requests in this order, and corrupt this share of them."""
        spoiler = Requests(chance.randrange(1 << 30))
        for each in requests:
            frame = adapted(each.frame, self.world) if chance.random() < 0.7 else bytearray(each.frame)
            if chance.random() < share:
                spoiler.corrupted(frame)
            copy = bytes(frame)
            try:
                if len(frame) >= 4:
                    await self.send(frame, each.connection)
                await self.set_up()
            except Exception as error:
                error.add_note(f"{each.client}, API and version {each.api}: {copy.hex()}")
                raise

    async def close(self) -> None:
        for connection in self.connections.values():
            connection.drop()
        await self.node.abandon()


async def _replay(home: Path, seed: int, share: float) -> tuple[int, int]:
    replay = Replay(home)
    await replay.start()
    try:
        chance = random.Random(seed)
        await replay.replay(shuffled(chance), chance, share)
        await replay.node.create("afterwards")
        assert await replay.node.produce("afterwards", batch(b"goes on")) == (0, 0)
        return replay.asked, replay.answered
    finally:
        await replay.close()


def member_in(frame: bytes, version: int) -> str:
    """The member id in the response to a JoinGroup."""
    _, position = frames.decode_response_header(frame, JOIN_GROUP, version, 4)
    response, _ = registry.response_class(JOIN_GROUP).decode_from(frame, position, version)
    return str(response.member_id)


def test_corpus_contains_requests_of_real_clients() -> None:
    clients = {each.client for each in corpus()}
    assert clients >= SOFTWARE, SOFTWARE - clients
    apis = {each.api for each in corpus()} & set(served())
    print(f"{len(corpus())} requests of {sorted(clients)}: {len(apis)} APIs and versions of {len(set(served()))}")
    assert {key for key, _ in served()} - {key for key, _ in apis} == NEVER_SENT


def test_recorded_requests_are_answered(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        asked, answered = runner.run(_replay(tmp_path / "data", 0, share=0.0))
    assert answered > 0.9 * asked, f"{answered} of {asked}"


@pytest.mark.timeout(SECONDS + 120)
def test_corrupted_recorded_requests_are_answered_or_rejected(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    total = 0
    for seed in itertools.count(int(os.environ.get("OTTLA_FUZZ_SEED", "0"))):
        try:
            with asyncio.Runner() as runner:
                asked, _ = runner.run(_replay(tmp_path / f"data-{seed}", seed, share=0.4))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        total += asked
        if time.monotonic() >= end and seed % SEEDS == SEEDS - 1:
            break
    print(f"{total} requests of conversations")


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Replay]]:
    async def opened() -> Replay:
        replay = Replay(tmp_path_factory.mktemp("replay") / "data")
        await replay.start()
        return replay

    with asyncio.Runner() as runner:
        replay = runner.run(opened())
        yield runner, replay
        runner.run(replay.close())


EDIT = st.tuples(
    st.integers(0, 400), st.sampled_from(("set", "cut", "insert", "size")), st.binary(min_size=1, max_size=4)
)


def edited(frame: bytes, edits: list[tuple[int, str, bytes]]) -> bytearray:
    """The frame with changed, omitted or inserted bytes, or a false size; the API stays."""
    data = bytearray(frame)
    for at, kind, value in edits:
        place = 4 + at % max(len(data) - 4, 1)
        if kind == "set":
            data[place : place + len(value)] = value
        elif kind == "cut":
            del data[place : place + value[0] + 1]
        elif kind == "insert":
            data[place:place] = value
        else:
            data[place : place + 4] = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0")[value[0] % 3]
    return data


@settings(
    max_examples=int(400 + SECONDS * 20),
    deadline=None,
    derandomize=not SECONDS,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(which=st.integers(0, 1 << 30), edits=st.lists(EDIT, max_size=4), generated=st.booleans())
def test_hypothesis_finds_no_request_with_an_unhandled_error(
    replay: tuple[asyncio.Runner, Replay], which: int, edits: list[tuple[int, str, bytes]], *, generated: bool
) -> None:
    runner, broker = replay
    if generated:
        apis = list(served())
        frame = bytes(Requests(which).frame(*apis[which % len(apis)]))
    else:
        frame = bytes(adapted(corpus()[which % len(corpus())].frame, broker.world))

    async def story() -> None:
        await broker.send(edited(frame, edits))
        await broker.set_up()

    runner.run(story())
