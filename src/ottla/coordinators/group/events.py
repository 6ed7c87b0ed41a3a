"""Events and effects of a shard.

An event is a `Call` or the outcome of an append, `Appended`. A call carries a request of Kafka's protocol, or one of
the requests below, into which the broker splits a request that names several groups. Effects are `Append`, `Reply` and
`LogLine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup


class Moment(NamedTuple):
    """The present time: the monotonic clock for timers, the wall clock for timestamps that are stored."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Fetch the committed offsets of one group; the response is an OffsetFetchResponseGroup.

    If the request is for all offsets and the group has more than `most`, the response is a list of
    OffsetFetchRequestTopics instead, which the caller must fetch in parts.
    """

    group: OffsetFetchRequestGroup
    require_stable: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Describe one group and its members; the response is a DescribedGroup."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    """List the groups of this shard; the response is a list of ListedGroup."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete one group and its offsets; the response is a DeletableGroupResult, or None while offsets are left.

    Each call deletes a bounded number of offsets; the call that deletes the last ones also deletes the group.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class ForceRebalance:
    """Start a rebalance, as if a member had joined or left; the response is an ErrorCode."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Delete the offsets of deleted topics, a bounded number per call; the response is True if more are left."""

    names: frozenset[str]


class Call:
    """A request to the shard. The `Reply` refers to it by identity; `token` is for the caller's own use."""

    __slots__ = ("api_version", "client_host", "client_id", "request", "token")

    def __init__(
        self,
        request: object,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        token: object = None,
    ) -> None:
        self.request = request
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.token = token


RecordBytes: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to `call`."""

    call: Call
    response: object


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records as one batch, then report the outcome as `Appended` with the same id.

    A record is a key and a value; the value None makes it a tombstone.
    """

    id: int
    records: tuple[RecordBytes, ...]


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


Effect: TypeAlias = Append | Reply | LogLine
Effects: TypeAlias = list[Effect]
