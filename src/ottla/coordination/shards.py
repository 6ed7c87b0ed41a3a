"""The interface of a coordinator and its shards to the coordinator's runtime."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordination.loading import Loading, Replayer
from ottla.coordinators.events import Appended, Call, Effect, Moment, ParkedEffect
from ottla.records import Codec

if TYPE_CHECKING:
    from ottla.partitions.partition import Partition


class Shard(Replayer, Protocol):
    """A shard as the runtime uses it. An effect is an `Append`, `Reply`, `LogLine` or of the coordinator's own."""

    skipped_records: int
    """The number of loaded records of unknown types."""

    def step(self, call: Call[Any], now: Moment) -> Iterable[Effect]:
        """Decide on one request."""
        ...

    def handle_appended(self, event: Appended, now: Moment) -> Iterable[Effect]:
        """Take in the outcome of an append."""
        ...

    def next_timer_ms(self) -> int | None:
        """When the next timer elapses, on the monotonic clock; None if no timer is set."""
        ...

    def handle_timer(self, now: Moment) -> Iterable[Effect]:
        """Handle one timer that has elapsed."""
        ...

    def unload(self, error: ErrorCode, now: Moment) -> Iterable[Effect]:
        """Answer parked requests with `error`."""
        ...


R = TypeVar("R")
S = TypeVar("S", bound=Shard)


class ErrorResponse(Protocol):
    """A function that creates the response to a call with an error, of the type that the request declares."""

    def __call__(self, call: Call[Request[R]], error: ErrorCode) -> R: ...


@dataclass(frozen=True, slots=True)
class Coordinator(Generic[S]):
    """The differences between coordinators."""

    name: str
    """For log lines, for example "GroupCoordinator"."""
    logger: logging.Logger
    new_shard: Callable[[int, int], S]
    """Creates the shard of a partition with this leader epoch."""
    loaded: Callable[[int, S, Moment], Iterable[Effect]]
    """Lets the shard of a partition serve requests, after its log was replayed; returns the effects."""
    error_response: ErrorResponse
    execute: Callable[[int, S, ParkedEffect], None] | None = None
    """Executes an effect of the coordinator's own, of a shard and its partition. `resume` reports the outcome."""


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """How a coordinator writes its log."""

    codec: Codec = Codec.NONE
    commit_timeout_ms: int = 5_000
    node_id: int = 1


class Waiting(NamedTuple):
    """An effect that must not be executed before everything below `end_offset` is committed."""

    end_offset: int
    deadline_ms: int
    effect: ParkedEffect


class Runner(Generic[S]):
    """One shard and its partition, while this node leads it in `leader_epoch`."""

    __slots__ = (
        "appended_end",
        "committed_end",
        "expires_replies",
        "index",
        "leader_epoch",
        "loading",
        "partition",
        "retry_at_ms",
        "scheduled_ms",
        "shard",
        "started_ms",
        "waiting",
    )

    def __init__(self, index: int, leader_epoch: int, partition: Partition, shard: S) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.partition = partition
        self.shard = shard
        self.loading: Loading | None = Loading(partition, shard)
        """None once the shard is loaded."""
        self.retry_at_ms: int | None = None
        """When to retry a load that failed; None if it did not fail."""
        self.scheduled_ms = 0
        self.started_ms: int | None = None
        """When loading began, on the monotonic clock."""
        # Replies are parked while committed_end < appended_end; the end of the log counts from the end of loading.
        self.appended_end = self.committed_end = 0
        self.waiting: deque[Waiting] = deque()
        # Whether a timer is set that expires parked replies. It may fire after they have been sent.
        self.expires_replies = False
