"""The committed records of the partitions of a simulated cluster, and their invariants, whatever fails.

- The high watermark of a leader never decreases in its epoch.
- A record below the high watermark of any leader is in the log of every later leader and of every in-sync replica, at
  its offset, and all logs agree there.
- An acknowledged record is below the high watermark, with its value.

Kafka promises this as long as one in-sync replica keeps its log. A partition starts over if it loses the last one: if
all in-sync replicas have lost unsynced records in power cuts, or after an unclean election.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.log.log import Log
from ottla.log.slices import FileSlice
from ottla.metadata.image import PartitionImage
from ottla.records import decode_batch, iter_batches
from tests.simulation.world.replica import Key, Replica

RECOVERING = 1


def contents(log: Log, start: int, end: int) -> list[tuple[int, bytes | None]]:
    """(leader epoch, value) of the records from `start` up to `end`, with None for an offset that a batch skips."""
    found: list[tuple[int, bytes | None]] = []
    offset = start
    while offset < end:
        # Not `log.read`: a leader may learn that its followers have the records after its directory went offline.
        found_bytes = log.segments.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True)
        data = found_bytes.take(len(found_bytes)) if isinstance(found_bytes, FileSlice) else found_bytes
        for position, header in iter_batches(data):
            values = {each.offset: each.value for each in decode_batch(data, position)}
            offsets = range(max(offset, header.base_offset), min(end, header.next_offset))
            found += [(header.partition_leader_epoch, values.get(each)) for each in offsets]
            offset = max(offset, header.next_offset)
    return found


@dataclass
class Committed:
    """The committed records of one partition since the last loss that Kafka allows."""

    name: str
    from_epoch: int = 0
    """Leaders of earlier epochs do not count."""
    losses: int = 0
    """How often the partition started over."""
    records: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(leader epoch, value)."""
    keys: list[bytes | None] = field(default_factory=list)
    """The key of each record, in topics that are compacted."""
    committed_in: list[int] = field(default_factory=list)
    """The epoch of the leader that committed each record, which may be later than the record's."""
    acknowledged: dict[int, bytes | None] = field(default_factory=dict)
    lossy: dict[int, int] = field(default_factory=dict)
    """Replicas that lost unsynced records, with the epoch of their broker then."""
    high_watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    """By node and leader epoch."""

    def follow(self, partition: PartitionImage, before: PartitionImage | None, epochs: dict[int, int]) -> None:
        """Take in a change of the metadata; start over if no replica has to have everything any more.

        Next to the in-sync replicas, the eligible ones have everything (KIP-966); without any, the last leader.
        """
        complete = {*partition.isr, *partition.eligible_leader_replicas} or set(partition.last_known_elr)
        for node, epoch in list(self.lossy.items()):
            may_lead = node in complete or node in partition.last_known_elr
            if not may_lead and epochs.get(node, epoch) > epoch:
                del self.lossy[node]  # It must catch up before it returns.
        is_unclean = partition.leader_recovery_state == RECOVERING and (
            before is None or before.leader_epoch != partition.leader_epoch
        )
        if is_unclean and before is not None and before.last_known_elr == (partition.leader,):
            # Kafka trusts it less than this simulation, which knows whether it lost records.
            is_unclean = partition.leader in self.lossy
        if is_unclean or (complete and complete <= self.lossy.keys()):
            self.start_over(partition.leader_epoch)
        if is_unclean:
            self.lossy.pop(partition.leader, None)  # From now on, its log counts.

    def start_over(self, epoch: int) -> None:
        """Forget what was committed: Kafka promises nothing any more."""
        self.from_epoch = epoch
        self.losses += bool(self.records)
        self.records.clear()
        self.keys.clear()
        self.committed_in.clear()
        self.acknowledged.clear()
        self.high_watermarks.clear()


class CommittedChecks:
    """The committed records of all partitions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: dict[Key, Committed] = {}

    def fail(self, problem: str) -> str:
        return f"{problem} ({self.name})"

    def of(self, key: Key, name: str) -> Committed:
        """Return the committed records of a partition."""
        return self.partitions.setdefault(key, Committed(name))

    # -- what happens ------------------------------------------------------------------------------------------------

    def advanced(self, replica: Replica, node: int) -> None:
        """A leader's high watermark may have moved."""
        known = self.partitions[replica.key]
        leader, log = replica.leader, replica.log
        if leader is None or leader.leader_epoch < known.from_epoch:
            return
        high_watermark = log.high_watermark
        is_new = (node, leader.leader_epoch) not in known.high_watermarks
        previous = known.high_watermarks.get((node, leader.leader_epoch), 0)
        text = f"the high watermark of {known.name} on {node} in epoch {leader.leader_epoch} moves from {previous}"
        assert high_watermark >= previous, self.fail(f"{text} to {high_watermark}")
        known.high_watermarks[node, leader.leader_epoch] = high_watermark
        end = len(known.records)
        if high_watermark > end:
            known.records += contents(log, end, high_watermark)
            latest = max([leader.leader_epoch, *known.committed_in[-1:]])
            known.committed_in += [latest] * (high_watermark - end)
        if is_new:  # perhaps much later than the election, when others lead
            required = bisect_right(known.committed_in, leader.leader_epoch)
            self.check_log(known, log, f"leader {node} of epoch {leader.leader_epoch}", required)

    def check_log(self, known: Committed, log: Log, who: str, required: int | None = None) -> None:
        """A log must have everything committed, or the first `required` records of it."""
        end, start = len(known.records) if required is None else required, log.log_start_offset
        assert log.log_end_offset >= end, self.fail(
            f"{who} of {known.name} has {log.log_end_offset} of {end} committed records"
        )
        own = contents(log, start, end)
        if own != known.records[start:end]:
            pairs = enumerate(zip(own, known.records[start:end], strict=True))
            at = next(i for i, pair in pairs if pair[0] != pair[1])
            problem = f"{who} of {known.name} has {own[at]} at offset {start + at}, not {known.records[start + at]}"
            raise AssertionError(self.fail(problem))

    def acknowledged(self, key: Key, leader: Replica, offset: int, values: Iterable[bytes]) -> None:
        """A leader acknowledges records."""
        known = self.partitions[key]
        if leader.epoch < known.from_epoch:
            return
        for at, value in enumerate(values, offset):
            assert at < len(known.records), self.fail(f"{known.name} acknowledges offset {at} before it is committed")
            assert known.records[at][1] == value, self.fail(f"{known.name} acknowledges another record at {at}")
            known.acknowledged[at] = value

    def changed(
        self, key: Key, partition: PartitionImage, before: PartitionImage | None, epochs: dict[int, int]
    ) -> None:
        """The committed metadata of a partition changed; `epochs` has the registered brokers' epochs."""
        known = self.partitions[key]
        known.follow(partition, before, epochs)
