"""The state that all fetchers of a node share, and the channel of each to its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.values import value
from ottla.replication.leader import ClusterView
from ottla.replication.session import FetchSettings

if TYPE_CHECKING:
    from ottla.common.timers import CallLater
    from ottla.common.work import Worker
    from ottla.log import LogManager
    from ottla.partitions.replication.quotas import FetchLimit, ReplicationQuota
    from ottla.protocol.message import Message


class Channel(Protocol):
    """The part of `NodeChannel` that is used here."""

    def send(
        self, request: Message, *, timeout_s: float, version: int | None = None, least_version: int = 0
    ) -> Completion[Message]:
        """Send a request; fails with NetworkError."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@value
class FetcherContext:
    """The state that all fetchers of this node share."""

    cluster: ClusterView
    logs: LogManager
    clock: Clock
    call_later: CallLater
    worker: Worker
    settings: FetchSettings
    request_timeout_s: float
    connect: Callable[[int, str], Channel | None]
    """Returns a channel to a node, for a client id; None if the address of the node is unknown."""
    on_lost: Callable[[int], None]
    """Called with the id of a leader that closed the connection of a fetcher."""
    on_answer: Callable[[int], None]
    """Called with the id of a leader when it answers a fetcher for the first time, or again after a failure."""
    on_failure: Callable[[int, str], None] | None = None
    """Called with the id of a leader that did not answer, and the reason."""
    on_throttled: Callable[[int, int], None] | None = None
    """Called with the id of a leader of another cluster whose quota delays the next fetch, and the milliseconds."""
    quota: ReplicationQuota | None = None
    limit: FetchLimit | None = None
    name_at_leader: Callable[[str], str] = str
    """The name that a topic has at the leader: a mirror may have another name for it."""
    fetches_last: bool = False
    """Whether consumers of the appended records are answered before the next fetch: no client waits for the fetch."""
