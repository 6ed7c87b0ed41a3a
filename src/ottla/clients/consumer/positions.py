"""The position of each assigned partition.

A partition has three offsets, in this order:

- `processed`: everything below it was processed; an automatic commit commits it.
- `offset`: the next record that a poll returns.
- `fetch_offset`: the next record to fetch. The records between `offset` and `fetch_offset` are buffered.

Phases: UNKNOWN -> RESET -> FETCH. `seek` leads to FETCH from every phase, and `reset` leads to RESET. No position is
looked up before the user asks for records (`wanted`), so that a commit or seek after the assignment takes effect.

`version` grows whenever the position is set from outside. A request stores the version that it asked for, and its
response is ignored if the version has changed since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.errors import ClientError, NotAssigned
from ottla.common.ids import TopicPartition

NO_END: Final = 2**63 - 1


class Phase(Enum):
    """The knowledge about a partition's position."""

    UNKNOWN = "no position yet: a committed offset or auto.offset.reset will give one"
    RESET = "the leader is to look up the offset of a timestamp"
    FETCH = "the position is known"

    __hash__ = object.__hash__


class LogBounds(NamedTuple):
    """The bounds of the partition's log in the last response to a fetch; -1 before the first one."""

    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


class PreferredReplica(NamedTuple):
    """The replica that the leader prefers for this client (KIP-392); -1 is the leader."""

    node: int = -1
    until_ms: float = 0.0


class Progress(NamedTuple):
    """The progress of the user in the records. Both offsets are None while there is no position."""

    processed: int | None = None
    settled: int | None = None
    """The offset after the records of earlier polls."""


class Buffer:
    """The fetched records that no poll has returned yet."""

    __slots__ = ("parts", "refetched_at", "size")

    def __init__(self) -> None:
        self.parts: deque[Fetched] = deque()
        self.size = 0
        self.refetched_at = -1
        """The offset of a corrupt batch that was fetched a second time."""

    def append(self, fetched: Fetched) -> None:
        self.parts.append(fetched)
        self.size += fetched.size

    def pop(self) -> int:
        """Remove the first part; returns its size."""
        size = self.parts.popleft().size
        self.size -= size
        return size


class Lookup:
    """The lookup of a position: by which timestamp, whether it is in flight, and why it failed."""

    __slots__ = ("error", "in_flight", "timestamp")

    def __init__(self) -> None:
        self.timestamp = -1
        self.in_flight = False
        self.error: ClientError | None = None
        """Why there is no position. Every poll raises it until the user seeks."""


class RecordEpoch:
    """The leader epoch of the record before the position; -1 if unknown."""

    __slots__ = ("checked", "epoch")

    def __init__(self, epoch: int = -1) -> None:
        self.epoch = epoch
        self.checked = -1
        """The epoch of the newest leader whose log is known to contain that record."""

    def must_check(self, leader_epoch: int) -> bool:
        """Whether the log of a leader of this epoch may lack records that were read (KIP-320).

        A leader never truncates the records of its own epoch.
        """
        return -1 < self.epoch < leader_epoch and self.checked < leader_epoch


class PartitionState:
    __slots__ = ("bounds", "buffer", "end", "fetch_offset", "lookup", "not_before_ms", "offset", "paused", "phase",
                 "preferred", "progress", "read", "tp", "version", "wanted")  # fmt: skip

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.phase = Phase.UNKNOWN
        self.offset = self.fetch_offset = -1
        self.end = NO_END
        """Nothing is fetched from this offset on."""
        self.read = RecordEpoch()
        self.progress = Progress()
        self.version = 0
        self.paused = False
        self.wanted = False
        """Whether the user has asked for records or the position since the assignment."""
        self.not_before_ms = 0.0
        """No request for this partition is sent before this time."""
        self.lookup = Lookup()
        self.buffer = Buffer()
        self.bounds = LogBounds()
        self.preferred = PreferredReplica()

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Read from `offset` on; the buffer is dropped."""
        self._invalidate()
        self.phase = Phase.FETCH
        self.offset = self.fetch_offset = offset
        self.read = RecordEpoch(epoch)
        self.progress = Progress(offset, offset)

    def reset(self, timestamp: int) -> None:
        """Read from the first record that is not older than `timestamp` (-1: the end, -2: the beginning)."""
        self._invalidate()
        self.phase = Phase.RESET
        self.lookup.timestamp = timestamp

    def forget(self) -> None:
        """Read from the committed offset on, which is looked up first; or from where auto.offset.reset says."""
        self._invalidate()
        self.phase = Phase.UNKNOWN
        self.offset = self.fetch_offset = -1
        self.read = RecordEpoch()
        self.progress = Progress()

    def refetch(self) -> None:
        """Fetch again from `offset` on; responses in flight are ignored."""
        self.version += 1
        self.drop_buffer()

    def _invalidate(self) -> None:
        self.version += 1
        self.not_before_ms = 0.0
        self.lookup = Lookup()
        self.drop_buffer()
        self.buffer.refetched_at = -1

    def drop_buffer(self) -> int:
        """Drop the buffered records, which are then fetched again. Returns the number of bytes freed."""
        freed = self.buffer.size
        self.buffer.parts.clear()
        self.buffer.size = 0
        self.fetch_offset = self.offset
        return freed

    @property
    def is_fetchable(self) -> bool:
        return (
            self.phase is Phase.FETCH
            and self.fetch_offset < self.end
            and self.wanted
            and not self.paused
            and not self.lookup.in_flight
            and self.lookup.error is None
        )

    def lag(self, isolation_level: int) -> int | None:
        """The number of records between the position and the end of the log at the last fetch; None before a fetch.

        With isolation level 1 (read_committed) the end is the last stable offset.
        """
        end, stable = self.bounds.high_watermark, self.bounds.last_stable_offset
        if isolation_level and stable >= 0:
            end = stable
        return None if self.phase is not Phase.FETCH or end < 0 else max(0, end - self.offset)

    def validate(self) -> None:
        if self.phase is Phase.FETCH:
            assert 0 <= self.offset <= self.fetch_offset, f"{self.tp}: {self.offset} > {self.fetch_offset}"
            processed = self.progress.processed
            assert processed is None or processed <= self.offset, f"{self.tp}: processed is ahead of offset"
        assert self.buffer.size == sum(part.size for part in self.buffer.parts), f"{self.tp}: the size is wrong"


class Positions:
    """The assigned partitions. Iteration is in the order in which polls take records from them."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._all_wanted = True
        self._created = 0

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def get(self, tp: TopicPartition) -> PartitionState | None:
        return self._states.get(tp)

    def of(self, tp: TopicPartition) -> PartitionState:
        """The state of a partition. Raises NotAssigned."""
        state = self._states.get(TopicPartition(*tp))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*tp)} is not assigned to this consumer")
        return state

    def assigned(self) -> list[TopicPartition]:
        return sorted(self._states)

    @property
    def buffered_bytes(self) -> int:
        return sum([state.buffer.size for state in self._states.values()])

    def want(self) -> bool:
        """Mark all partitions as wanted. Returns False if they were."""
        if self._all_wanted:
            return False
        self._all_wanted = True
        for state in self._states.values():
            state.wanted = True
        return True

    def move_to_end(self, tp: TopicPartition) -> None:
        """Make the next poll take records from the other partitions first."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions. A partition that stays assigned keeps its position and buffer."""
        old = self._states
        self._states = {tp: old.get(tp) or self._create(tp) for tp in sorted(partitions)}
        self._all_wanted = all(state.wanted for state in self)
        for tp, state in old.items():
            if tp not in self._states:
                state.version += 1

    def _create(self, tp: TopicPartition) -> PartitionState:
        """Create a state whose version differs from all versions of earlier assignments of the same partition."""
        state = PartitionState(tp)
        self._created += 1
        state.version = self._created << 32
        return state

    @staticmethod
    def begin_lookup(states: Iterable[PartitionState]) -> dict[TopicPartition, int]:
        """Mark a lookup as in flight for each state, and return the versions for `end_lookup`."""
        versions = {}
        for state in states:
            state.lookup.in_flight = True
            versions[state.tp] = state.version
        return versions

    def end_lookup(self, versions: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionState]:
        """Return the partitions whose position has not been set since `begin_lookup`."""
        current = {tp: s for tp, version in versions.items() if (s := self.get(tp)) and s.version == version}
        for state in current.values():
            state.lookup.in_flight = False
        return current
