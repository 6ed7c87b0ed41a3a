"""Which brokers could not be reached, when to try each again, and which do not answer. Times are in loop seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ottla.clients.cluster import Backoff
from ottla.clients.errors import BrokerUnavailable, ClientError, TlsFailed

if TYPE_CHECKING:
    from ottla.network.client import ClientConnection

T = TypeVar("T")

REPORT_AFTER_S: Final = 3.0
"""How long no broker may be reachable before the log says so."""
SILENCE_S: Final = 3.0
"""How long a connection may wait for a response before the metadata is refreshed."""


class FailedAttempts:
    """Attempts to reach any broker. The exceptions themselves would refer, by their tracebacks, to this list."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._retriable = False
        self._only_tls = True

    def add(self, error: ClientError) -> None:
        self._texts[str(error)] = None
        self._retriable |= error.retriable
        self._only_tls &= isinstance(error, TlsFailed)

    @property
    def text(self) -> str:
        """The text of each attempt, once."""
        return "; ".join(self._texts)

    def error(self, how_long: str = "") -> BrokerUnavailable:
        """Return the error after all attempts have failed."""
        text = f"No broker can be reached{how_long}: {self.text}"
        return TlsFailed(text) if self._only_tls else BrokerUnavailable(text, retriable=self._retriable)


class _Failure(NamedTuple):
    """Consecutive failures, the earliest time of the next attempt, and the last problem."""

    in_a_row: int
    not_before_s: float
    problem: str


class Reachability(Generic[T]):
    """The failures of each target (a broker or an address), with exponential backoff for each.

    It also measures how long no target at all was reachable. `unreachable` returns that time once per outage.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures: dict[T, _Failure] = {}
        self._unreachable_since_s: float | None = None
        self._reported = False

    def failed(self, target: T, now_s: float, problem: str, chance: float) -> None:
        previous = self._failures.get(target)
        count = 1 if previous is None else previous.in_a_row + 1
        self._failures[target] = _Failure(count, now_s + self._backoff.delay_ms(count, chance) / 1000, problem)

    def succeeded(self, target: T) -> None:
        """Note a new connection: it ends the backoff of the target, and the outage."""
        self._failures.pop(target, None)
        self._unreachable_since_s, self._reported = None, False

    def delay_s(self, target: T, now_s: float) -> float:
        failure = self._failures.get(target)
        return 0.0 if failure is None else max(0.0, failure.not_before_s - now_s)

    def problem(self, target: T) -> str:
        failure = self._failures.get(target)
        return "" if failure is None else failure.problem

    def problems(self) -> str:
        """The last problem of each unreachable target; empty if there is none. Callable from any thread."""
        return "; ".join(dict.fromkeys(failure.problem for failure in list(self._failures.values())))

    def unreachable(self, now_s: float) -> float | None:
        """Note that no target was reachable. Returns the length of the outage when it is time to report it."""
        if self._unreachable_since_s is None:
            self._unreachable_since_s = now_s
        waited_s = now_s - self._unreachable_since_s
        if waited_s < REPORT_AFTER_S or self._reported:
            return None
        self._reported = True
        return waited_s


class Silence:
    """Finds the connections that have received nothing between two looks.

    A broker that hangs keeps its connections open, and a request to it fails only after request.timeout.ms. The
    metadata of the other brokers says earlier whether it has left the cluster. Only connections that wait for a
    response count.
    """

    def __init__(self) -> None:
        self.connections: frozenset[ClientConnection] = frozenset()
        self._received: dict[ClientConnection, int] = {}

    def look(self, connections: Iterable[ClientConnection]) -> None:
        """Compare the bytes that each connection has received with those at the last look."""
        waiting = {each: each.received_bytes for each in connections if each.in_flight and not each.closed}
        self.connections = frozenset(each for each, count in waiting.items() if self._received.get(each) == count)
        self._received = waiting
