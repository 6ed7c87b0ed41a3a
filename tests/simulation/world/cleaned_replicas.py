"""Three brokers that replicate a partition with keys, compact it, apply retention and move it between directories.

Checked after each event, for each in-sync replica: a committed record has its key and value at its offset. It is
missing only if the topic is or was compacted and a later committed record has its key, or if it is or was subject to
retention and is before the log start. A process that is killed finds its log as it was; after a power cut, the log has
everything that was on disk.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.log.cleaner import Cleaner
from ottla.log.compaction import CleanJob, CleanResult, clean
from ottla.records import encode_batch
from tests.simulation.world.disk import Crash
from tests.simulation.world.replicas import TOPIC, ReplicaNode, ReplicaWorld
from tests.simulation.world.retained import Entry, entries

NAME = TopicPartition(TOPIC, 0)
DIRECTORIES = ("/one", "/two")
COMPACT, DELETE, BOTH = "compact", "delete", "compact,delete"
POLICIES = ((COMPACT,), (COMPACT, DELETE), (COMPACT, DELETE, BOTH), (BOTH,), (DELETE,))
KEYS = 6


class _Work:
    """A job of the cleaner's process, which is done when it starts, or when its end is first asked for."""

    def __init__(self, node: ReplicaNode, job: CleanJob) -> None:
        self._node, self._job = node, job
        self._outcome: CleanResult | str | None = None
        self._polls_left = node.world.random.choice((0, 1, 2))
        if node.world.random.random() < 0.6:
            self._clean()

    def _clean(self) -> None:
        try:
            self._outcome = clean(self._job, self._node.disk)
        except (OSError, KafkaError) as error:
            self._outcome = repr(error)
        finally:
            self._node.disk.release_descriptor = None

    def poll(self) -> CleanResult | str | None:
        self._polls_left -= 1
        if self._polls_left >= 0:
            return None
        if self._outcome is None:
            self._clean()
        return self._outcome

    def stop(self) -> None:
        """The broker deletes what it wrote."""


class Cleaners:
    """The cleaner of each node."""

    def __init__(self) -> None:
        self._cleaners: dict[ReplicaNode, tuple[int, Cleaner]] = {}
        self.cleanings = 0
        """How often a log was compacted."""

    def step(self, node: ReplicaNode) -> None:
        """Let the cleaner of a node start or finish a job, or both."""
        random = node.world.random
        generation, cleaner = self._cleaners.get(node, (0, None))
        if cleaner is None or generation != node.generation:
            cleaner = Cleaner(node.logs, backoff_ms=0, start_work=lambda job: _Work(node, job))
            self._cleaners[node] = (node.generation, cleaner)
        cleaned_to = node.log.segments.cleaned_to
        if random.random() < 0.5:
            node.log.flush()  # as a node does every two seconds; the rest is not compacted
        for _ in range(random.choice((1, 1, 4))):
            cleaner.step(node.world.loop.wall_ms())
        self.cleanings += node.log.segments.cleaned_to > cleaned_to


class CleanedReplicas:
    """A `ReplicaWorld` of one seed with its model."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.policies = POLICIES[seed % len(POLICIES)]
        self.retention_bytes = (200, 500)[seed // 10 % 2]
        values = {
            "cleanup.policy": self.policies[0].split(","),
            "segment.bytes": (250, 600)[seed // 5 % 2],
            "retention.bytes": self.retention_bytes,
            "retention.ms": -1,
            "index.interval.bytes": 0,
            "min.cleanable.dirty.ratio": 0.0,
            "file.delete.delay.ms": 0,
        }
        self.world = ReplicaWorld(seed, min_isr=1 + seed % 2, settings=values, directories=DIRECTORIES)
        self.random = self.world.random
        self.allowed = set(self.policies[0].split(","))
        """The policies up to now."""
        self.committed: dict[int, Entry] = {}
        self.acknowledged: dict[int, Entry] = {}
        self.log_start = 0
        """The highest log start of a leader: records before it are deleted, whatever a crash brings back of them."""
        self._last: dict[bytes | None, int] = {}
        self.cleaners = Cleaners()
        self.deletions = self.moves = 0

    def fail(self, problem: str) -> str:
        return f"{problem} (seed {self.seed}, {self.world.loop.now_ms} ms)"

    # -- events --------------------------------------------------------------------------------------------------

    def do(self, event: Callable[[], object]) -> None:
        """Do something, in which a node may be killed by one of its writes; then check everything."""
        try:
            event()
        except Crash:
            for node in self.world.nodes.values():
                if node.disk.crashed:
                    self.world.kill(node.node_id, power=False)
                    node.disk.revive()
        self._note_committed()
        for node_id in self.world.partition.isr:
            self.check(self.world.nodes[node_id])

    def produce(self, node_id: int) -> None:
        """Append some records with acks=all at a node, if it believes that it leads."""
        partition = self.world.nodes[node_id].leads
        if partition is None:
            return
        now_ms, random = self.world.loop.wall_ms(), self.random
        rows = []
        for _ in range(random.choice((1, 1, 2, 3))):
            self.world.written += 1
            value = None if random.random() < 0.15 else b"%d" % self.world.written + b"." * random.choice((0, 40))
            rows.append((b"%d" % random.randrange(KEYS), value))
        data = bytearray(encode_batch([(now_ms, key, value, []) for key, value in rows]))
        try:
            info = partition.append(memoryview(data))
        except KafkaError:
            return
        written = {info.first_offset + at: Entry(-1, key, value) for at, (key, value) in enumerate(rows)}
        done = partition.when_durable(info.last_offset + 1)
        if done is None:
            self.acknowledged |= written
        else:
            done.on_done(lambda done: done.error is None and self.acknowledged.update(written))

    def retain(self, node: ReplicaNode) -> None:
        """Apply retention, which leaves a leader `retention_bytes`."""
        if node.logs.cleanup(self.world.loop.wall_ms()) and node.leads is not None:
            self.deletions += 1
            problem = f"retention leaves {node.log.size} of {self.retention_bytes} bytes"
            assert node.log.size >= self.retention_bytes, self.fail(problem)

    def sync(self, node: ReplicaNode) -> None:
        """Flush the log, and perhaps write the checkpoints."""
        node.log.flush()
        if self.random.random() < 0.5:
            node.logs.checkpoint()
            node.logs.checkpoint_high_watermarks()

    def move(self, node: ReplicaNode) -> None:
        """Move the log of a node to one of its directories."""
        node.moves.alter(NAME, self.random.choice(DIRECTORIES))

    def change_policy(self) -> None:
        """Alter cleanup.policy. What a former one allowed may still happen."""
        policy = self.random.choice(self.policies)
        self.allowed |= set(policy.split(","))
        self.world.set_policy(policy)

    def restart(self, node: ReplicaNode, *, power: bool) -> None:
        """Kill a node, or cut its power, and start it again."""
        log = node.logs.get(NAME)
        if not node.up or log is None:
            return
        before, end, flushed = entries(log, 0, log.log_end_offset), log.log_end_offset, log.flushed_offset
        self.world.kill(node.node_id, power=power)
        if node.up:
            return  # its records would be lost
        node.disk.revive()
        self.world.start(node.node_id)
        self._check_restarted(node, before, end, flushed if power else None)

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_restarted(self, node: ReplicaNode, before: dict[int, Entry], end: int, flushed: int | None) -> None:
        log = node.logs.get(NAME)
        if log is None:
            assert not before or flushed == 0, self.fail(f"the log of {node.node_id} disappeared")
            return
        after, start = entries(log, 0, log.log_end_offset), log.log_start_offset
        if flushed is None:
            assert log.log_end_offset == end, self.fail(f"{log} ends at {log.log_end_offset}, not {end}")
            wanted = before
        else:
            wanted = {offset: each for offset, each in before.items() if offset < flushed}
        lost = {offset: each for offset, each in wanted.items() if after.get(offset) != each and offset >= start}
        assert not lost, self.fail(f"{log} lost {lost} in a restart, flushed to {flushed}, log start {start}")

    def _note_committed(self) -> None:
        for node in self.world.nodes.values():
            partition = node.leads
            if partition is None or partition.leader_epoch != self.world.partition.leader_epoch:
                continue
            self.log_start = max(self.log_start, node.log.log_start_offset)
            first, end = max(self.committed, default=-1) + 1, partition.high_watermark
            if end > first:
                new = entries(node.log, first, end)
                self.committed |= new
                self._last |= {each.key: offset for offset, each in new.items()}

    def check(self, node: ReplicaNode) -> None:
        """Check the log of an in-sync replica that runs."""
        log = node.logs.get(NAME) if node.up else None
        if log is None or not log.log_directory.online:
            return
        own, start = entries(log, log.log_start_offset, log.log_end_offset), log.log_start_offset
        for offset, wanted in self.committed.items():
            found = own.get(offset)
            if found is None:
                is_superseded = COMPACT in self.allowed and self._last[wanted.key] > offset
                assert is_superseded or (DELETE in self.allowed and offset < start), self.fail(
                    f"{log} of {node.node_id} lacks {wanted} at {offset}: log start {start}, end {log.log_end_offset}"
                )
            elif offset >= self.log_start:
                assert found == wanted, self.fail(f"{log} of {node.node_id} has {found} at {offset}, not {wanted}")

    def check_end(self) -> None:
        """All replicas are in sync and have the acknowledged records as far as they must."""
        for offset, wanted in self.acknowledged.items():
            found = self.committed.get(offset)
            problem = self.fail(f"{wanted} at {offset} is {found}")
            assert found is not None, problem
            assert found[1:] == wanted[1:], problem
        assert sorted(self.world.partition.isr) == [1, 2, 3]
        for node in self.world.nodes.values():
            self.check(node)
            assert node.log.high_watermark == self.world.nodes[1].log.log_end_offset
            if node.log.config.compacts:
                self._clean_all(node)

    def _clean_all(self, node: ReplicaNode) -> None:
        """The cleaner compacts everything that is sealed, whatever happened before."""
        node.log.roll()
        node.log.flush()
        for _ in range(40):
            self.do(lambda: self.cleaners.step(node))
        keys = [each.key for each in entries(node.log, 0, node.log.log_end_offset).values()]
        assert len(keys) == len(set(keys)), self.fail(f"the log of {node.node_id} is not compacted: {keys}")
