"""Brokers with replicas: real logs on simulated disks, fetches, and ISRs that the leaders change with the controllers.

A broker acts on metadata only when it has read its own registration: before, it would take itself for the leader that
it was before a crash, with records that the crash may have removed. A crash leaves the files as they are, or is a power
cut, after which unsynced changes are lost.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import LogDirectory, Opening
from ottla.log.recovery import open_log
from ottla.metadata.image import TOPIC, MetadataImage, PartitionImage
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.raft.values import SnapshotId
from ottla.records import encode_batch
from ottla.replication.follower import Action, FetchAnswer, Position
from ottla.replication.leader import ClusterView, IsrDecision, IsrProposal, Next
from ottla.replication.replica import ReplicaFetch
from tests.simulation.world.brokers import Broker, BrokerCluster
from tests.simulation.world.committed import CommittedChecks, contents
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.simulation.world.metadata_quorum import Callback
from tests.simulation.world.quorum_parts import NONE, Faults, Setup
from tests.simulation.world.replica import Fetched, Key, Replica, min_isr_of

LAG_MS = 400
LAG_PERIOD_MS = 60
RETRY_MS = 30
MOST_WAIT_MS = 100
MOST_LATE_MS = 800
ROOT = "/data"
LOG_CONFIG = LogConfig(segment_bytes=600, retention_ms=-1)
READ_ON = (Action.APPEND, Action.TRUNCATE, Action.NOTHING)


@dataclass(eq=False)
class Parked:
    """A follower's fetch that waits for records or for another high watermark."""

    position: Position
    fetch: ReplicaFetch
    respond: Callback
    high_watermark: int


@dataclass(eq=False)
class Store:
    """The replicas of one run of a broker."""

    node: int
    disk: SimulatedDisk
    directory: LogDirectory
    view: ClusterView
    replicas: dict[Key, Replica] = field(default_factory=dict)
    parked: dict[Key, list[Parked]] = field(default_factory=dict)
    has_applied: bool = False


class ReplicatedCluster(BrokerCluster):
    """Controllers and brokers with the data of their partitions."""

    def __init__(
        self, seed: int, setup: Setup, faults: Faults = NONE, *, power_cuts: float = 0.3, late_proposals: float = 0.0
    ) -> None:
        self.stores: dict[int, Store] = {}
        self.data_disks: dict[int, SimulatedDisk] = {}
        self.power_cuts = power_cuts
        """How often a crash is a power cut."""
        self.late_proposals = late_proposals
        """How often a change of the ISR reaches the controller late."""
        self.committed = CommittedChecks(f"seed {seed}")
        self._seen: MetadataImage | None = None
        super().__init__(seed, setup, faults)
        self.clock.plan(LAG_PERIOD_MS, self._check_lag)

    def now_ms(self, node: int) -> int:
        """The monotonic time of a running node."""
        return self.running[node].local_ms(self.clock.now_ms)

    # -- starts and stops --------------------------------------------------------------------------------------------

    def on_started(self, node: int) -> None:
        disk = self.data_disks.get(node)
        if disk is None:
            disk = self.data_disks[node] = SimulatedDisk(self.random.randrange(1 << 30))
            disk.make_directory(ROOT)
        view = ClusterView(node, {}, LAG_MS)
        self.stores[node] = Store(node, disk, LogDirectory(ROOT, disk), view)
        super().on_started(node)

    def on_stopped(self, node: int) -> None:
        store = self.stores.pop(node)
        disk = store.disk
        if node not in self.clean_epochs and self.random.random() < self.power_cuts:
            self.data_disks[node] = disk.crash()
            registered = self.history.image.brokers.get(node)
            # Also logs that this run has not opened: they may have unsynced records of an earlier one.
            for known in self.committed.partitions.values():
                known.lossy[node] = -1 if registered is None else registered.epoch
        else:
            disk.revive()
            disk.descriptors.clear()
        disk = self.data_disks[node]
        disk.fail_writes = disk.fail_syncs = None
        super().on_stopped(node)

    def stop(self, broker: Broker) -> None:
        store = self.stores[broker.node]

        def close() -> None:
            for replica in store.replicas.values():
                replica.log.close()
            self.clean_epochs[broker.node] = broker.epoch

        if self.guard(store, close):
            super().stop(broker)

    def guard(self, store: Store, work: Callable[[], object]) -> bool:
        """Do work of a running broker; a failing disk ends the broker. Whether the broker goes on."""
        if self.stores.get(store.node) is not store:
            return False
        try:
            work()
        except (Crash, OSError):
            self.crash(store.node)
            return False
        except KafkaError:
            assert not store.directory.online, "an unhandled error"
        if not store.directory.online:
            self.crash(store.node)
            return False
        return self.stores.get(store.node) is store

    # -- metadata ----------------------------------------------------------------------------------------------------

    def on_committed(self, node: int, high_watermark: int) -> None:
        super().on_committed(node, high_watermark)
        self._note_history()
        if node in self.stores:  # An answer may have let its disk fail.
            self.clock.plan(0, partial(self._apply, self.stores[node]))

    def on_loaded(self, node: int, snapshot: SnapshotId) -> None:
        super().on_loaded(node, snapshot)
        self.clock.plan(0, partial(self._apply, self.stores[node]))

    def on_registered(self, broker: Broker) -> None:
        self._apply(self.stores[broker.node])

    def _note_history(self) -> None:
        """Check the partitions that changed in the committed metadata."""
        image = self.history.image
        if image is self._seen:
            return
        before, self._seen = self._seen, image
        epochs = {each.broker_id: each.epoch for each in image.brokers.values()}
        for topic in image.topics_by_id.values():
            old = None if before is None else before.topics_by_id.get(topic.topic_id)
            for index, partition in topic.partitions.items():
                key = (topic.topic_id, index)
                previous = None if old is None else old.partitions.get(index)
                known = self.committed.of(key, f"{topic.name}-{index}")
                self.committed.changed(key, partition, previous, epochs)
                if partition != previous:
                    for node in partition.isr:
                        store = self.stores.get(node)
                        replica = None if store is None else store.replicas.get(key)
                        if replica is not None and node not in known.lossy:
                            self.committed.check_log(known, replica.log, f"in-sync replica {node}")

    def _apply(self, store: Store) -> None:
        self.guard(store, partial(self._apply_now, store))

    def _apply_now(self, store: Store) -> None:
        node = store.node
        image, broker = self.metadata[node].image, self.brokers[node]
        registered = image.brokers.get(node)
        if registered is None or registered.epoch != broker.epoch:
            return
        store.view.brokers = image.brokers
        wanted: dict[Key, tuple[str, PartitionImage]] = {
            (topic.topic_id, index): (topic.name, partition)
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if node in partition.replicas
        }
        self._delete_others(store, wanted)
        for key, (name, partition) in wanted.items():
            replica = store.replicas.get(key)
            if replica is None:
                replica = self._open(store, key, name, min_isr_of(image.config(TOPIC, name)))
            is_new = replica.follow_metadata(partition, self.now_ms(node))
            self.touched(store, replica)
            if is_new and replica.leader is None:
                self._fetch(store, replica, replica.epoch)

    def _delete_others(self, store: Store, wanted: dict[Key, tuple[str, PartitionImage]]) -> None:
        for key in [key for key in store.replicas if key not in wanted]:
            replica = store.replicas.pop(key)
            replica.close()
            replica.log.abandon()
            store.parked.pop(key, None)
            store.disk.remove_tree(replica.log.directory)
        if not store.has_applied:  # also logs of partitions that moved away while the broker was down
            names = {f"{name}-{index}" for (_, index), (name, _) in wanted.items()}
            for name in store.disk.list(ROOT):
                if store.disk.is_directory(f"{ROOT}/{name}") and name not in names:
                    store.disk.remove_tree(f"{ROOT}/{name}")
            store.has_applied = True

    def _open(self, store: Store, key: Key, name: str, min_isr: int) -> Replica:
        context = LogContext(store.directory, TopicPartition(name, key[1]), clock=self.clock)
        log = open_log(context, LOG_CONFIG, opening=Opening(), topic_id=key[0])
        replica = store.replicas[key] = Replica(key, log, store.view, min_isr)
        self.committed.of(key, f"{name}-{key[1]}")
        return replica

    # -- leaders -----------------------------------------------------------------------------------------------------

    def touched(self, store: Store, replica: Replica) -> None:
        """A leader's log or high watermark may have changed: check it, and answer the fetches that wait for it."""
        self.committed.advanced(replica, store.node)
        waiting = store.parked.pop(replica.key, [])
        for each in waiting:
            fetched = replica.serve_fetch(each.fetch, each.position, self.now_ms(store.node), update=False)
            self._answer_or_park(store, replica, each, fetched)

    def _answer_or_park(self, store: Store, replica: Replica, parked: Parked, fetched: Fetched) -> None:
        answer = fetched.answer
        has_news = answer.error is not ErrorCode.NONE or answer.diverging is not None or fetched.records
        if has_news or answer.high_watermark > parked.high_watermark:
            parked.respond(fetched)
        else:
            store.parked.setdefault(replica.key, []).append(parked)

    def _serve_fetch(self, node: int, key: Key, fetch: ReplicaFetch, position: Position, respond: Callback) -> None:
        store = self.stores[node]
        replica = store.replicas.get(key)
        if replica is None:
            respond(Fetched(FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            return

        def serve() -> None:
            before = replica.high_watermark
            fetched = replica.serve_fetch(fetch, position, self.now_ms(node))
            if fetched.proposal is not None:
                self._propose(store, replica, fetched.proposal)
            parked = Parked(position, fetch, respond, before)
            self._answer_or_park(store, replica, parked, fetched)
            self.clock.plan(MOST_WAIT_MS, partial(self._end_wait, store, replica, parked))
            self.touched(store, replica)

        self.guard(store, serve)

    def _end_wait(self, store: Store, replica: Replica, parked: Parked) -> None:
        waiting = store.parked.get(replica.key, [])
        if self.stores.get(store.node) is store and parked in waiting:
            waiting.remove(parked)
            parked.respond(replica.serve_fetch(parked.fetch, parked.position, self.now_ms(store.node), update=False))

    def _check_lag(self) -> None:
        self.clock.plan(LAG_PERIOD_MS, self._check_lag)
        for store in list(self.stores.values()):
            if self.running[store.node].paused_until_ms <= self.clock.now_ms:
                self.guard(store, partial(self._check_lag_of, store))

    def _check_lag_of(self, store: Store) -> None:
        now_ms = self.now_ms(store.node)
        for replica in list(store.replicas.values()):
            if replica.leader is None:
                continue
            proposal = replica.leader.check_lag(replica.log.log_end_offset, now_ms)
            replica.advance(now_ms)
            if proposal is not None:
                self._propose(store, replica, proposal)
            self.touched(store, replica)

    def _propose(self, store: Store, replica: Replica, proposal: IsrProposal) -> None:
        leader = replica.leader
        if self.stores.get(store.node) is not store or leader is None or leader.pending is not proposal:
            return
        again = partial(self._propose, store, replica, proposal)
        controller = self.known_leader(store.node)
        if controller is None:
            self.clock.plan(RETRY_MS, again)
            return
        members = [BrokerState(*member) for member in proposal.members]
        topic_id, index = replica.key
        data = RequestPartitionData(index, proposal.leader_epoch, [], members, 0, proposal.partition_epoch)
        epoch = self.brokers[store.node].epoch
        request = AlterPartitionRequest(store.node, epoch, [RequestTopicData(topic_id, [data])])

        def answer(result: AlterPartitionResponse | KafkaError) -> None:
            self.guard(store, partial(self._on_altered, store, replica, proposal, result))

        late_ms = self.random.randint(0, MOST_LATE_MS) if self.random.random() < self.late_proposals else 0
        self.call(store.node, controller, lambda c, _: c.alter_partition(request), answer, late_ms=late_ms)

    def _on_altered(
        self, store: Store, replica: Replica, proposal: IsrProposal, result: AlterPartitionResponse | KafkaError
    ) -> None:
        leader = replica.leader
        if leader is None:
            return
        if isinstance(result, KafkaError):
            following = leader.on_answer(proposal, ErrorCode(result.code))
        else:
            self.check_altered(result)
            data = result.topics[0].partitions[0]
            decision = IsrDecision(data.leader_epoch, data.partition_epoch, tuple(data.isr))
            following = leader.on_answer(proposal, ErrorCode(data.error_code), decision)
        if following is Next.RETRY:
            self.clock.plan(RETRY_MS, partial(self._propose, store, replica, proposal))
        replica.advance(self.now_ms(store.node))
        self.touched(store, replica)

    def produce(self, node: int, key: Key, values: list[bytes], respond: Callback) -> None:
        """Append a batch without a producer id; see `append`."""
        batch = encode_batch([(self.clock.wall_ms(), None, value, ()) for value in values])
        self.append(node, key, batch, values, respond)

    def append(self, node: int, key: Key, batch: bytearray, values: list[bytes], respond: Callback) -> None:
        """Append a batch at a leader; `respond` gets the offset of its first record when the batch is committed."""
        store = self.stores[node]
        replica = store.replicas.get(key)
        if replica is None:
            respond(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
            return

        def acknowledge(result: int | KafkaError) -> None:
            if not isinstance(result, KafkaError):
                self.committed.advanced(replica, node)
                self.committed.acknowledged(key, replica, result, values)
            respond(result)

        def append() -> None:
            replica.append(batch, self.clock.wall_ms(), acknowledge)
            self.touched(store, replica)

        self.guard(store, append)

    def check_equal(self) -> None:
        """All replicas of a partition have the same log, and it has all committed records."""
        for key, known in self.committed.partitions.items():
            topic = self.history.image.topics_by_id.get(key[0])
            if topic is None:
                continue
            logs = [self.stores[node].replicas[key].log for node in topic.partitions[key[1]].replicas]
            first = contents(logs[0], logs[0].log_start_offset, logs[0].log_end_offset)
            for log in logs:
                self.committed.check_log(known, log, "a replica")
                same = contents(log, log.log_start_offset, log.log_end_offset) == first
                assert same, self.checks.fail(f"the replicas of {known.name} differ")

    # -- followers ---------------------------------------------------------------------------------------------------

    def _fetch(self, store: Store, replica: Replica, epoch: int) -> None:
        """Fetch from the leader of the epoch until there is another one."""
        if self.stores.get(store.node) is not store or store.replicas.get(replica.key) is not replica:
            return
        if replica.epoch != epoch or replica.leader_id in (-1, store.node):
            return
        if self.running[store.node].paused_until_ms > self.clock.now_ms:
            self._later(store, replica, epoch, self.running[store.node].paused_until_ms - self.clock.now_ms)
            return
        position = replica.position()
        start, offset = position.log_start_offset, position.fetch_offset
        fetch = ReplicaFetch(store.node, offset, start, self.brokers[store.node].epoch, epoch)

        def answer(result: Fetched | KafkaError) -> None:
            self.guard(store, partial(self._on_fetched, store, replica, position, result))

        leader = replica.leader_id
        self.request(store.node, leader, partial(self._serve_fetch, leader, replica.key, fetch, position), answer)

    def _later(self, store: Store, replica: Replica, epoch: int, delay_ms: int) -> None:
        self.clock.plan(delay_ms, partial(self._fetch, store, replica, epoch))

    def _on_fetched(self, store: Store, replica: Replica, position: Position, result: Fetched | KafkaError) -> None:
        if store.replicas.get(replica.key) is not replica or replica.leader is not None:
            return
        epoch = position.leader_epoch
        if isinstance(result, KafkaError):
            self._later(store, replica, epoch, RETRY_MS)
            return
        action = replica.take(position, result, self.clock.wall_ms())
        if action is Action.LOOK_UP:
            self._look_up(store, replica, epoch)
        else:
            self._later(store, replica, epoch, 1 if action in READ_ON else RETRY_MS)

    def _look_up(self, store: Store, replica: Replica, epoch: int) -> None:
        leader, key = replica.leader_id, replica.key

        def serve(respond: Callback) -> None:
            led = self.stores[leader].replicas.get(key)
            if led is not None and led.leader is not None and led.epoch == epoch:
                respond((led.log.log_start_offset, led.log.log_end_offset))

        def answer(result: Any) -> None:
            if not isinstance(result, KafkaError) and replica.epoch == epoch and replica.leader is None:
                self.guard(store, lambda: replica.take_bounds(*result))
            self._later(store, replica, epoch, RETRY_MS)

        self.request(store.node, leader, serve, answer)

    # -- faults ------------------------------------------------------------------------------------------------------

    def change_isr(self, broker: Broker, leader: int) -> None:
        """The leaders decide on the ISR, not chance."""

    def harm_disk(self, node: int) -> None:
        """Let a data disk fail, or end the broker, at one of the next writes."""
        disk = self.stores[node].disk
        if self.random.random() < 0.5:
            disk.crash_after = self.random.randint(0, 20)
        else:
            disk.fail_writes, disk.writes_until_failure = errno.EIO, self.random.randint(0, 10)

    def heal(self) -> None:
        for disk in self.data_disks.values():
            disk.revive().fail_writes = None
        super().heal()

    def write_back(self, node: int) -> None:
        """Sync some logs, as the operating system does after a while."""
        store = self.stores[node]
        for replica in list(store.replicas.values()):
            if self.random.random() < 0.5:
                self.guard(store, replica.log.flush)
