"""What goes into a shard and what comes out of it.

In: a `Call`, which is a request of Kafka's protocol or one of the small questions below that a request splits into
when it names several groups. Out: `Append`, `Reply` and `LogLine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup


class Moment(NamedTuple):
    """Now, twice: timers run on the steady clock, what is written down bears the wall's."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """The committed offsets of one group; answered with an OffsetFetchResponseGroup.

    If all are asked for and there are more than `most`, the answer is what to ask for: a list of
    OffsetFetchRequestTopics.
    """

    group: OffsetFetchRequestGroup
    require_stable: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """One group and its members; answered with a DescribedGroup."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    """The groups of this shard; answered with a list of ListedGroup."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete one group with its offsets; answered with a DeletableGroupResult, or with None while offsets are left.

    A bounded number of offsets is deleted at a time, those of a group with more of them before the group itself.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class ForceRebalance:
    """Have all members join again, as if one had come or gone; answered with an ErrorCode."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted: their offsets go too, a bounded number at a time. Answered with whether more are left."""

    names: frozenset[str]


class Call:
    """A request on its way through the shard; whoever made it finds its answer by identity.

    `token` is the caller's own and never looked at.
    """

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
    """The answer to `call`."""

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
    """A line for the broker's log, `message % arguments`, in the words that Kafka has for the event."""

    message: str
    arguments: tuple[object, ...]
    is_error: bool = False


def log_line(message: str, *arguments: object) -> LogLine:
    """A line at INFO."""
    return LogLine(message, arguments)


Effect: TypeAlias = Append | Reply | LogLine
Effects: TypeAlias = list[Effect]
