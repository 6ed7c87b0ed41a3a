"""A client's connections to one cluster: request routing, retries and metadata refresh.

Routing. A `Cluster` holds at most one connection per broker and purpose. A broker answers the requests of a connection
in order, so a waiting fetch would delay a heartbeat behind it: callers that cannot accept this pass another `purpose`.
A request to a named broker uses its connection. A request to any broker uses the least busy open connection, and
otherwise tries all known brokers in random order and then the bootstrap addresses. Each attempt gets an equal share of
the remaining time, so that a silent broker leaves time for the others.

Retries. `send` never retries: the caller decides what may be repeated. Connections are retried with an exponential
backoff per broker (`reachability.py`). `refresh` and `coordinator` retry retriable errors until their deadline.

Metadata. `view` is the latest known state of the cluster. Every failed or lost connection invalidates it, because a
leader may have moved. Simultaneous equal refreshes share one request.

A `Cluster` belongs to the event loop that it is started on. Every wait has a deadline. Network errors become the
exceptions of `errors`. Some deadlines are long (the first send of a Producer waits for a minute, as in Kafka), so an
outage is logged after `REPORT_AFTER_S`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ottla.clients.cluster import Backoff, ClusterView, Node
from ottla.clients.connection_totals import ConnectionTotals, metrics_of
from ottla.clients.errors import (
    BrokerUnavailable,
    ClientError,
    Closed,
    ConnectionLost,
    RequestTimedOut,
    error_for,
)
from ottla.clients.events import Connected, Disconnected, Reporter, Statistics, StatisticsReported
from ottla.clients.network_errors import client_error
from ottla.clients.network_settings import NetworkSettings
from ottla.clients.reachability import REPORT_AFTER_S, SILENCE_S, FailedAttempts, Reachability, Silence
from ottla.clients.telemetry import Telemetry, client_instance_id
from ottla.network.client import ClientConnection, ConnectFailed, ConnectionClosed, NetworkError
from ottla.network.errors import address_of
from ottla.protocol.message import Message
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.wire import EncodeError

logger = logging.getLogger(__name__)

R = TypeVar("R")
GROUP, TRANSACTION = 0, 1
GRACE_S = 0.25
CLOSE_S = 0.5


class _Bootstrap(NamedTuple):
    host: str
    port: int


Target: TypeAlias = int | _Bootstrap


def _node_id(target: Target) -> int | None:
    return target if isinstance(target, int) else None


class Cluster:
    """Connections to the brokers of one cluster, and `view`, the known state of the cluster."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        retry = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self.view = ClusterView(max_age_ms=settings.metadata_max_age_ms, backoff=retry)
        self.reporter = Reporter(settings.on_event, settings.client_id)
        self.closed = False
        self._totals = ConnectionTotals()
        self._statistics_timer: asyncio.TimerHandle | None = None
        self._connections: dict[tuple[Target, str], ClientConnection] = {}
        self._connecting: dict[tuple[Target, str], asyncio.Task[ClientConnection]] = {}
        reconnect = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._reachability: Reachability[Target] = Reachability(reconnect)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshes: dict[tuple[frozenset[str] | None, bool], asyncio.Task[None]] = {}
        self._random = random.Random()
        self._silence = Silence()
        self._silence_timer: asyncio.TimerHandle | None = None
        self.telemetry: Telemetry | None = None  # set by clients that push metrics

    # -- start and close ---------------------------------------------------------------------------------------

    async def start(self, timeout_s: float | None = None) -> None:
        """Request the list of brokers from any broker, within `timeout_s` (request.timeout.ms).

        Retries until then. Raises BrokerUnavailable; it raises at once if no address can ever work.
        """
        await self.refresh((), timeout_s=timeout_s)

    @property
    def request_timeout_s(self) -> float:
        return self._settings.request_timeout_ms / 1000

    async def client_instance_id(self, timeout_s: float) -> str:
        """Return the id of the client in its metrics (KIP-714); see `telemetry.client_instance_id`. Raises Closed."""
        self._check_open()
        return await client_instance_id(self.telemetry, timeout_s)

    async def close(self) -> None:
        try:
            if self.telemetry is not None:
                await self.telemetry.close()
        finally:
            # Also if the last push is cancelled.
            await self._close_connections()

    async def _close_connections(self) -> None:
        self.closed = True
        self.telemetry = None  # it refers to the client and to this object
        tasks = [*self._connecting.values(), *self._refreshes.values()]
        for each in (self._statistics_timer, self._silence_timer, *tasks):
            if each is not None:
                each.cancel()
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
        # TLS sends a closing message. An event loop that ends before that logs a warning.
        await asyncio.gather(*(connection.wait_lost(CLOSE_S) for connection in connections.values()))
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    # -- connections -------------------------------------------------------------------------------------------

    def connected(self, node_id: int, purpose: str = "") -> ClientConnection | None:
        connection = self._connections.get((node_id, purpose))
        return None if connection is None or connection.closed or self._is_idle(connection) else connection

    async def connection(self, node_id: int, *, purpose: str = "", timeout_s: float | None = None) -> ClientConnection:
        """Return a connection to the broker `node_id`, which is opened (after the reconnect backoff) if necessary.

        Raises BrokerUnavailable, RequestTimedOut after `timeout_s` (socket.connection.setup.timeout.ms), Closed.
        """
        if node_id not in self.view.nodes:
            raise BrokerUnavailable(f"Broker {node_id} is not in the cluster's metadata")
        return await self._reach(node_id, purpose, timeout_s)

    async def any_connection(self, *, timeout_s: float | None = None) -> ClientConnection:
        """Return the least busy open connection, or open one to any known broker or bootstrap address.

        Raises BrokerUnavailable with the problem of each, and AuthenticationFailed at once: the other brokers would
        reject the same credentials.
        """
        self._check_open()
        self._close_idle()
        open_now = [c for (_, purpose), c in self._connections.items() if not purpose and not c.closed]
        hanging = self._silence.connections
        answering = [connection for connection in open_now if connection not in hanging]
        if answering:
            return min(answering, key=lambda connection: connection.in_flight)
        silent = {target for (target, _), connection in self._connections.items() if connection in hanging}
        known: list[Target] = [node_id for node_id in self.view.nodes if node_id not in silent]
        self._random.shuffle(known)
        targets = [*known, *(_Bootstrap(*server) for server in self._settings.servers)]
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        failed = FailedAttempts()
        for tried, target in enumerate(targets):
            # A silent broker must leave time for the others.
            limit_s = None if deadline is None else max(0.001, deadline - loop.time()) / (len(targets) - tried)
            try:
                return await self._reach(target, "", limit_s)
            except (BrokerUnavailable, RequestTimedOut, ConnectionLost) as error:
                failed.add(error)
        if (waited_s := self._reachability.unreachable(loop.time())) is not None:
            logger.warning("No broker can be reached for %.0f s, still trying: %s", waited_s, failed.text)
            self.reporter.problem(failed.error(f" for {waited_s:.0f} s"))
        raise failed.error()

    async def _reach(self, target: Target, purpose: str, timeout_s: float | None) -> ClientConnection:
        self._check_open()
        key = (target, purpose)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            if not self._is_idle(connection):
                return connection
            self._close_idle()
        task = self._connecting.get(key)
        if task is None:
            task = asyncio.create_task(self._connect(target, purpose), name=f"connect to {target}")
            self._connecting[key] = task
            task.add_done_callback(lambda done: self._connect_ended(key, done))
        try:
            # Shielded, because several callers may wait for the same connection.
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            # The last attempt says more than the deadline, which may have left no time for another one.
            problem = (
                self._reachability.problem(target) or f"{self.name(target)}: no connection within {timeout_s:.3g} s"
            )
            raise RequestTimedOut(problem) from error.with_traceback(None)  # the traceback refers to the task
        except NetworkError as error:
            raise client_error(error) from error
        except asyncio.CancelledError:
            if self.closed:
                raise Closed("The client was closed") from None
            raise
        finally:
            # The task has the exception, whose traceback has this frame: a cycle for the garbage collector.
            del task

    def _connect_ended(self, key: tuple[Target, str], task: asyncio.Task[ClientConnection]) -> None:
        if self._connecting.get(key) is task:
            del self._connecting[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if no caller waits any more

    async def _connect(self, target: Target, purpose: str) -> ClientConnection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._reachability.delay_s(target, loop.time()))
        node = self.view.nodes.get(target) if isinstance(target, int) else target
        if node is None:
            raise ConnectFailed(f"Broker {target} left the cluster")
        try:
            connection = await ClientConnection.connect(
                node.host,
                node.port,
                client_id=self._settings.client_id,
                timeout_s=self._settings.connection_setup_timeout_ms / 1000,
                tls=self._settings.security.tls,
                sasl=self._settings.security.sasl,
            )
        except NetworkError as error:
            self._failed(target, loop.time(), str(error))
            raise
        if self.closed:
            connection.close()
            raise ConnectionClosed("The client was closed")
        self._reachability.succeeded(target)
        self._connections[target, purpose] = connection
        self._totals.connections += 1
        if self._silence_timer is None:
            self._silence_timer = loop.call_later(SILENCE_S, self._look_for_silence)
        if self.telemetry is not None:
            self.telemetry.connected(connection)
        connection.on_close(lambda: self._totals.add(connection))
        connection.on_close(lambda: self._lost(target, purpose, connection))
        self.reporter.report(Connected(self._settings.client_id, connection.address, _node_id(target)))
        return connection

    def begin_statistics(self, collect: Callable[[], Statistics]) -> None:
        """Report the result of `collect` every statistics.interval.ms, on the running loop, until `close`."""
        interval_s = self._settings.statistics_interval_ms / 1000
        if interval_s and self.reporter.is_wanted and not self.closed:
            loop = asyncio.get_running_loop()
            self._statistics_timer = loop.call_later(interval_s, self._report_statistics, collect)

    def _report_statistics(self, collect: Callable[[], Statistics]) -> None:
        metrics, partitions = collect()
        self.reporter.report(StatisticsReported(self._settings.client_id, {**self.metrics(), **metrics}, partitions))
        self.begin_statistics(collect)

    def open_connections(self) -> list[tuple[int | None, ClientConnection]]:
        """Return the open connections with the ids of their brokers; None for a bootstrap address."""
        return [(_node_id(target), each) for (target, _), each in list(self._connections.items()) if not each.closed]

    def metrics(self) -> dict[str, float]:
        """Return the counts of all connections by the metric names of Kafka's clients."""
        return metrics_of(self._totals, [connection for _, connection in self.open_connections()])

    def _is_idle(self, connection: ClientConnection) -> bool:
        idle_s = self._settings.connections_max_idle_ms / 1000
        return not connection.in_flight and 0 < idle_s < connection.loop_time() - connection.last_used

    def _close_idle(self) -> None:
        for key, connection in list(self._connections.items()):
            if self._is_idle(connection):
                del self._connections[key]  # so that `_lost` does not count a failure
                connection.close()

    def _lost(self, target: Target, purpose: str, connection: ClientConnection) -> None:
        if self._connections.get((target, purpose)) is not connection:
            return
        del self._connections[target, purpose]
        self._failed(target, connection.loop_time(), "the connection was lost")
        self.reporter.report(Disconnected(self._settings.client_id, connection.address, _node_id(target)))

    @property
    def problems(self) -> str:
        return self._reachability.problems()

    def _failed(self, target: Target, now_s: float, problem: str) -> None:
        self._reachability.failed(target, now_s, problem, self._random.random())
        self.view.invalidate()

    def name(self, target: Target) -> str:
        node: Node | _Bootstrap | None = self.view.nodes.get(target) if isinstance(target, int) else target
        at = f"{node.host}:{node.port}" if node is not None else "?"
        return f"Broker {target} ({at})" if isinstance(target, int) else at

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("The client was closed")

    # -- requests ----------------------------------------------------------------------------------------------

    async def send(
        self,
        node_id: int | None,
        request: Message,
        *,
        oldest: int = 0,
        newest: int | None = None,
        timeout_s: float | None = None,
        purpose: str = "",
    ) -> Any:
        """Send one request to a broker (any broker if `node_id` is None) and return its response. Does not retry.

        `oldest` and `newest` limit the version. `timeout_s` (request.timeout.ms) includes the time to connect. Raises
        ConnectionLost, RequestTimedOut, BrokerUnavailable, UnsupportedByBroker, Closed.
        """
        loop = asyncio.get_running_loop()
        left_s = max(0.0, self.request_timeout_s if timeout_s is None else timeout_s)
        deadline = loop.time() + left_s
        if node_id is None:
            connection = await self.any_connection(timeout_s=left_s)
        else:
            connection = await self.connection(node_id, purpose=purpose, timeout_s=left_s)
        try:
            version = connection.highest_version(request.API_KEY, newest, oldest)
            return await connection.send(request, version=version, timeout_s=max(0.001, deadline - loop.time()))
        except (NetworkError, EncodeError) as error:
            raise client_error(error) from error

    async def refresh(
        self, topics: Iterable[str] | None = (), *, timeout_s: float | None = None, allow_auto_create: bool = False
    ) -> None:
        """Update the brokers and these topics (None: every topic) in `view`.

        Retries retriable errors until `timeout_s` (request.timeout.ms). Simultaneous equal refreshes share one request.
        A missing topic is not an error: see `view.topic_errors`.
        """
        names = None if topics is None else frozenset(topics)
        key = (names, allow_auto_create)
        task = self._refreshes.get(key)
        if task is None:
            self._check_open()
            task = self._start_refresh(key, self.request_timeout_s if timeout_s is None else timeout_s)
        try:
            # A refresh that this call started ends by itself with a reason. An earlier one may have a later deadline.
            async with asyncio.timeout(None if timeout_s is None else timeout_s + GRACE_S):
                await asyncio.shield(task)
        except TimeoutError as error:
            problems = self._reachability.problems()
            if problems and all(connection.closed for connection in self._connections.values()):
                raise BrokerUnavailable(f"No broker can be reached: {problems}") from error.with_traceback(None)
            raise RequestTimedOut(f"No metadata within {timeout_s:g} s") from error.with_traceback(None)
        except asyncio.CancelledError:
            if self.closed:
                raise Closed("The client was closed") from None
            raise
        finally:
            del task  # as in `_reach`

    def _start_refresh(self, key: tuple[frozenset[str] | None, bool], limit_s: float) -> asyncio.Task[None]:
        names, allow_auto_create = key
        task = asyncio.create_task(self._refresh(names, limit_s, allow_auto_create), name="refresh metadata")
        self._refreshes[key] = task
        task.add_done_callback(lambda done: self._refresh_ended(key, done))
        return task

    def _refresh_ended(self, key: tuple[frozenset[str] | None, bool], task: asyncio.Task[None]) -> None:
        if self._refreshes.get(key) is task:
            del self._refreshes[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if no caller waits any more

    async def _refresh(self, names: frozenset[str] | None, limit_s: float, allow_auto_create: bool) -> None:
        loop = asyncio.get_running_loop()
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_create)

        async def attempt(left_s: float) -> None:
            try:
                response: MetadataResponse = await self.send(None, request, timeout_s=left_s)
                if response.error_code:
                    raise error_for(response.error_code)
            except ClientError:
                self.view.failed(loop.time() * 1000, self._random.random())
                raise
            self.view.apply(response, loop.time() * 1000, is_complete=names is None)

        await self._retry(attempt, limit_s)
        self._adopt_bootstrap_connections()
        self._close_outdated()
        self._close_idle()

    async def _retry(self, attempt: Callable[[float], Awaitable[R]], limit_s: float) -> R:
        """Repeat `attempt` (its argument is the time left) after retriable errors, for at most `limit_s` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        failures = 0
        while True:
            try:
                return await attempt(max(0.001, deadline - loop.time()))
            except ClientError as error:
                failures += 1
                delay_s = self.view.backoff.delay_ms(failures, self._random.random()) / 1000
                if not error.retriable or loop.time() + delay_s >= deadline:
                    raise
            await asyncio.sleep(delay_s)

    def _adopt_bootstrap_connections(self) -> None:
        """Use the connection to a bootstrap address for the broker with that address, instead of opening another."""
        for (target, purpose), connection in list(self._connections.items()):
            if purpose or not isinstance(target, _Bootstrap) or connection.closed:
                continue
            for node_id, node in self.view.nodes.items():
                key = node_id, ""
                if (node.host, node.port) == target and key not in self._connections and key not in self._connecting:
                    self._connections[key] = self._connections.pop((target, purpose))
                    connection.on_close(functools.partial(self._lost, node_id, "", connection))
                    break

    def _look_for_silence(self) -> None:
        """Refresh the brokers if one does not answer: it may have left the cluster (see `_close_outdated`)."""
        self._silence_timer = asyncio.get_running_loop().call_later(SILENCE_S, self._look_for_silence)
        if len(self.view.nodes) < 2:
            return  # no other broker could say more
        self._silence.look(self._connections.values())
        if self._silence.connections and not self._refreshes:
            # No caller shares this refresh: its time is short, and with auto-creation its key differs from theirs.
            refresh = self._start_refresh((frozenset(), True), SILENCE_S)
            # It does not say where the leaders of topics are now: that is still to be refreshed.
            refresh.add_done_callback(lambda _: self.view.invalidate())

    def _close_outdated(self) -> None:
        """Close the connections to former addresses of brokers, and to brokers that left the cluster.

        Their requests fail now and can be sent again to where they belong: a broker that hangs might never answer.
        """
        for (target, _), connection in list(self._connections.items()):
            if isinstance(target, int) and self.view.nodes:
                node = self.view.nodes.get(target)
                if node is None or connection.address != address_of(node.host, node.port):
                    connection.abort()

    # -- coordinators ------------------------------------------------------------------------------------------

    def known_coordinator(self, key: str, key_type: int) -> int | None:
        known = self._coordinators.get((key_type, key))
        return known if known in self.view.nodes else None

    async def coordinator(self, key: str, *, key_type: int = GROUP, timeout_s: float | None = None) -> int:
        """Return the node id of a group's coordinator (or of a transactional id's: TRANSACTION); it is cached.

        Retries with backoff while the cluster has no coordinator. Raises BrokerError and the errors of `send`.
        """
        if (known := self.known_coordinator(key, key_type)) is not None:
            return known
        loop = asyncio.get_running_loop()
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        report_at_s = loop.time() + REPORT_AFTER_S

        async def attempt(left_s: float) -> Node:
            nonlocal report_at_s
            try:
                return _found(await self.send(None, request, timeout_s=left_s), key)
            except ClientError as error:
                if error.retriable and loop.time() > report_at_s:
                    report_at_s = math.inf
                    logger.warning("No coordinator for %s for %.0f s, still trying: %s", key, REPORT_AFTER_S, error)
                    self.reporter.problem(error)
                raise

        node = await self._retry(attempt, self.request_timeout_s if timeout_s is None else timeout_s)
        self.view.add_node(node)
        self._coordinators[key_type, key] = node.node_id
        return node.node_id

    def forget_coordinator(self, key: str, *, key_type: int = GROUP) -> None:
        self._coordinators.pop((key_type, key), None)


def _found(response: FindCoordinatorResponse, key: str) -> Node:
    code, message, node_id, host, port = (
        response.error_code, response.error_message, response.node_id, response.host, response.port,
    )  # fmt: skip
    for row in response.coordinators:
        if row.key == key:
            code, message, node_id, host, port = row.error_code, row.error_message, row.node_id, row.host, row.port
    if code:
        raise error_for(code, message)
    return Node(node_id, host, port)
