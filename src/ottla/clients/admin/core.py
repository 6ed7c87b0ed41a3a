"""The state of one call of the admin client: request routing, retries and the deadline. Without I/O.

A `Call` asks about several keys at once (topics, partitions, groups, brokers). It defines how the keys are routed, how
the request for some of them is built and how the response is parsed. `Progress` completes it in rounds:

    progress = Progress(call, deadline_ms, backoff)
    while (round := progress.next_round(view, now_ms, chance)) is not None:
        wait for round.wait_ms; refresh round.refresh; find round.coordinators (`found`, `not_found`);
        send round.sends at the same time (`answered`, `failed` for each)
    progress.outcome

A key is retried until the deadline while its error means that the broker was not responsible or not ready. An unknown
topic is retried only a few times: it may be new to the broker, but more likely its name is misspelt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.errors import BrokerError, ClientError, ConnectionLost, RequestTimedOut, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.message import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

UNKNOWN_TOPIC_TRIES: Final = 3


class Route(Enum):
    """Which brokers receive the request for the keys of a call."""

    ANY = "any broker"
    CONTROLLER = "the controller, or a broker that forwards to it"
    LEADERS = "keys are TopicPartitions: the leader of each"
    COORDINATORS = "keys are groups or transactional ids: the coordinator of each; with `group`, its for every key"
    BROKERS = "keys are node ids: each broker itself"


_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
# After a lost connection, these errors may be caused by the call's own first attempt.
_DONE_ALREADY: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class Call(Generic[K, V]):
    """One request about `keys` (None with Route.BROKERS: every broker).

    `request(keys)` builds the message, `read(response, keys)` returns the value or the error of each key.
    `version_limit` is the highest version to use, where a newer version lacks a field that the call needs, and
    `version_least` the lowest, where older ones lack it. `key_type` is the type of the coordinator's key (see
    `network`).
    """

    route: Route
    keys: Sequence[K] | None
    request: Callable[[Sequence[K]], Message]
    read: Callable[[Any, Sequence[K]], Iterable[tuple[K, V | ClientError]]]
    group: str | None = None
    version_limit: int | None = None
    version_least: int = 0
    key_type: int = 0


class PartialFailure(ExceptionGroup[ClientError], ClientError):
    """A call about several things failed for some of them: `errors` by key, `results` of the others.

    It contains the exceptions in `errors`, so `except* TopicAlreadyExists` works. It is `retriable` if all of them are.
    """

    errors: Mapping[Any, ClientError]
    results: Mapping[Any, Any]

    @classmethod
    def of(cls, errors: Mapping[Any, ClientError], results: Mapping[Any, Any]) -> PartialFailure:
        what = "; ".join(f"{key}: {error}" for key, error in list(errors.items())[:5])
        more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
        failure = cls(f"{len(errors)} of {len(errors) + len(results)} failed: {what}{more}", list(errors.values()))
        failure.errors, failure.results = errors, results
        failure.retriable = all(error.retriable for error in errors.values())
        return failure


@dataclass(frozen=True, slots=True)
class Outcome(Generic[K, V]):
    """The end of a call: each key has either a result or an error."""

    results: dict[K, V]
    errors: dict[K, ClientError]

    def all(self) -> dict[K, V]:
        """Return every result; raises PartialFailure if there is an error."""
        if self.errors:
            raise PartialFailure.of(self.errors, self.results)
        return self.results

    def one(self) -> V:
        """Return the result of the only key; raises its error, which names the key."""
        for key, error in self.errors.items():
            if error.args and str(key) not in str(error):
                error.args = (f"{key}: {error.args[0]}", *error.args[1:])
            raise error
        (result,) = self.results.values()
        return result


# A method of the admin client as a generator: it yields calls, receives their outcomes, and returns the result.
Plan: TypeAlias = Generator[Call[Any, Any], Outcome[Any, Any], R]


def several(name: str, given: Iterable[R]) -> list[R]:
    """Return the items of an argument. Raises TypeError for a string: its characters would be the items."""
    if isinstance(given, (str, bytes)) or hasattr(given, "_fields") or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list or another iterable, not {given!r}: write [{given!r}]")
    return list(given)


def optional(name: str, given: Iterable[R] | None) -> list[R] | None:
    return None if given is None else several(name, given)


def every(call: Call[Any, Any]) -> Plan[Any]:
    return (yield call).all()


def only(call: Call[Any, Any]) -> Plan[Any]:
    return (yield call).one()


def every_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).all()


def only_of(plan: Plan[Outcome[Any, Any]]) -> Plan[Any]:
    return (yield from plan).one()


@dataclass(frozen=True, slots=True)
class Send(Generic[K]):
    """A request for one broker (None: any)."""

    node_id: int | None
    request: Message
    keys: tuple[K, ...]


@dataclass(frozen=True, slots=True)
class Round(Generic[K]):
    """The next actions, in this order. With `refresh` None nothing is refreshed."""

    wait_ms: float = 0.0
    refresh: frozenset[str] | None = None
    forget: tuple[str, ...] = ()
    coordinators: tuple[str, ...] = ()
    sends: tuple[Send[K], ...] = ()


@dataclass(slots=True)
class Progress(Generic[K, V]):
    """One call in progress (see the module). Times are in milliseconds of any steady clock."""

    call: Call[K, V]
    deadline_ms: float
    backoff: Backoff
    outcome: Outcome[K, V] = field(default_factory=lambda: Outcome({}, {}))
    _pending: dict[K, ClientError | None] | None = None
    _coordinators: dict[str, int] = field(default_factory=dict)
    _forget: set[str] = field(default_factory=set)
    _tries: dict[K, int] = field(default_factory=dict)
    _unsure: set[K] = field(default_factory=set)
    _failures: int = 0
    _failed: bool = False
    _view_is_wrong: bool = False

    # -- events ------------------------------------------------------------------------------------------------

    def found(self, group: str, node_id: int) -> None:
        self._coordinators[group] = node_id

    def not_found(self, group: str, error: ClientError) -> None:
        for key in list(self._pending or ()):
            if self._group_of(key) == group:
                self._fail(key, error)

    def answered(self, send: Send[K], response: Message) -> None:
        left = dict.fromkeys(send.keys)
        for key, value in self.call.read(response, send.keys):
            if key not in left:
                continue
            del left[key]
            if isinstance(value, BrokerError):
                self._refused(key, value)
            elif isinstance(value, ClientError):
                self._fail(key, value)
            else:
                self._settle(key)
                self.outcome.results[key] = value
        for key in left:
            self._fail(key, BrokerError(f"The broker's answer has nothing about {key}"))

    def failed(self, send: Send[K], error: ClientError) -> None:
        if isinstance(error, (ConnectionLost, RequestTimedOut)):
            self._unsure.update(send.keys)
        for key in send.keys:
            if error.retriable:
                self._again(key, error)
            else:
                self._fail(key, error)

    # -- what next ---------------------------------------------------------------------------------------------

    def next_round(self, view: ClusterView, now_ms: float, chance: float = 0.5) -> Round[K] | None:
        """Return the next actions, or None at the end. `chance` in [0, 1) spreads the retries of many clients."""
        if self._pending is None:
            keys: Iterable[Any] = list(view.nodes) if self.call.keys is None else self.call.keys
            self._pending = dict.fromkeys(keys)
        by_node, unknown = self._leaders(view) if self.call.route is Route.LEADERS else ({}, set())
        wait_ms = self._wait_ms(now_ms, chance)
        if not self._pending:
            return None
        if self.call.route is Route.LEADERS:
            if unknown:
                # Keys with a known leader wait for a round, so that each broker receives one request.
                return Round(wait_ms, refresh=frozenset(unknown))
            return Round(wait_ms, sends=tuple(self._send(node_id, keys) for node_id, keys in by_node.items()))
        if self.call.route is Route.COORDINATORS:
            return self._to_coordinators(wait_ms)
        refresh: frozenset[str] | None = frozenset() if self._view_is_wrong else None
        self._view_is_wrong = False
        if self.call.route is Route.BROKERS and self.call.keys is None:
            # The data of a broker that left the cluster is at other brokers now, or will be soon.
            for key in [key for key in self._pending if key not in view.nodes]:
                self._settle(key)
            if not self._pending:
                return None
        if self.call.route is Route.BROKERS:
            sends = tuple(self._send(cast("int", key), [key]) for key in self._pending)
            return Round(wait_ms, refresh, sends=sends)
        to_controller = self.call.route is Route.CONTROLLER and view.controller_id in view.nodes and refresh is None
        return Round(
            wait_ms, refresh, sends=(self._send(view.controller_id if to_controller else None, [*self._pending]),)
        )

    def _wait_ms(self, now_ms: float, chance: float) -> float:
        """Return the wait before failed keys are retried; all keys fail if it ends after the deadline."""
        assert self._pending is not None
        wait_ms = 0.0
        if self._failed:
            self._failures += 1
            self._failed = False
            wait_ms = self.backoff.delay_ms(self._failures, chance)
        if now_ms + wait_ms >= self.deadline_ms:
            for key, error in list(self._pending.items()):
                self._fail(key, error or RequestTimedOut(f"{key}: no answer in time"))
        return wait_ms

    def _leaders(self, view: ClusterView) -> tuple[dict[int, list[K]], set[str]]:
        """Return the keys by leader, and the topics whose metadata is needed first."""
        assert self._pending is not None
        by_node: dict[int, list[K]] = {}
        unknown: set[str] = set()
        is_wrong, self._view_is_wrong = self._view_is_wrong, False
        for key in list(self._pending):
            topic, partition = cast("TopicPartition", key)
            leader = None if is_wrong else view.leader(topic, partition)
            if leader is not None:
                by_node.setdefault(leader, []).append(key)
                continue
            if not is_wrong and (topic in view.topics or topic in view.topic_errors):
                self._refused(key, _no_leader(view, topic, partition))
            if key in self._pending:
                unknown.add(topic)
        self._view_is_wrong = False  # its error is in `unknown`
        return by_node, unknown

    def _to_coordinators(self, wait_ms: float) -> Round[K]:
        assert self._pending is not None
        by_group: dict[str, list[K]] = {}
        for key in self._pending:
            by_group.setdefault(self._group_of(key), []).append(key)
        missing = tuple(group for group in by_group if group not in self._coordinators)
        if missing:
            forget, self._forget = tuple(self._forget), set()
            return Round(wait_ms, forget=forget, coordinators=missing)
        by_node: dict[int, list[K]] = {}
        for group, keys in by_group.items():
            by_node.setdefault(self._coordinators[group], []).extend(keys)
        return Round(wait_ms, sends=tuple(self._send(node_id, keys) for node_id, keys in by_node.items()))

    def _send(self, node_id: int | None, keys: list[K]) -> Send[K]:
        return Send(node_id, self.call.request(keys), tuple(keys))

    def _group_of(self, key: K) -> str:
        return self.call.group if self.call.group is not None else str(key)

    # -- errors ------------------------------------------------------------------------------------------------

    def _refused(self, key: K, error: BrokerError) -> None:
        if key in self._unsure and error.code in _DONE_ALREADY:
            error.add_note("An earlier attempt of this call lost its connection and may have done it.")
        if error.code in _ASK_AGAIN:
            self._again(key, error)
        elif error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.call.route in (Route.LEADERS, Route.ANY):
            self._tries[key] = tries = self._tries.get(key, 0) + 1
            if tries < UNKNOWN_TOPIC_TRIES:
                self._again(key, error)
            else:
                self._fail(key, error)
        else:
            self._fail(key, error)

    def _again(self, key: K, error: ClientError) -> None:
        assert self._pending is not None
        self._pending[key] = error
        self._failed = self._view_is_wrong = True
        if self.call.route is Route.COORDINATORS:
            group = self._group_of(key)
            self._coordinators.pop(group, None)
            self._forget.add(group)

    def _fail(self, key: K, error: ClientError) -> None:
        self._settle(key)
        self.outcome.errors[key] = error

    def _settle(self, key: K) -> None:
        assert self._pending is not None
        self._pending.pop(key, None)


def _no_leader(view: ClusterView, topic: str, partition: int) -> BrokerError:
    code = view.topic_errors.get(topic)
    if code is not None:
        return error_for(code, f"Topic {topic}: {error_for(code)}")
    if view.partition(topic, partition) is None:
        count = len(view.partitions(topic) or ())
        text = f"Topic {topic} has no partition {partition}, it has {count}"
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
