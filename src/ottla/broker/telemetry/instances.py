"""The client instances of this node: which subscription each has, and when it may ask and push again. Without I/O.

The number of instances is bounded: the least recently used one is dropped first, as in Kafka. A dropped instance is
recreated by the next request of its client, whose interval then starts again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.broker.telemetry.subscriptions import Assigned, Subscription, assign
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid

MOST_INSTANCES: Final = 16_384
LEAST_EXPIRY_MS: Final = 60_000
_IMMEDIATE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors of a push, a client asks at once for its subscription."""


@dataclass(slots=True)
class Instance:
    """One client. The time of a request is None until it has sent one."""

    assigned: Assigned
    version: int
    """Of the subscriptions from which `assigned` was made."""
    expires_ms: int = 0
    asked_ms: int | None = None
    pushed_ms: int | None = None
    is_terminating: bool = False
    last_error: int = ErrorCode.NONE
    owner: object = None
    """The connection of its last request."""

    def may_ask(self, now_ms: int) -> bool:
        """Whether the interval since the last request is over, or the client has to ask; counts as a request then."""
        last_ms = max((each for each in (self.asked_ms, self.pushed_ms) if each is not None), default=None)
        if last_ms is None or now_ms - last_ms >= self.assigned.interval_ms:
            self.asked_ms = now_ms
            return True
        return self.last_error in _IMMEDIATE

    def may_push(self, now_ms: int) -> bool:
        """Whether the interval since the last push is over, or the client has asked since; counts as a push then.

        Clients spread their first push over the interval, so that it may be earlier or later.
        """
        last_ms = self.pushed_ms
        asked_since = self.asked_ms is not None and (last_ms is None or self.asked_ms > last_ms)
        if not asked_since and last_ms is not None and now_ms - last_ms < self.assigned.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class Instances:
    """The instances by their ids, the least recently used first."""

    def __init__(self, subscriptions: Sequence[Subscription] = (), most: int = MOST_INSTANCES) -> None:
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()
        self._subscriptions = subscriptions
        self._version = 0
        self._most = most

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Use other subscriptions, from the next request of each client on."""
        self._subscriptions = subscriptions
        self._version += 1

    def of(self, instance_id: Uuid, client: Mapping[str, str | None], now_ms: int) -> Instance:
        """Return the instance of a client, recreated if it is new here or the subscriptions changed."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            assigned = assign(self._subscriptions, client, instance_id)
            instance = self._instances[instance_id] = Instance(assigned, self._version)
        self._instances.move_to_end(instance_id)
        instance.expires_ms = now_ms + max(LEAST_EXPIRY_MS, 3 * instance.assigned.interval_ms)
        self._drop(now_ms)
        return instance

    def remove(self, instance_id: Uuid, owner: object) -> bool:
        """Forget a client whose connection was closed; False if it uses another one meanwhile."""
        instance = self._instances.get(instance_id)
        if instance is not None and instance.owner is not owner:
            return False
        self._instances.pop(instance_id, None)
        return True

    def _drop(self, now_ms: int) -> None:
        """Drop instances above the limit, and expired ones at the old end: one request cannot have much to drop."""
        instances = self._instances
        while instances:
            oldest = next(iter(instances.values()))
            if len(instances) <= self._most and oldest.expires_ms > now_ms:
                return
            instances.popitem(last=False)


def push_error(instance: Instance, subscription_id: int, now_ms: int, *, is_terminating: bool) -> int:
    """Return the error of a push, without its payload. The caller sets `is_terminating` afterwards."""
    if instance.is_terminating:
        return ErrorCode.INVALID_REQUEST
    if not instance.may_push(now_ms) and not is_terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if subscription_id != instance.assigned.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    return ErrorCode.NONE
