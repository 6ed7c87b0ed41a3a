"""Jumps of the wall clock in both directions change no group, flush, maintenance task or response."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.testing.running import ThreadBroker
from tests.clients.wire import Connection, string
from tests.simulation.world.broker import NodeOnDisk
from tests.unit.broker.harness import HastyFiles, batch

DAYS_MS = 24 * 3600 * 1000
SESSION_MS = 1000
JOIN_GROUP = 11
JUMPS = pytest.mark.parametrize("jump_ms", [30 * DAYS_MS, -30 * DAYS_MS], ids=["a month ahead", "a month back"])
ROLLING = {"segment_index_bytes": 40, "index_interval_bytes": 0}


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[ThreadBroker]:
    broker = ThreadBroker({"group.min.session.timeout.ms": 100}, directory=str(tmp_path))
    broker.start()
    yield broker
    broker.close()


@JUMPS
def test_clock_jumps_lose_no_member_and_block_no_request(threaded: ThreadBroker, jump_ms: int) -> None:
    """The clock is set a hundred times while a member has a session timeout of a second."""
    clock = threaded._control.clock
    with Admin(threaded.bootstrap) as admin, Producer(bootstrap_servers=threaded.bootstrap) as producer:
        admin.create_topic("t")
        settings = {
            "bootstrap.servers": threaded.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
        }
        with Consumer(settings) as consumer:
            consumer.subscribe("t")
            slowest_s = 0.0
            members = set()
            for i in range(13):
                begun = time.monotonic()
                producer.send("t", b"%d" % i, timestamp_ms=clock.wall_ms()).result(timeout_s=10)
                read: list[object] = []
                while not read:
                    assert time.monotonic() < begun + 20
                    read = list(consumer.poll(timeout_s=1.0))
                if i:
                    slowest_s = max(slowest_s, time.monotonic() - begun)
                consumer.commit()
                for _ in range(10):  # also between two heartbeats
                    if i >= 3:
                        clock.wall_ahead_ms += jump_ms
                    time.sleep(0.025)
                (member,) = admin.describe_group("g").members
                members.add(member.member_id)
            assert len(members) == 1, "the member stays in the group"
            assert slowest_s < 5, "no request waits for the clock"
            place = TopicPartition("t", 0)
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == 13


def join_and_disconnect(bootstrap: str, group: str) -> None:
    """A member (JoinGroup v1) whose client disconnects without leaving the group."""
    protocol = string("range") + struct.pack(">i", 0)
    body = string(group) + struct.pack(">ii", SESSION_MS, SESSION_MS) + string("") + string("consumer")
    with Connection(bootstrap) as connection:
        (error,) = struct.unpack_from(">h", connection.ask(JOIN_GROUP, 1, body + struct.pack(">i", 1) + protocol))
    assert error == 0


@JUMPS
def test_disconnected_member_is_removed_after_its_session_timeout(threaded: ThreadBroker, jump_ms: int) -> None:
    with Admin(threaded.bootstrap) as admin:
        assert admin.list_group_offsets("g") == {}, "the coordinator is available"
        begun = time.monotonic()
        join_and_disconnect(threaded.bootstrap, "g")
        threaded._control.clock.wall_ahead_ms += jump_ms
        while admin.describe_group("g").members:
            assert time.monotonic() < begun + 15 * SESSION_MS / 1000, "its session never expires"
            time.sleep(0.05)
    assert time.monotonic() - begun >= SESSION_MS / 1000, "its session expired too early"


async def _check_maintenance(home: Path, jump_ms: int) -> None:
    node = NodeOnDisk(HastyFiles(), home, log_retention_check_interval_ms=1000, log_segment_delete_delay_ms=0)
    await node.start()
    try:
        await node.create("kept", **ROLLING, retention_ms=7 * DAYS_MS)
        await node.create("flushed", flush_ms=50)
        for i in range(20):
            await node.produce("kept", batch(b"%d" % i, timestamp=node.clock.wall_ms()))
        node.clock.wall_ahead_ms += jump_ms
        node.chores()
        node.clock.wall_ahead_ms -= jump_ms  # the jump was logged
        node.chores()
        node.chores()
        node.check()
        kept = node.node.broker.partitions.get("kept", 0).log
        assert kept.log_start_offset == 0, "a clock that is wrong for a moment deletes nothing"

        node.clock.wall_ahead_ms += jump_ms
        flushed = node.node.broker.partitions.get("flushed", 0).log
        await node.produce("flushed", batch(b"a"))
        await node.until(lambda: node.chores() or flushed.flushed_offset == 1)  # type: ignore[func-returns-value]
        kept.config = kept.config.__class__(retention_ms=1, file_delete_delay_ms=0)
        for _ in range(3):
            node.clock.advance(DAYS_MS)
            node.chores()
        if jump_ms > 0:
            assert kept.log_start_offset == 20, "retention continues with the new clock"
        node.check()
    finally:
        await node.abandon()


async def _set_back(home: Path) -> None:
    node = NodeOnDisk(HastyFiles(), home, log_retention_check_interval_ms=1000, log_segment_delete_delay_ms=1000)
    await node.start()
    try:
        for name in ("kept", "gone"):
            await node.create(name, **ROLLING, retention_bytes=100)
            for i in range(12):
                await node.produce(name, batch(b"%d" % i, timestamp=node.clock.wall_ms()))
        node.chores()
        assert node.node.broker.partitions.get("kept", 0).log.log_start_offset > 0
        assert list(home.glob("kept-0/*.deleted"))
        await node.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5)
        assert list(home.glob("gone-*-delete"))
        snapshots = len(list(home.glob("__cluster_metadata-0/*.checkpoint")))
        node.clock.wall_ahead_ms -= 30 * DAYS_MS
        for _ in range(8):  # retention is skipped once after a jump; a snapshot is written step by step
            node.chores()
            await asyncio.sleep(0.01)
        node.check()
        assert not list(home.glob("kept-0/*.deleted")), "their deletion was due before the clock was set back"
        assert not list(home.glob("gone-*-delete"))
        assert len(list(home.glob("__cluster_metadata-0/*.checkpoint"))) > snapshots
    finally:
        await node.abandon()


def test_housekeeping_goes_on_after_the_clock_was_set_back(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        runner.run(_set_back(tmp_path))


@JUMPS
def test_retention_and_flushes_go_on(tmp_path: Path, jump_ms: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(_check_maintenance(tmp_path, jump_ms))
