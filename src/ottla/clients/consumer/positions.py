"""Where a consumer reads: one `PartitionState` for each partition that it has.

Three offsets of one partition, in order: `processed` (handed over by earlier polls: what auto-commit commits),
`offset` (the next to hand over), `fetch_offset` (the next to fetch; what lies between is buffered).
Phases: COMMITTED -> RESET -> FETCH; `seek` leads to FETCH from anywhere, a reset to RESET. Nothing is looked up before
the user asks (`wanted`), so that what he commits or seeks after an assignment counts. `version` grows whenever the
offset is set from outside, so that an answer to an older question is known as such.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.errors import ClientError, NotAssigned
from ottla.common.ids import TopicPartition

NO_END = 2**63 - 1


class Phase(Enum):
    """What is known of a partition's position."""

    COMMITTED = "asks the group for its committed offset"
    RESET = "asks the leader for the offset of a timestamp"
    FETCH = "has a position"

    __hash__ = object.__hash__


class PartitionState:
    """One partition that the consumer has."""

    __slots__ = ("asking", "buffered", "buffered_bytes", "checked_epoch", "epoch", "error", "fetch_offset",
                 "high_watermark", "last_stable_offset", "log_start_offset", "not_before_ms", "offset",
                 "paused", "phase", "preferred", "preferred_until_ms", "processed", "refetched_at",
                 "reset_timestamp", "settled", "tp", "until", "version", "wanted")  # fmt: skip

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.phase = Phase.COMMITTED
        self.offset = self.fetch_offset = -1
        self.until = NO_END
        """The offset from which on nothing is fetched."""
        self.epoch = -1
        """The leader epoch of the record before `offset`, -1 if it is not known."""
        self.checked_epoch = -1
        """The leader whose log is known to hold that record."""
        self.processed: int | None = None
        """What auto-commit commits; None before there is a position."""
        self.settled: int | None = None
        """The offset after what earlier polls handed over."""
        self.version = 0
        self.paused = False
        self.wanted = False
        """Whether the user asked for it since it was assigned; not looked at before: he may seek or commit first."""
        self.asking = False
        """Whether a question about the position is in flight."""
        self.not_before_ms = 0.0
        self.reset_timestamp = -1
        self.error: ClientError | None = None
        """Why there is no position; every poll raises it until somebody seeks."""
        self.buffered: deque[Fetched] = deque()
        self.buffered_bytes = 0
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.preferred = -1
        self.preferred_until_ms = 0.0
        self.refetched_at = -1

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Read from `offset` on; what is buffered is dropped."""
        self._forget()
        self.phase = Phase.FETCH
        self.offset = self.fetch_offset = offset
        self.epoch = epoch
        self.checked_epoch = -1
        self.processed = self.settled = offset

    def reset(self, timestamp: int) -> None:
        """Read from the first record that is not older than `timestamp` (-1: the end, -2: the beginning)."""
        self._forget()
        self.phase = Phase.RESET
        self.reset_timestamp = timestamp

    def ask_committed(self) -> None:
        """Read from where the group is."""
        self._forget()
        self.phase = Phase.COMMITTED

    def must_check(self, leader_epoch: int) -> bool:
        """Whether a leader of this epoch may not have what was read: no leader cuts its own epoch (KIP-320)."""
        return -1 < self.epoch < leader_epoch and self.checked_epoch < leader_epoch

    def restart(self) -> None:
        """Fetch again from `offset` on; what is on its way is nobody's."""
        self.version += 1
        self.drop_buffer()

    def _forget(self) -> None:
        self.version += 1
        self.asking = False
        self.not_before_ms = 0.0
        self.error = None
        self.refetched_at = -1
        self.drop_buffer()

    def drop_buffer(self) -> int:
        """Forget what was fetched and not handed over: it will be fetched again. The bytes that are free now."""
        freed = self.buffered_bytes
        self.buffered.clear()
        self.buffered_bytes = 0
        self.fetch_offset = self.offset
        return freed

    @property
    def fetchable(self) -> bool:
        """Whether more of it may be asked for."""
        return (
            self.phase is Phase.FETCH
            and self.fetch_offset < self.until
            and self.wanted
            and not self.paused
            and self.error is None
        )

    def lag(self, isolation: int) -> int | None:
        """Records between the position and the end as the last fetch showed it; None before that.

        For `isolation` 1 (read_committed) the end is the last stable offset: nothing beyond it is handed over.
        """
        end = self.last_stable_offset if isolation and self.last_stable_offset >= 0 else self.high_watermark
        return None if self.phase is not Phase.FETCH or end < 0 else max(0, end - self.offset)

    def validate(self) -> None:
        """Raise AssertionError if the offsets contradict each other."""
        if self.phase is Phase.FETCH:
            assert 0 <= self.offset <= self.fetch_offset, f"{self.tp}: {self.offset} > {self.fetch_offset}"
            assert self.processed is None or self.processed <= self.offset, f"{self.tp}: processed what is to come"
        assert self.buffered_bytes == sum(f.size for f in self.buffered), f"{self.tp}: bytes miscounted"


class Positions:
    """The partitions that the consumer has."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._unwanted = False
        self._births = 0

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """The state of a partition, None if the consumer does not have it."""
        return self._states.get(tp)

    def of(self, tp: TopicPartition) -> PartitionState:
        """The state of a partition; raises NotAssigned."""
        state = self._states.get(TopicPartition(*tp))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*tp)} is not assigned to this consumer")
        return state

    def assigned(self) -> list[TopicPartition]:
        """The partitions, sorted."""
        return sorted(self._states)

    def want(self) -> bool:
        """The user asks for all of them; False if he did before."""
        if not self._unwanted:
            return False
        self._unwanted = False
        for state in self._states.values():
            state.wanted = True
        return True

    def move_to_end(self, tp: TopicPartition) -> None:
        """Let the others come first when they are gone through."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    def _made(self, tp: TopicPartition) -> PartitionState:
        """One that no question was asked about that is still under way from when the partition was here before."""
        state = PartitionState(tp)
        self._births += 1
        state.version = self._births << 32
        return state

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Have exactly these; one that stays keeps its position and buffer."""
        old = self._states
        self._states = {tp: old.get(tp) or self._made(tp) for tp in sorted(partitions)}
        self._unwanted = not all(state.wanted for state in self)
        for tp, state in old.items():
            if tp not in self._states:
                state.version += 1  # answers that are still under way belong to nobody
