"""Limits the frames that each connection handles before other connections are served.

One read can contain ten thousand small requests. A connection that pipelines therefore handles a limited number of
frames in one round, and the rest in later rounds. A round is an event loop iteration in which some connection handled
several frames. All connections that pipeline share `FRAMES_PER_ROUND`, some 60 ms of work. A heartbeat waits at most
that long, instead of waiting for 200 requests of each of hundreds of connections.
"""

from __future__ import annotations

from typing import Final

FRAMES_PER_ROUND: Final = 2000
MOST_FRAMES: Final = 200
LEAST_FRAMES: Final = 8
# With more connections than this in a round, each reads less at a time: bytes that cannot be handled soon stay in the
# socket.
CROWDED_CONNECTIONS: Final = 8


class FrameQuota:
    """The share of a connection in the current round, from the number of connections in the previous one."""

    __slots__ = ("_connections", "_frames", "is_crowded", "per_connection", "round")

    def __init__(self) -> None:
        self.round = 1
        self.per_connection = MOST_FRAMES
        self.is_crowded = False
        self._connections = self._frames = 0

    @property
    def is_untouched(self) -> bool:
        """Whether no connection has used frames of this round yet."""
        return not self._connections

    def use(self, frames: int, *, is_first: bool) -> None:
        """Count the frames that a connection handled, `is_first` for its first ones of this round.

        After the first use of a round the caller calls `next_round` in the next event loop iteration.
        """
        self._connections += is_first
        self._frames += frames
        if self._frames > FRAMES_PER_ROUND:  # more connections pipeline than in the previous round
            self.per_connection = LEAST_FRAMES

    def next_round(self) -> None:
        """Divide the frames of the next round by the connections of this one."""
        connections = max(self._connections, 1)
        self._connections = self._frames = 0
        self.round += 1
        self.per_connection = max(min(FRAMES_PER_ROUND // connections, MOST_FRAMES), LEAST_FRAMES)
        self.is_crowded = connections > CROWDED_CONNECTIONS


class RoundShare:
    """The frames that one connection may still handle in the last round in which it handled several.

    `has_backlog` is True if they were used up before all received frames were handled.
    """

    __slots__ = ("_left", "_round", "has_backlog")

    def __init__(self) -> None:
        self._round = self._left = 0
        self.has_backlog = False

    def frames(self, quota: FrameQuota) -> int:
        """How many frames the connection may handle in this round."""
        return quota.per_connection if self._round != quota.round else self._left

    def use(self, quota: FrameQuota, handled: int, left: int) -> None:
        """Count the `handled` frames; the connection has `left` of its share."""
        quota.use(handled, is_first=self._round != quota.round)
        self._round, self._left = quota.round, left
