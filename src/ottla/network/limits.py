"""Limits on connections and their memory, from the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla.common.values import value
from ottla.config import BrokerConfig
from ottla.config.listener_settings import prefix_of

_UNLIMITED = 2**31 - 1
# Kafka has no limit by default. Without a limit, clients that send only the sizes of frames could use all memory.
DEFAULT_BUFFERED_BYTES = 512 * 1024 * 1024


@value
class ListenerLimits:
    """The limits of one listener, next to the limits of all listeners."""

    max_connections: int = _UNLIMITED
    max_connection_creation_rate: int = _UNLIMITED


_NO_LIMITS = ListenerLimits()


@value
class Limits:
    """The limits; the default is Kafka's if Kafka has the setting."""

    max_connections: int = _UNLIMITED
    max_connections_per_ip: int = _UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    max_connection_creation_rate: int = _UNLIMITED
    """New connections per second; connections above that rate wait."""
    max_frame_bytes: int = 100 * 1024 * 1024
    max_idle_ms: int = 600_000
    """Negative for no limit."""
    max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES
    """Bytes of half-received frames, over all connections."""
    slow_reader_ms: int = 600_000
    """How long a client may leave its responses unread. `from_config` uses the idle time for it, as Kafka does: a
    consumer that processes records for minutes reads nothing meanwhile."""
    backlog: int = 1024
    listeners: Mapping[str, ListenerLimits] = MappingProxyType({})
    """By the names of the listeners that have limits of their own."""
    protected_listener: str = ""
    """The listener of other brokers, next to listeners of clients: the limits of all listeners omit it (KIP-402,
    KIP-612), so that clients cannot stop replication."""

    def of_listener(self, listener: str) -> ListenerLimits:
        """The limits of one listener."""
        return self.listeners.get(listener, _NO_LIMITS)

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Limits:
        """The limits of a broker's settings; `Server.limits` is replaced when the settings change."""
        idle_ms = config.int("connections.max.idle.ms")
        queued_bytes = config.int("queued.max.request.bytes")
        configured_backlog = "socket.listen.backlog.size" in config.static
        return cls(
            max_connections=config.int("max.connections"),
            max_connections_per_ip=config.int("max.connections.per.ip"),
            max_connections_per_ip_overrides=config.connections_per_ip,
            max_connection_creation_rate=config.int("max.connection.creation.rate"),
            max_frame_bytes=config.int("socket.request.max.bytes"),
            max_idle_ms=idle_ms,
            max_buffered_bytes=queued_bytes if queued_bytes > 0 else DEFAULT_BUFFERED_BYTES,
            slow_reader_ms=idle_ms if idle_ms > 0 else cls().slow_reader_ms,
            # Kafka's default of 50 is too small here: while the only event loop is busy, more connections may arrive.
            backlog=config.int("socket.listen.backlog.size") if configured_backlog else cls().backlog,
            listeners=_listener_limits(config),
            protected_listener=config.inter_broker_listener if len(config.listeners) > 1 else "",
        )


def _listener_limits(config: BrokerConfig) -> Mapping[str, ListenerLimits]:
    limits: dict[str, ListenerLimits] = {}
    for listener in (*config.listeners, *config.controller_listeners):
        # Not from `for_listener`: the limit of all listeners is not the default of each.
        found = [
            config.listener_overrides.get(f"{prefix_of(listener.name)}{name}")
            for name in ("max.connections", "max.connection.creation.rate")
        ]
        if any(each is not None for each in found):
            limits[listener.name] = ListenerLimits(*(each if isinstance(each, int) else _UNLIMITED for each in found))
    return limits
