"""Events and effects that all coordinators share: what a shard gets from its runtime, and returns to it.

An event is a `Call` or the outcome of an append, `Appended`. Effects are `Append`, `Reply` and `LogLine`. A coordinator
may have further kinds of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.request import Request

Q_co = TypeVar("Q_co", covariant=True)
R = TypeVar("R")


class Moment(NamedTuple):
    """The present time: the monotonic clock for timers, the wall clock for timestamps that are stored."""

    monotonic_ms: int
    wall_ms: int


class Call(Generic[Q_co]):
    """A request to the shard. The `Reply` refers to it by identity; `token` is for the caller's own use."""

    __slots__ = ("api_version", "client_host", "client_id", "may_describe", "request", "token")

    def __init__(
        self,
        request: Q_co,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        token: object = None,
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """`may_describe` says whether the client may know a topic; None if there is no authorizer."""
        self.request = request
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.token = token
        self.may_describe = may_describe


RecordBytes: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records as one batch, then report the outcome as `Appended` with the same id.

    A record is a key and a value; the value None makes it a tombstone. With a producer id the batch is part of that
    producer's transaction, so that the records count only after its commit marker.
    """

    id: int
    records: tuple[RecordBytes, ...]
    producer_id: int = -1
    producer_epoch: int = -1


class Appended(NamedTuple):
    """The outcome of an `Append`: the offset of its first record, or the error for which nothing was appended."""

    append_id: int
    base_offset: int
    error: ErrorCode = ErrorCode.NONE


class LogLine(NamedTuple):
    """A line for the broker's log, `message % arguments`, in Kafka's wording."""

    message: str
    arguments: tuple[object, ...]
    is_error: bool = False


def log_line(message: str, *arguments: object) -> LogLine:
    """Create a line at level INFO."""
    return LogLine(message, arguments)


@dataclass(frozen=True, slots=True)
class ParkedEffect:
    """Base of effects that are executed only when everything appended so far is committed."""


@dataclass(frozen=True, slots=True)
class Reply(ParkedEffect, Generic[R]):
    """The response to `call`, of the type that the request declares (`Request`)."""

    call: Call[Request[R]]
    response: R


@dataclass(frozen=True, slots=True)
class OwnEffect(ParkedEffect):
    """Base of effects that only one coordinator has, and that its runtime executes."""


# `ParkedEffect` instead of `Reply`: in a list of `Reply[Any]` type checkers would accept any response.
Effect: TypeAlias = Append | LogLine | ParkedEffect
Effects: TypeAlias = list[Effect]
