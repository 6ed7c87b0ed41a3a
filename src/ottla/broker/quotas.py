"""Client quotas of this node, which follow the metadata: limits of clients, and permits to change topics.

`RequestUsage` counts what the requests of clients use, and `Permits` what they change (KIP-599).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.clock import SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.security.client_quotas import AddressQuotas, ClientQuotas, Windows

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.common.clock import Clock
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage

DEFAULT_WINDOWS = Windows()


class Quotas:
    """The quotas of one node."""

    def __init__(
        self,
        windows: Windows = DEFAULT_WINDOWS,
        mutation_windows: Windows = DEFAULT_WINDOWS,
        clock: Clock | None = None,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`now_ns` measures how long requests take."""
        self.is_active = False
        """Whether any user or client id has a quota."""
        self.clients = ClientQuotas(windows, mutation_windows)
        self.addresses = AddressQuotas(windows)
        self.monotonic_ms = (clock or SystemClock()).monotonic_ms
        self.now_ns = now_ns

    @classmethod
    def from_config(cls, config: BrokerConfig, clock: Clock) -> Quotas:
        """Create the quotas of a node with these settings."""
        return cls(
            Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1000),
            Windows(
                config.int("controller.quota.window.num"), config.int("controller.quota.window.size.seconds") * 1000
            ),
            clock,
        )

    def publish(self, image: MetadataImage) -> None:
        """Take over the quotas of an image."""
        self.clients.publish(image.client_quotas)
        self.addresses.publish(image.client_quotas)
        self.is_active = any(self.clients.configured)

    def refused_ms(self, address: str) -> int:
        """Count a connection of an address; return how long the address must not connect, 0 if it may."""
        return self.addresses.connect(address, self.monotonic_ms()) if self.addresses.is_configured else 0

    def permits(self, context: RequestContext, strict_since: int) -> Permits:
        """The changes of topics that a request may make; its version decides whether the quota is strict."""
        return Permits(self, *client_of(context), is_strict=context.api_version >= strict_since)


class Permits:
    """The changes of topics that one request may make."""

    __slots__ = ("_client_id", "_is_strict", "_quotas", "_taken_ms", "_user", "_wait_ms")

    def __init__(self, quotas: Quotas, user: str, client_id: str, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._is_strict = is_strict
        self._wait_ms = self._taken_ms = 0

    def take(self, count: int) -> None:
        """Count changes of `count` partitions. Raises THROTTLING_QUOTA_EXCEEDED if they must not be made."""
        quotas = self._quotas
        now_ms = quotas.monotonic_ms()
        wait_ms = quotas.clients.take_mutations(self._user, self._client_id, count, now_ms, is_strict=self._is_strict)
        if wait_ms:
            self._wait_ms, self._taken_ms = wait_ms, now_ms
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    @property
    def throttle_time_ms(self) -> int:
        """How long the client still has to pause."""
        return max(self._wait_ms - (self._quotas.monotonic_ms() - self._taken_ms), 0) if self._wait_ms else 0


def client_of(context: RequestContext) -> tuple[str, str]:
    """The user and the client id of a request, as quotas name them. The type of the principal does not matter."""
    return context.principal.partition(":")[2], context.client_id or ""
