"""Responses of one connection that its transport has not taken yet; does no I/O.

Responses leave in the order in which they were added. The transport gets one piece of at most `PIECE_BYTES` at a time,
and parts that are still in their file (`Unread`) are read when their piece is taken. So a client that reads slowly
uses the memory of one piece, however much it fetched.

While the queue is paused, the connection handles no further request of the client: that is the backpressure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.common.unread import Unread
from ottla.protocol.wire import Buffer

# Up to this size, copying the parts into one buffer is cheaper than a gathering write.
JOIN_BYTES: Final = 32 * 1024
# A socket takes this much at once (the maximum of Linux's tcp_wmem is 4 MiB), so that no unsent rest retains the memory
# of a piece. Smaller pieces wake the client more often: with pieces of 1 MB a fetch took a seventh longer.
PIECE_BYTES: Final = 4_000_000


class WriteQueue:
    """Parts of responses, first in, first out."""

    __slots__ = ("_parts", "_paused_tick", "_unsent_bytes", "is_paused")

    def __init__(self) -> None:
        self._parts: deque[Buffer | Unread] | None = None
        self.is_paused = False
        # While paused: the tick in which the client last took bytes, and how many it had left then.
        self._paused_tick = 0
        self._unsent_bytes = 0

    def __bool__(self) -> bool:
        """Whether there are parts to send."""
        return self._parts is not None

    def add(self, response: list[Buffer]) -> Buffer | None:
        """Queue a response; or return it as one buffer to send now if it is small and the queue is empty.

        A part in a file must be larger than `JOIN_BYTES`, and behind a part in memory.
        """
        if self._parts is None:
            if len(response) == 1:
                return response[0]
            if sum(map(len, response)) <= JOIN_BYTES:
                return b"".join(response)
            self._parts = deque(response)
        else:
            self._parts += response
        return None

    def take_piece(self) -> list[Buffer]:
        """Remove the next parts, up to `PIECE_BYTES`. Raises KafkaError if a file cannot be read.

        A part in memory is not cut, so that a piece may be larger by one part.
        """
        piece: list[Buffer] = []
        parts = self._parts
        remaining = PIECE_BYTES
        while parts and remaining > 0:
            part = parts[0]
            if isinstance(part, Unread):
                taken: Buffer = part.take(remaining)
                if not part:
                    parts.popleft()
            else:
                taken = part
                parts.popleft()
            piece.append(taken)
            remaining -= len(taken)
        if not parts:
            self._parts = None
        return piece

    def clear(self) -> None:
        """Drop all parts: the connection is lost."""
        self._parts = None

    def pause(self, tick: int, unsent_bytes: int = 0) -> None:
        """The transport has `unsent_bytes` left and accepts no more bytes."""
        self.is_paused = True
        self._paused_tick, self._unsent_bytes = tick, unsent_bytes

    def resume(self) -> None:
        """The transport accepts bytes again."""
        self.is_paused = False

    def stalled_ticks(self, tick: int, unsent_bytes: int) -> int:
        """The number of ticks in which the client took no bytes; the transport now has `unsent_bytes` left."""
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._paused_tick = unsent_bytes, tick
        return tick - self._paused_tick
