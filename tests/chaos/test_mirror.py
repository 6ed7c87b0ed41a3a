"""A mirror between two clusters of three real nodes each, behind links with 100 ms delay, under kills (kill -9).

Nodes of both clusters are killed at random, also all of the target, leaders are elected, and the links stall, lose
connections and are cut, while producers write to the active cluster: idempotent and transactional ones, and one that
writes to a topic that is compacted and to one with retention. After each fault, every replica of the copy has the bytes
of the source up to its end. Then the clusters change their roles: a planned promotion, with an open transaction and a
fault meanwhile, loses nothing. An unplanned one, after the active cluster was killed behind a cut link, loses exactly
the reported records at the end of each partition. An independent checker has the fate of each record by its producer.

`OTTLA_CHAOS_MINUTES` sets how long it repeats that, `OTTLA_CHAOS_ROUNDS` the number of faults before each change of the
roles, and `OTTLA_CHAOS_SEED` the choice of the nodes, faults and moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clients import Consumer, Producer
from ottla.clients.admin import ConfigResource, ResourceType
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from tests.cluster.processes import Cluster, ClusterNode, wait_until

from .cluster_load import PARTITIONS, TIMEOUT_S, TOPIC, Writer, check, finish, stop, stored
from .link import SiteLink
from .mirror_sites import KEYS, Site, Trips, disturb

MINUTES = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0"))
ROUNDS = int(os.environ.get("OTTLA_CHAOS_ROUNDS", "2"))
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
GROUP = "readers"
COMPACTED, RETAINED = "compacted", "retained"
DELAY_S = 0.1
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "log.segment.bytes": 1 << 20,
    "log.retention.check.interval.ms": 1_000,
    "log.cleaner.backoff.ms": 500,
    "log.initial.task.delay.ms": 1_000,
}
KEY_COUNT = 7
OPEN = "open"


class KeyedWriter(Writer):
    """Writes each number with one of a few keys, to the compacted topic and to the topic with retention."""

    pause_s = 0.01

    def __init__(self, bootstrap: str, before: KeyedWriter | None = None) -> None:
        super().__init__("keyed", bootstrap)
        self.offsets: dict[str, dict[int, int]] = {COMPACTED: {}, RETAINED: {}}
        """The acknowledged numbers by topic and offset."""
        if before is not None:
            self.offsets, self._next = before.offsets, before._next

    def write(self, stopped: Callable[[], bool]) -> None:
        with Producer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True) as producer:
            while not stopped():
                number, _ = self.value()
                key, value = b"%d" % (number % KEY_COUNT), b"%d" % number + b"." * 200
                sent = {topic: producer.send(topic, value, key=key, partition=0) for topic in self.offsets}
                for topic, record in sent.items():
                    self.offsets[topic][record.result(TIMEOUT_S).offset] = number
                time.sleep(self.pause_s)


class ClusterSite(Site):
    """A site of three nodes."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        super().__init__(SiteLink(cluster.bootstrap.split(",")))
        self.link.delay_s = DELAY_S
        self._chance = chance

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def kill(self) -> None:
        self.cluster.close()

    def start(self) -> None:
        self.cluster.start()

    def slow_down(self, other: Site) -> None:
        self.ottla("alter", "dr", "--throttle", "1KiB")

    def speed_up(self, other: Site) -> None:
        self.ottla("alter", "dr", "--throttle", "none")

    def promote(self, *words: str) -> str:
        """Repeat the command until it succeeds; a node is killed when the copy has ended. Returns the first notes."""
        fault = threading.Thread(target=self._kill_when_stopping, daemon=True)
        fault.start()
        notes, deadline = [], time.monotonic() + 2 * TIMEOUT_S
        while True:
            try:
                notes.append(self.ottla("promote", "dr", *words, "--yes")[1])
                break
            except AssertionError as error:
                assert time.monotonic() < deadline, notes
                notes.append(str(error))
                if "no topic to promote" in str(error):
                    break
                time.sleep(0.2)
        fault.join(2 * TIMEOUT_S)
        assert not fault.is_alive()
        return notes[0]

    def _kill_when_stopping(self) -> None:
        def has_ended() -> bool:
            with self.cluster.admin() as admin:
                state = admin.describe_config(ConfigResource(ResourceType.TOPIC, TOPIC))["ottla.mirror.state"].value
            return state != "MIRRORING"

        wait_until(has_ended, 2 * TIMEOUT_S)
        node_id = self._chance.choice(list(self.cluster.nodes))
        self.cluster.kill(node_id)
        self.cluster.start_node(node_id)

    def records(self, topic: str) -> dict[int, tuple[int, bytes | None, bytes | None]]:
        """Timestamp, key and value by offset."""
        found: dict[int, tuple[int, bytes | None, bytes | None]] = {}
        key = TopicPartition(topic, 0)
        with Consumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
            consumer.assign([key])
            end = consumer.end_offsets([key])[key]

            def is_at_end() -> bool:
                for record in consumer.poll(0.2) or ():
                    found[record.offset] = record.timestamp, record.key, record.value
                return (consumer.position(key) or 0) >= end

            wait_until(is_at_end, TIMEOUT_S)
        return found

    def logs(self, partition: int) -> dict[int, bytes]:
        """The bytes of each replica by node. A segment that grows or begins meanwhile is read in part."""
        return {
            node.node_id: b"".join(
                path.read_bytes() for path in sorted((node.data / f"{TOPIC}-{partition}").glob("*.log"))
            )
            for node in self.cluster.nodes.values()
        }


class Faults:
    """Kills nodes of both clusters, elects leaders, and disturbs the link, from the begin of a fault to its end."""

    def __init__(self, trips: Trips, chance: random.Random) -> None:
        self._trips, self._random = trips, chance
        self._next: list[str] = []
        self.done: Counter[str] = Counter()

    def one(self) -> None:
        """The next fault, in a random order, while the link has another one."""
        source, target = self._clusters()
        faults: dict[str, Callable[[], None]] = {
            "source node": lambda: self._kill(self._any(source)),
            "target node": lambda: self._kill(self._any(target)),
            "one of each": lambda: self._kill(self._any(source), self._any(target)),
            "whole target": lambda: self._kill(*target.nodes.values()),
            "election": lambda: self._elect(source),
        }
        if not self._next:
            self._next = self._random.sample(list(faults), len(faults))
        name = self._next.pop()
        chance = random.Random(self._random.random())
        link = threading.Thread(target=self._disturb_link, args=(chance,), daemon=True)
        link.start()
        faults[name]()
        link.join(TIMEOUT_S)
        assert not link.is_alive()
        self.done[name] += 1

    def _clusters(self) -> tuple[Cluster, Cluster]:
        sites = self._trips.active, self._trips.passive
        assert isinstance(sites[0], ClusterSite)
        assert isinstance(sites[1], ClusterSite)
        return sites[0].cluster, sites[1].cluster

    def _disturb_link(self, chance: random.Random) -> None:
        self.done[f"link: {disturb(self._trips.active.link, chance, DELAY_S)}"] += 1

    def _any(self, cluster: Cluster) -> ClusterNode:
        return self._random.choice(list(cluster.nodes.values()))

    def _elect(self, cluster: Cluster) -> None:
        """Give the partitions their preferred leaders; each kill has moved some."""
        with contextlib.suppress(ClientError), cluster.admin() as admin:
            admin.elect_leaders(KEYS)
        time.sleep(self._random.uniform(0, 1.0))

    def _kill(self, *nodes: ClusterNode) -> None:
        for node in nodes:
            node.kill()
            time.sleep(self._random.uniform(0, 0.3))
        time.sleep(self._random.uniform(0, 1.5))
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        time.sleep(self._random.uniform(0, 1.0))


def check_copies(source: ClusterSite, target: ClusterSite) -> None:
    """Each replica of the target has the bytes that two replicas of the source begin with.

    Only committed records are copied, and two of three replicas of the source have those at any time.
    """
    for partition in range(PARTITIONS):
        copies = target.logs(partition)
        originals = source.logs(partition).values()
        for node_id, copy in copies.items():
            having = sum(each.startswith(copy) for each in originals)
            sizes = list(map(len, originals))
            assert having >= 2, f"replica {node_id} of {TOPIC}-{partition}: {len(copy)} bytes differ from {sizes}"


class ClusterTrips:
    """The story: faults, a planned change of the roles, faults, and an unplanned one."""

    def __init__(self, first: ClusterSite, second: ClusterSite, chance: random.Random) -> None:
        self.first, self.second = first, second
        self.trips = Trips(first, second, COMPACTED, RETAINED)
        self.faults = Faults(self.trips, chance)
        self.keyed: KeyedWriter | None = None
        self.count = 0
        """How many planned promotions there were."""

    @property
    def active(self) -> ClusterSite:
        return self.first if self.trips.active is self.first else self.second

    @property
    def passive(self) -> ClusterSite:
        return self.second if self.active is self.first else self.first

    def write_under_faults(self) -> None:
        """Let all producers write to the active cluster during some faults, and check the copy after each."""
        running, _ = self.trips.begin(3)
        self.keyed = KeyedWriter(self.active.bootstrap, self.keyed)
        self.keyed.start()
        for writer in running:
            writer.pause_s = 0.02
        for _ in range(ROUNDS):
            time.sleep(0.5)
            self.faults.one()
            check_copies(self.active, self.passive)
        stop([self.keyed])
        finish(self.active.cluster, running)

    def catch_up(self) -> None:
        wait_until(self.passive.has_all, TIMEOUT_S)

        def has_keyed() -> bool:
            return all(
                max(self.active.records(topic), default=-1) == max(self.passive.records(topic), default=-1)
                for topic in (COMPACTED, RETAINED)
            )

        wait_until(has_keyed, TIMEOUT_S)

    def planned(self) -> None:
        """A planned promotion, with an open transaction of the source. It waits for a mirror that is paused."""
        self.write_under_faults()
        self.count += 1
        offsets = {key: 10 * self.count + key.partition for key in KEYS}
        with self.active.cluster.admin() as admin:
            admin.alter_group_offsets(GROUP, offsets)
        self.passive.ottla("pause", "dr")
        settings = {"transactional.id": OPEN, "transaction.timeout.ms": 20_000}
        producer = Producer(settings, bootstrap_servers=self.active.bootstrap)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, f"{OPEN}:{partition}".encode(), partition=partition).result(TIMEOUT_S)
        fault = threading.Thread(target=self._resume, args=(self.active, self.passive), daemon=True)
        fault.start()
        self.trips.move()
        fault.join(TIMEOUT_S)
        assert not fault.is_alive()
        with contextlib.suppress(ClientError):
            producer.close(0)
        with self.active.cluster.admin() as admin:
            found = admin.list_group_offsets(GROUP).items()
        assert {key: each.offset for key, each in found} == offsets
        self.check()
        assert OPEN not in stored(self.active.bootstrap), "a transaction of the source is visible after its abort"

    def _resume(self, source: ClusterSite, target: ClusterSite) -> None:
        chance = random.Random(SEED + self.count)
        time.sleep(chance.uniform(0.3, 1.0))
        target.ottla("resume", "dr")
        disturb(source.link, chance, DELAY_S)

    def unplanned(self) -> None:
        """The active cluster is killed while its copy is behind."""
        self.write_under_faults()
        self.catch_up()
        self.trips.unplanned()
        self.check()

    def check(self) -> None:
        """Each acknowledged record is there once, and both clusters have the same records."""
        self.catch_up()
        wait_until(self._have_equal_logs, TIMEOUT_S)
        for site in (self.active, self.passive):
            check(self.trips.writers, stored(site.bootstrap))
            self._check_keyed(site)
        active, passive = (each.records(COMPACTED) for each in (self.active, self.passive))
        assert all(passive[offset] == active[offset] for offset in active.keys() & passive.keys())
        assert latest(active) == latest(passive)
        active, passive = (each.records(RETAINED) for each in (self.active, self.passive))
        start = max(min(active), min(passive))
        assert {offset: row for offset, row in active.items() if offset >= start} == {
            offset: row for offset, row in passive.items() if offset >= start
        }

    def _have_equal_logs(self) -> bool:
        """Whether all replicas of both clusters have the same bytes."""
        return all(
            len({*self.active.logs(partition).values(), *self.passive.logs(partition).values()}) == 1
            for partition in range(PARTITIONS)
        )

    def _check_keyed(self, site: ClusterSite) -> None:
        assert self.keyed is not None
        found, last = site.records(COMPACTED), latest(site.records(COMPACTED))
        for offset, number in self.keyed.offsets[COMPACTED].items():
            key = b"%d" % (number % KEY_COUNT)
            assert offset in found or last[key][0] > offset, f"{number} at {offset} of {COMPACTED} is lost"
            assert offset not in found or number_of(found[offset][2]) == number
        found = site.records(RETAINED)
        for offset, number in self.keyed.offsets[RETAINED].items():
            assert offset < min(found) or number_of(found[offset][2]) == number, f"{number} of {RETAINED} is lost"


def number_of(value: bytes | None) -> int:
    """The number in a value of `KeyedWriter`."""
    return int((value or b"").rstrip(b"."))


def latest(
    records: dict[int, tuple[int, bytes | None, bytes | None]],
) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Offset and value of the last record of each key."""
    return {key: (offset, value) for offset, (_, key, value) in sorted(records.items())}


def create_topics(site: ClusterSite) -> None:
    """The topics with their settings, at the source."""
    with site.cluster.admin() as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        short = {"segment.ms": "1000", "file.delete.delay.ms": "500"}
        compact = short | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topic(COMPACTED, partitions=1, replication_factor=3, config=compact)
        admin.create_topic(RETAINED, partitions=1, replication_factor=3, config=short | {"retention.bytes": "3000"})


@pytest.mark.long
@pytest.mark.timeout(300 + 60 * MINUTES * 4)
def test_copies_are_equal_and_promotion_loses_nothing_under_kills(tmp_path: Path) -> None:
    clusters = [Cluster(tmp_path / name, properties=SETTINGS) for name in ("first", "second")]
    chance, sites = random.Random(SEED), []
    story: ClusterTrips | None = None
    begun_s = time.monotonic()
    try:
        with clusters[0], clusters[1]:
            sites += [ClusterSite(cluster, chance) for cluster in clusters]
            first, second = sites
            create_topics(first)
            topics = f"{TOPIC}|{COMPACTED}|{RETAINED}"
            for here, there, pattern in ((second, first, topics), (first, second, "")):
                here.ottla("create", "dr", "--from", there.link.bootstrap, "--topics", pattern, "--groups", GROUP)
            wait_until(second.has_all, TIMEOUT_S)
            story = ClusterTrips(first, second, chance)
            while story.count == 0 or time.monotonic() < begun_s + MINUTES * 60:
                story.planned()
                story.unplanned()
            lowest = min(first.records(RETAINED))
            kept, written = len(first.records(COMPACTED)), len(story.keyed.offsets[COMPACTED] if story.keyed else ())
            counts = {writer.name: len(writer.acknowledged) for writer in story.trips.writers}
            duration_s = time.monotonic() - begun_s
            print(f"{story.count} round trips in {duration_s:.0f} s, seed {SEED}: {dict(story.faults.done)}")
            print(f"{counts}, {story.trips.lost} lost as reported; {COMPACTED}: {kept} of {written}; start {lowest}")
            for cluster in clusters:
                cluster.assert_no_traceback()
    except (AssertionError, TimeoutError):
        for cluster in clusters:
            for node in cluster.nodes.values():
                print(f"== the log of {node.directory}\n{node.log_tail(limit=3_000)}")
        raise
    finally:
        for writer in () if story is None else (*story.trips.writers, *([story.keyed] if story.keyed else ())):
            writer.stop()
        for site in sites:
            site.link.close()
