"""Members of a share group accept records while the broker is killed: none is lost, no accepted one is delivered again.

A record may be delivered to two members, since acquisitions do not survive the broker. So each member checks only the
records that were accepted before it started, which it cannot have fetched earlier.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer, ShareConsumer
from ottla.clients.admin import ConfigResource
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from tests.clients.support import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess

from .support import WAIT_S, create_topic
from .transactional import SECONDS, Program, kill_repeatedly

TOPIC, GROUP, PARTITIONS = "jobs", "workers", 2
LIFETIME_S = 4.0
PAUSE_S = 0.002
Place = tuple[int, int]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    settings = {
        "offsets.topic.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 3,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 200,
        "group.share.delivery.count.limit": 10,
    }
    broker = ForkedOttla(tmp_path, settings)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


class Sender(Program):
    """Sends numbers; `sent` has the places of the acknowledged ones."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.sent: list[Place] = []

    def serve(self) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            while not self.stopping.is_set():
                number = len(self.sent)
                done = producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS).result(WAIT_S)
                self.sent.append((done.partition, done.offset))
                time.sleep(PAUSE_S)


class Work:
    """The actions of the group's members."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.accepted: set[Place] = set()
        # Their acknowledgement has no response: they may be accepted.
        self.in_doubt: set[Place] = set()
        self.repeated: set[Place] = set()

    def accept_some(self, consumer: ShareConsumer, before: set[Place]) -> int:
        """Accept what a poll returns; `before` are the places that no member may get any more."""
        records = consumer.poll(0.2)
        places = {(record.partition, record.offset) for record in records}
        self.repeated |= places & before
        for record in records:
            consumer.acknowledge(record)
        with self.lock:
            self.in_doubt |= places
        results = consumer.commit_sync(WAIT_S)
        with self.lock:
            for place in places:
                if results.get(TopicPartition(TOPIC, place[0])) is None:
                    self.accepted.add(place)
        return len(records)

    def accepted_before(self) -> set[Place]:
        with self.lock:
            return set(self.accepted)


def member(bootstrap: str) -> ShareConsumer:
    consumer = ShareConsumer(
        bootstrap_servers=bootstrap, group_id=GROUP, share_acknowledgement_mode="explicit", max_poll_records=20
    )
    consumer.subscribe(TOPIC)
    return consumer


class Worker(Program):
    """A member that starts again every few seconds."""

    def __init__(self, bootstrap: str, work: Work) -> None:
        super().__init__(bootstrap)
        self._work = work

    def serve(self) -> None:
        before, end = self._work.accepted_before(), time.monotonic() + LIFETIME_S
        with member(self.bootstrap) as consumer:
            while not self.stopping.is_set() and time.monotonic() < end:
                self._work.accept_some(consumer, before)


@pytest.mark.timeout(2 * SECONDS + 300)
def test_accepted_records_stay_accepted_while_the_broker_is_killed(
    process: OttlaProcess,
) -> None:
    create_topic(process, TOPIC, PARTITIONS)
    with Admin(process.bootstrap) as admin:
        admin.alter_config(ConfigResource.group(GROUP), {"share.auto.offset.reset": "earliest"})
    work = Work()
    sender, *workers = programs = [
        Sender(process.bootstrap), Worker(process.bootstrap, work), Worker(process.bootstrap, work),
    ]  # fmt: skip
    assert isinstance(sender, Sender)
    for program in programs:
        program.start()
    wait_until(lambda: len(work.accepted_before()) > 0, "the first record is accepted", 2 * WAIT_S)
    kills = kill_repeatedly(process)
    for program in programs:
        program.finish()
    process.kill()
    process.start()
    drain(process.bootstrap, work, set(sender.sent))
    print(f"{kills + 1} kills, {len(sender.sent)} records sent, {len(work.accepted)} accepted, {len(workers)} members")
    assert len(work.accepted) > 50
    assert work.repeated == set(), "accepted records were delivered again"
    assert set(sender.sent) <= work.accepted | work.in_doubt, "records were never delivered"


def drain(bootstrap: str, work: Work, wanted: set[Place]) -> None:
    """Accept the rest with a new member, until nothing was left for a while."""
    before, quiet = work.accepted_before(), 0
    deadline = time.monotonic() + 3 * WAIT_S
    with member(bootstrap) as consumer:
        while quiet < 10 or not wanted <= work.accepted | work.in_doubt:
            assert time.monotonic() < deadline, "records were never delivered"
            try:
                quiet = 0 if work.accept_some(consumer, before) else quiet + 1
            except ClientError:
                time.sleep(0.1)  # the broker is starting
