"""The broker sessions of the active controller between heartbeats; they are not in the image (KIP-631).

A new active controller begins with `begin_all`: each registered broker gets a full session timeout to contact it.
Times are monotonic milliseconds, passed by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.metadata.image import BrokerImage

_LONG_AGO = -(1 << 62)


class Sessions:
    """The last contact, metadata offset and shutdown offset of each broker. Bounded by the registered brokers."""

    __slots__ = (
        "_contacts",
        "_disconnected",
        "_metadata_offsets",
        "_registered_offsets",
        "_shutdown_offsets",
        "_stopped",
        "timeout_ms",
    )

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._contacts: dict[int, tuple[int, int]] = {}  # broker id: epoch, time
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}
        self._registered_offsets: dict[int, int] = {}
        self._disconnected: set[int] = set()
        self._stopped: dict[int, int] = {}

    def begin_all(self, brokers: Iterable[BrokerImage], now_ms: int) -> None:
        """Begin a session of every registered broker, when this controller becomes active."""
        self._contacts.clear()
        self._metadata_offsets.clear()
        self._shutdown_offsets.clear()
        self._disconnected.clear()
        self._stopped.clear()
        for broker in brokers:
            self.touch(broker.broker_id, broker.epoch, now_ms)

    def begin(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Begin the session of a new registration."""
        self.end(broker_id)
        self.touch(broker_id, epoch, now_ms)

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Note a contact of a registered broker."""
        self.prolong(broker_id, epoch, now_ms)
        self._disconnected.discard(broker_id)

    def prolong(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Give the broker a full session without a contact."""
        self._contacts[broker_id] = (epoch, now_ms)

    def expire(self, broker_id: int, epoch: int) -> None:
        """Let the session of this registration expire now."""
        self._contacts[broker_id] = (epoch, _LONG_AGO)

    def extend(self, by_ms: int) -> None:
        """Extend all sessions by a time in which no heartbeat could arrive."""
        for broker_id, (epoch, time_ms) in self._contacts.items():
            self._contacts[broker_id] = (epoch, time_ms + by_ms)

    def note_disconnected(self, broker_id: int) -> None:
        """Note that the connection of the broker's last contact was closed."""
        if broker_id in self._contacts:
            self._disconnected.add(broker_id)

    def is_disconnected(self, broker_id: int) -> bool:
        """Whether the broker's connection was closed after its last contact."""
        return broker_id in self._disconnected

    def end(self, broker_id: int) -> None:
        """Forget the broker."""
        self._contacts.pop(broker_id, None)
        self._disconnected.discard(broker_id)
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def is_valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this registration of the broker has a session that has not expired."""
        known_epoch, time_ms = self._contacts.get(broker_id, (-1, 0))
        return known_epoch == epoch and now_ms - time_ms <= self.timeout_ms

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Return (broker id, epoch) of the expired sessions."""
        contacts = self._contacts.items()
        return [(broker_id, epoch) for broker_id, (epoch, ms) in contacts if now_ms - ms > self.timeout_ms]

    def note_registered(self, broker_id: int, offset: int) -> None:
        """Note the offset at which the broker's latest registration is in the log."""
        self._registered_offsets[broker_id] = offset

    def registered_offset(self, broker: BrokerImage) -> int:
        """Return the offset that the broker must have read before it may serve."""
        return max(broker.epoch, self._registered_offsets.get(broker.broker_id, -1))

    def note_metadata_offset(self, broker_id: int, offset: int) -> None:
        """Note how far the broker has read the metadata log."""
        self._metadata_offsets[broker_id] = offset

    def metadata_offset(self, broker_id: int) -> int | None:
        """Return how far the broker has read the metadata log; None if it has no session."""
        return self._metadata_offsets.get(broker_id, -1) if broker_id in self._contacts else None

    def shutdown_offset(self, broker_id: int, present: int) -> int:
        """Return the offset that other brokers must have read before the broker stops; the first call sets it."""
        return self._shutdown_offsets.setdefault(broker_id, present)

    def note_stopped(self, broker_id: int, epoch: int) -> None:
        """Note that this registration of the broker was allowed to stop."""
        self._stopped[broker_id] = epoch

    def has_stopped(self, broker_id: int, epoch: int) -> bool:
        """Whether this registration of the broker was allowed to stop; it never serves again."""
        return self._stopped.get(broker_id) == epoch

    def forget_shutdown(self, broker_id: int) -> None:
        """Forget the offset of a controlled shutdown, which ends when the broker is fenced."""
        self._shutdown_offsets.pop(broker_id, None)
