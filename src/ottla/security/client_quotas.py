"""Client quotas: limits by entity, and the pauses of clients above them. KIP-13, KIP-124, KIP-599, KIP-612.

The caller publishes the quotas of the metadata; from then on they hold, also for clients that are connected. A limit is
shared by all connections that it names: a quota of a user by all its client ids, a quota of a client id by all its
users. Times are of the monotonic clock, in milliseconds.

A client whose usage is the same as a new client's is forgotten, so that memory depends on the active clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Generic, TypeVar

from ottla.common.rate import SampledRate, TokenBucket

U = TypeVar("U")

# In place of a name: the quota does not depend on it. Names of entities are never empty.
ABSENT = ""
# Clients that are examined whether they can be forgotten when a new client arrives.
EXAMINED = 2


class Quota(StrEnum):
    """The quotas of users and client ids, by Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


_BY_NAME = {quota.value: quota for quota in Quota}
_CONNECTIONS = "connection_creation_rate"


class Windows:
    """How rates are measured: `samples` of `sample_ms`."""

    __slots__ = ("sample_ms", "samples")

    def __init__(self, samples: int = 11, sample_ms: int = 1000) -> None:
        self.samples = samples
        self.sample_ms = sample_ms

    def rate(self) -> SampledRate:
        """A rate that nothing was counted in."""
        return SampledRate(self.samples, self.sample_ms, least_samples=self.samples - 1)

    def bucket(self) -> TokenBucket:
        """A full bucket."""
        return TokenBucket(self.samples * self.sample_ms / 1000)


class _Usages(Generic[U]):
    """The amounts that clients have used, by client."""

    def __init__(self, make: Callable[[], U]) -> None:
        self._make = make
        self._usages: OrderedDict[tuple[str, str], U] = OrderedDict()

    def __len__(self) -> int:
        return len(self._usages)

    def of(self, client: tuple[str, str], is_idle: Callable[[tuple[str, str], U], bool]) -> U:
        """The usage of the client. For a new one, forget some others that are idle."""
        usage = self._usages.get(client)
        if usage is None:
            for _ in range(min(EXAMINED, len(self._usages))):
                other, its_usage = self._usages.popitem(last=False)
                if not is_idle(other, its_usage):
                    self._usages[other] = its_usage
            usage = self._usages[client] = self._make()
        return usage


class ClientQuotas:
    """The quotas of users and client ids, and the amounts that clients have used."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self._limits: dict[Quota, dict[tuple[str | None, str | None], float]] = {}
        self._windows = windows
        self._rates = {quota: _Usages(windows.rate) for quota in (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST)}
        self._buckets = _Usages(mutation_windows.bucket)

    def publish(self, quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]) -> None:
        """Replace all limits by the quotas of the metadata: by entity, then by name."""
        limits: dict[Quota, dict[tuple[str | None, str | None], float]] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            if not names.keys() <= {"user", "client-id"}:
                continue
            key = names.get("user", ABSENT), names.get("client-id", ABSENT)
            for name, limit in values.items():
                if name in _BY_NAME and limit > 0:
                    limits.setdefault(_BY_NAME[name], {})[key] = limit
        self._limits = limits

    @property
    def configured(self) -> Iterable[Quota]:
        """The quotas that limit some client."""
        return self._limits.keys()

    def __len__(self) -> int:
        """How many usages are remembered."""
        return len(self._buckets) + sum(map(len, self._rates.values()))

    def limit(self, quota: Quota, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        """Return who shares the client's limit, and the limit; None if the client is not limited.

        The first quota in this order holds, as in Kafka: user and client id, user and default client id, user, default
        user and client id, default user and default client id, default user, client id, default client id.
        """
        limits = self._limits.get(quota)
        if not limits:
            return None
        by_client = bool(client_id)
        for name in (user, None) if user else ():
            if by_client:
                limit = limits.get((name, client_id)) or limits.get((name, None))
                if limit is not None:
                    return (user, client_id), limit
            limit = limits.get((name, ABSENT))
            if limit is not None:
                return (user, ABSENT), limit
        if by_client:
            limit = limits.get((ABSENT, client_id)) or limits.get((ABSENT, None))
            if limit is not None:
                return (ABSENT, client_id), limit
        return None

    def count(self, quota: Quota, user: str, client_id: str, value: float, now_ms: int, *, keep: bool = True) -> int:
        """Count `value`, and return how long the client has to pause; 0 if it is within its limit.

        Without `keep`, the value is not counted if the client has to pause.
        """
        found = self.limit(quota, user, client_id)
        if found is None:
            return 0
        client, limit = found
        rate = self._rates[quota].of(client, lambda _, rate: rate.is_idle(now_ms))
        rate.record(value, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms and not keep:
            rate.record(-value, now_ms)
        if quota is Quota.REQUEST:
            return min(wait_ms, self._windows.sample_ms)
        return wait_ms

    def most_at_once(self, quota: Quota, user: str, client_id: str) -> float | None:
        """How much a client that was idle can use at once without a pause; None if it is not limited."""
        found = self.limit(quota, user, client_id)
        if found is None:
            return None
        windows = self._windows
        return found[1] * (windows.samples - 1) * windows.sample_ms / 1000

    def take_mutations(self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool) -> int:
        """Count changes of topics, and return how long the client has to pause; 0 if it is within its limit.

        Strict: a client that has to pause does not change anything, but one change may overdraw the limit.
        """
        found = self.limit(Quota.MUTATION, user, client_id)
        if found is None:
            return 0
        client, limit = found
        bucket = self._buckets.of(client, lambda other, bucket: self._is_full(other, bucket, now_ms))
        if is_strict:
            wait_ms = bucket.wait_ms(limit, now_ms)
            if wait_ms:
                return wait_ms
            bucket.take(count, limit, now_ms)
            return 0
        bucket.take(count, limit, now_ms)
        return bucket.wait_ms(limit, now_ms)

    def _is_full(self, client: tuple[str, str], bucket: TokenBucket, now_ms: int) -> bool:
        found = self.limit(Quota.MUTATION, *client)
        return found is None or bucket.is_idle(found[1], now_ms)


class AddressQuotas:
    """The rates at which addresses may connect. KIP-612."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[str | None, float] = {}
        self._rates = _Usages(windows.rate)

    def publish(self, quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]) -> None:
        """Replace all limits by the quotas of the metadata."""
        limits: dict[str | None, float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            limit = values.get(_CONNECTIONS)
            if "ip" in names and limit is not None:
                limits[_canonical(names["ip"])] = limit
        self._limits = limits

    @property
    def is_configured(self) -> bool:
        """Whether any address has a limit."""
        return bool(self._limits)

    def connect(self, address: str, now_ms: int) -> int:
        """Count a connection, and return for how long the address must not connect; 0 if it may.

        A connection that is too early does not count.
        """
        limit = self._limits.get(address, self._limits.get(None))
        if limit is None:
            return 0
        rate = self._rates.of((address, ABSENT), lambda _, rate: rate.is_idle(now_ms))
        rate.record(1, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return min(wait_ms, self._windows.sample_ms)


def _canonical(name: str | None) -> str | None:
    """The address in the form of the system. A host name, which only stock Kafka resolves, stays as it is."""
    try:
        return None if name is None else str(ip_address(name))
    except ValueError:
        return name
