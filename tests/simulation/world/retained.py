"""Checks of the logs that compaction and retention change in a simulated cluster.

- The offset, epoch and value of a committed record never change.
- A record below the log end is missing only if the topic is or was compacted and a later record has its key, or if the
  topic is or was subject to retention and the record is before the log start.
- Retention moves no log start above the committed records, and leaves at least `retention.bytes` in a leader's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.common.ids import TopicPartition
from ottla.log.log import Log
from ottla.log.slices import FileSlice
from ottla.records import decode_batch, iter_batches
from tests.simulation.world.committed import Committed

if TYPE_CHECKING:
    from ottla.broker.server import Node
    from tests.simulation.world.cluster import NodeRun
    from tests.simulation.world.cluster_checks import ClusterChecks

UNKNOWN = (-1, None)
"""Takes the place of a record that was deleted before its partition started over."""


class Entry(NamedTuple):
    """A record of a log."""

    epoch: int
    key: bytes | None
    value: bytes | None


def entries(log: Log, start: int, end: int) -> dict[int, Entry]:
    """The records from `start` up to `end` by offset."""
    found: dict[int, Entry] = {}
    offset = start
    while offset < end:
        piece = log.segments.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True)
        data = piece.take(len(piece)) if isinstance(piece, FileSlice) else piece
        if not data:
            break
        for position, header in iter_batches(data):
            for each in decode_batch(data, position):
                assert each.offset not in found, f"{log} has offset {each.offset} twice"
                if start <= each.offset < end:
                    found[each.offset] = Entry(header.partition_leader_epoch, each.key, each.value)
            offset = max(offset, header.next_offset)
    return found


class Seen(NamedTuple):
    """The parts of a log that compaction, retention and moves change."""

    log: Log
    first: int
    cleaned_to: int
    start: int


class Retained:
    """The topics that are compacted or subject to retention, and the checks of their logs."""

    def __init__(self, checks: ClusterChecks) -> None:
        self._checks = checks
        self._cluster = checks.cluster
        self._policies: dict[str, set[str]] = {}
        self._retention_bytes: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        """The highest log start of a leader by partition: records before it are deleted, even if a crash brings back
        some of them."""
        self._seen: dict[NodeRun, dict[TopicPartition, Seen]] = {}
        self.cleanings = self.deletions = 0
        """How often a log was compacted, and lost its first segments."""
        checks.retained = self
        self._cluster.on_event.append(self._after_event)

    def add(self, topic: str, policy: str, retention_bytes: int) -> None:
        """A topic is about to be created."""
        self._retention_bytes[topic] = retention_bytes
        self._policies[topic] = set(policy.split(","))

    def changes(self, topic: str, policy: str) -> None:
        """The policy of a topic is about to change. Deletions by the former policy may have happened, or happen yet."""
        self._policies[topic] |= set(policy.split(","))

    def __contains__(self, topic: str) -> bool:
        return topic in self._policies

    def take(self, known: Committed, log: Log, start: int, end: int) -> None:
        """Note that a leader committed the records of a range."""
        found = entries(log, start, end)
        for offset in range(start, end):
            entry = found.get(offset)
            problem = f"offset {offset} of {known.name} is missing when it is committed"
            assert entry is not None or known.losses or offset < log.log_start_offset, self._cluster.fail(problem)
            known.records.append((entry.epoch, entry.value) if entry is not None else UNKNOWN)
            known.keys.append(entry.key if entry is not None else None)

    def check(self, known: Committed, log: Log, who: str, start: int, end: int) -> None:
        """Check that a log has the committed records of a range as far as it must."""
        fail, policies = self._cluster.fail, self._policies[known.name.rpartition("-")[0]]
        log_start = log.log_start_offset
        problem = f"{who} of {known.name} starts at {log_start}"
        assert known.losses or not known.records or log_start <= len(known.records), fail(problem)
        own = entries(log, max(start, log_start), end)
        for offset, entry in own.items():
            wanted = known.records[offset]
            if offset < self._starts.get(known.name, 0):
                continue
            assert wanted in {UNKNOWN, (entry.epoch, entry.value)}, fail(
                f"{who} of {known.name} has {entry} at offset {offset}, not {wanted}"
            )
        missing = [each for each in range(start, end) if each not in own and known.records[each] != UNKNOWN]
        if not missing:
            return
        last = {key: offset for offset, key in enumerate(known.keys)}
        for offset in missing:
            is_superseded = "compact" in policies and last[known.keys[offset]] > offset
            assert is_superseded or ("delete" in policies and offset < log_start), fail(
                f"{who} of {known.name} lacks offset {offset} of {end}: {known.keys[offset]!r} with value"
                f" {known.records[offset]}, log start {log_start}, last of its key {last[known.keys[offset]]}"
            )

    def _after_event(self, run: NodeRun) -> None:
        """Check each log whose files compaction or retention changed."""
        node = run.node
        if node is None or not node._started:
            return
        seen = self._seen.setdefault(run, {})
        for topic, name in self._names():
            log = node.broker.logs.get(name)
            if log is None:
                continue
            now = Seen(log, log.segments[0].base_offset, log.segments.cleaned_to, log.log_start_offset)
            before = seen.get(name)
            if now == before:
                continue
            seen[name] = now
            if before is not None and before.log is log:
                self.cleanings += now.cleaned_to > before.cleaned_to
                self.deletions += now.start > before.start
                if now.start > before.start:
                    self._check_size(node, topic, name, log)
            self._check_replica(node, name, log)

    def _names(self) -> list[tuple[str, TopicPartition]]:
        topics = self._checks.history.image.topics_by_name
        return [(topic, TopicPartition(topic, i)) for topic in self._policies if topic in topics for i in
                topics[topic].partitions]  # fmt: skip

    def _check_size(self, node: Node, topic: str, name: TopicPartition, log: Log) -> None:
        is_leader = any(partition.topic_partition == name for partition in node.broker.partitions)
        if is_leader:
            self._starts[str(name)] = max(self._starts.get(str(name), 0), log.log_start_offset)
        least = self._retention_bytes[topic]
        assert not is_leader or log.size >= least, self._cluster.fail(
            f"retention of {name} on {node.config.node_id} leaves {log.size} of {least} bytes"
        )

    def _check_replica(self, node: Node, name: TopicPartition, log: Log) -> None:
        known, image = self._checks.partitions.get(name), self._checks.image_of(name)
        node_id = node.config.node_id
        if known is not None and image is not None and node_id in image.isr and node_id not in known.lossy:
            end = min(len(known.records), log.log_end_offset)
            self.check(known, log, f"in-sync replica {node_id}", 0, end)

    # -- at the end --------------------------------------------------------------------------------------------------

    def check_all(self) -> None:
        """Check each replica of each partition."""
        for node in self._cluster.running().values():
            for _, name in self._names():
                log = node.broker.logs.get(name)
                if log is not None:
                    self._check_replica(node, name, log)

    def are_cleaned(self) -> bool:
        """Whether all segments but the active ones are compacted, where the policy says so."""
        return not self.uncleaned()

    def uncleaned(self) -> list[str]:
        """The logs that still have segments to compact."""
        return [
            f"{name} on {node_id}: {log.segments.cleaned_to} of {log.segments[-1].base_offset}"
            for node_id, node in self._cluster.running().items()
            for _, name in self._names()
            if (log := node.broker.logs.get(name)) is not None
            and log.config.compacts
            and max(log.segments.cleaned_to, log.segments[0].base_offset) < log.segments[-1].base_offset
        ]

    def check_values(self, name: TopicPartition, values: dict[bytes | None, bytes | None], end: int) -> None:
        """A reader read a partition from its start up to `end`: it must have the last value of each key."""
        if "delete" in self._policies[name.topic] or self._checks.losses:
            return
        known = self._checks.partitions[name]
        last = {key: offset for offset, key in enumerate(known.keys)}
        for key, offset in last.items():
            value = known.records[offset][1]
            if offset < end:
                assert values.get(key, b"nothing") == value, self._cluster.fail(
                    f"the reader of {name} has {values.get(key)!r} for {key!r}, not {value!r} of offset {offset}"
                )
