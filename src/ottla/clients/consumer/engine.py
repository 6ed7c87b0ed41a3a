"""Obeys the consumer core's effects on one event loop, and answers the questions that have nothing to do with polling.

Requests that a broker may hold go over connections of their own ("fetch", "group"), so that a commit never stands
behind them. Methods that are not coroutines may be called from any thread: the core is only touched under `lock`.
Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.core import ConsumerCore, Held
from ottla.clients.consumer.effects import COORDINATOR, ForgetCoordinator, Refresh, Send
from ottla.clients.consumer.membership import COORDINATOR_MOVED, Duty
from ottla.clients.consumer.metrics import metrics, partition_metrics
from ottla.clients.consumer.positions import Phase
from ottla.clients.consumer.problems import Problems
from ottla.clients.consumer.requests import NEWEST_OFFSETS_BY_NAME, OffsetAndMetadata, read_offsets
from ottla.clients.consumer.sinks import Sink
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    Closed,
    ConfigurationError,
    NotSubscribed,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.clients.events import Rebalanced, Statistics, Throttled
from ottla.clients.network import Cluster, client_error
from ottla.clients.network_settings import read_network_settings
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.network.client import NetworkError
from ottla.protocol.message import Message
from ottla.protocol.wire import EncodeError

logger = logging.getLogger("ottla.clients.consumer")
R = TypeVar("R")
Chosen = tuple[Mapping[TopicPartition, OffsetAndMetadata], Held]
"""What to commit, and whose the partitions were when that was chosen."""

# By API key: Fetch; JoinGroup, SyncGroup and Heartbeat.
_PURPOSES = {1: "fetch", 11: "group", 14: "group", 12: "group"}
OFFSET_COMMIT = 8
LEAVE_TIMEOUT_S = 2.0
THROTTLE_LIMIT_S = 60.0


def now_ms() -> float:
    """The clock of the core: monotonic, the same as that of the loop."""
    return time.monotonic() * 1000


class Engine:
    """One consumer's work on the network. `notify` is called, in any thread, when a poll may have something to do."""

    def __init__(self, options: Mapping[str, Any], notify: Callable[[], None]) -> None:
        self.options = options
        self.cluster = Cluster(read_network_settings(options))
        self.core = ConsumerCore(options, self.cluster.view)
        self.lock = threading.RLock()
        self.closed = False
        self._notify = notify
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._awake = False
        # Until when (loop time) a broker asked to be left alone, by node and purpose (KIP-219).
        self._throttled: dict[tuple[int, str], float] = {}
        self._commit_turn = asyncio.Lock()
        self._commits: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event | None = None
        raise_later = self._raise_later if options["on_problem"] == "raise" else None
        self._problems = Problems(self.cluster.reporter, raise_later)

    # -- the core's effects ------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work on `loop` from now on."""
        self._loop = loop
        loop.call_soon(self.cluster.begin_statistics, self._statistics)
        self.wake()

    def describe(self) -> str:
        """The consumer in a warning."""
        group = self.core.group_id
        return "consumer" if group is None else f"consumer of group {group}"

    def _statistics(self) -> Statistics:
        with self.lock:
            return metrics(self.core), partition_metrics(self.core)

    def metrics(self) -> dict[str, float]:
        """Counts of records, bytes and connections; from any thread."""
        return {**self.cluster.metrics(), **self._statistics()[0]}

    def _raise_later(self, error: ClientError) -> None:
        with self.lock:
            self.core.error = error
        self._notify()

    def wake(self) -> None:
        """Have the core looked at soon; from any thread."""
        loop = self._loop
        if loop is None or self._awake or self.closed:
            return
        self._awake = True
        loop.call_soon_threadsafe(self._advance)

    def _advance(self) -> None:
        self._awake = False
        if self.closed:
            return
        with self.lock:
            effects = self.core.advance(now_ms())
            ready = self.core.ready
            timer_ms = self.core.next_timer_ms()
            problems = self.core.take_problems()
        for subject, problem in problems.items():
            if problem is None:
                self._problems.ends(subject)
            else:
                self._problems.begins(subject, problem)
        for effect in effects:
            if isinstance(effect, ForgetCoordinator):
                self.cluster.forget_coordinator(self.core.group_id or "")
            else:
                self.spawn(self._obey(effect))
        self._set_timer(timer_ms)
        if self._changed is not None:
            self._changed.set()
        if ready:
            self._notify()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it on the loop until it ends or the consumer is closed."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _set_timer(self, at_ms: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0.001, (at_ms - now_ms()) / 1000), self._advance)

    async def _obey(self, effect: Send | Refresh) -> None:
        outcome: Any
        try:
            if isinstance(effect, Refresh):
                create = self.options["allow_auto_create_topics"]
                await self.cluster.refresh(effect.topics, allow_auto_create=create)
                outcome = None
            else:
                timeout_s = None if effect.timeout_ms is None else effect.timeout_ms / 1000
                # A commit that goes out by itself has its turn as others: no older position after a newer one.
                async with self._commit_turn if effect.request.API_KEY == OFFSET_COMMIT else nullcontext():
                    outcome = await self.send(effect.node, effect.request, timeout_s, effect.max_version)
        except ClientError as error:
            outcome = error
        if isinstance(effect, Send) and not self.closed:
            self._note(effect.node, outcome)
        with self.lock:
            if not self.closed:
                effect.then(outcome, now_ms())
        self._advance()

    def _note(self, node: int, outcome: Any) -> None:
        """Report a broker that does not answer, and its return."""
        subject = f"The coordinator of group {self.core.group_id}" if node == COORDINATOR else self.cluster.name(node)
        if isinstance(outcome, ClientError):
            self._problems.unreachable(subject, outcome)
        else:
            self._problems.ends(subject)

    async def send(
        self, node: int, request: Message, timeout_s: float | None = None, max_version: int | None = None
    ) -> Any:
        """One request to a broker or to the COORDINATOR, without retries. Raises ClientError."""
        deadline_s = self.options["request_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        connect_s = min(deadline_s, self.options["request_timeout_ms"] / 1000)
        if node == COORDINATOR:
            node = await self.cluster.coordinator(self.core.group_id or "", timeout_s=connect_s)
        purpose = _PURPOSES.get(request.API_KEY, "")
        connection = self.cluster.connected(node, purpose)
        if connection is None:
            connection = await self.cluster.connection(node, purpose=purpose, timeout_s=connect_s)
        try:
            version = connection.highest_version(request.API_KEY, max_version)
            if self._throttled:
                await self._wait_throttled((node, purpose))
            response = await connection.send(request, version=version, timeout_s=deadline_s)
        except (NetworkError, EncodeError) as error:
            raise client_error(error) from error
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            logger.debug("%s asks for %d ms without requests", connection.address, throttle_ms)
            self._throttled[node, purpose] = connection.loop_time() + throttle_ms / 1000
            self.cluster.reporter.report(Throttled(self.cluster.reporter.client_id, node, throttle_ms))
        return response

    async def _wait_throttled(self, key: tuple[int, str]) -> None:
        """Leave a broker alone for as long as it asked for, at most THROTTLE_LIMIT_S."""
        left_s = self._throttled.get(key, 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(min(left_s, THROTTLE_LIMIT_S))
        else:
            self._throttled.pop(key, None)

    # -- the user's side, in any thread ------------------------------------------------------------------------

    def step(self, sink: Sink | None) -> Duty | None:
        """What a poll has to do next: a duty, or hand over what `sink` has now (nothing: wait).

        Raises what stands in the way.
        """
        with self.lock:
            core = self.core
            duty = core.duty()
            try:
                if duty is not None:
                    core.begin_duty(duty)
                else:
                    core.raise_error()
                    if sink is not None:
                        core.fill(sink)
            finally:
                wants = core.wants_advance
        if wants:
            self.wake()
        return duty

    def duty_done(self, duty: Duty) -> None:
        """The listener has run."""
        with self.lock:
            self.core.duty_done(duty, now_ms())
            member = self.core.group_metadata()
        self.wake()
        names = ", ".join(map(str, duty.partitions)) or "none"
        logger.info("Group %s, generation %d: partitions %s: %s", member.group_id, member.generation, duty.kind, names)
        self.cluster.reporter.report(
            Rebalanced(
                self.cluster.reporter.client_id, duty.kind, member.group_id, member.member_id, member.generation,
                duty.partitions,
            )
        )  # fmt: skip

    def begin_poll(self) -> None:
        """The user polls. Raises NotSubscribed."""
        if self.closed:
            raise Closed("The consumer was closed")
        with self.lock:
            if not self.core.wants_something:
                raise NotSubscribed("This consumer reads nothing: subscribe() to topics or assign() partitions first")
            self.core.begin_poll(now_ms())
            wants = self.core.wants_advance
        if wants:
            self.wake()

    def end_poll(self) -> None:
        """The user has polled."""
        with self.lock:
            self.core.end_poll(now_ms())

    def change(self, work: Callable[[ConsumerCore], R]) -> R:
        """Do something to the core; what follows from it is done soon."""
        if self.closed:
            raise Closed("The consumer was closed")
        with self.lock:
            result = work(self.core)
            wants = self.core.wants_advance
        if wants:
            self.wake()
        return result

    # -- questions, on the loop --------------------------------------------------------------------------------

    async def _retry(self, attempt: Callable[[], Awaitable[R]], timeout_s: float | None) -> R:
        """Repeat `attempt` while it fails with what may pass, until `timeout_s` (default.api.timeout.ms) is over."""
        limit_s = self.options["default_api_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        failures = 0
        last: ClientError | None = None
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    return await attempt()
            except TimeoutError as error:
                raise last or RequestTimedOut(f"Not done within {limit_s:g} s") from error
            except ClientError as error:
                failures += 1
                delay_s = self.core.backoff.delay_ms(failures, 0.5) / 1000
                if not error.retriable or time.monotonic() + delay_s >= deadline:
                    raise
                last = error
            await asyncio.sleep(delay_s)

    async def _ask_coordinator(self, request: Message) -> Any:
        if self.core.group_id is None:
            raise ConfigurationError("This consumer has no group.id, so it has no committed offsets")
        try:
            return await self.send(COORDINATOR, request, max_version=NEWEST_OFFSETS_BY_NAME)
        except ClientError as error:
            if not isinstance(error, BrokerError):
                self.cluster.forget_coordinator(self.core.group_id)
            raise

    def _check_coordinator(self, error: ClientError | None) -> None:
        if isinstance(error, BrokerError) and error.code in COORDINATOR_MOVED:
            self.cluster.forget_coordinator(self.core.group_id or "")
        if error is not None:
            raise error

    async def commit(self, chosen: Chosen | None, timeout_s: float | None = None) -> None:
        """Commit these; None: what earlier polls handed over and is not committed yet.

        One after another, in the order of the calls: an older position never comes after a newer one.
        """
        limit_s = self.options["default_api_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        try:
            async with asyncio.timeout(limit_s):
                await self._commit_turn.acquire()
        except TimeoutError as error:
            raise RequestTimedOut(f"An earlier commit is not done within {limit_s:g} s") from error
        try:
            await self._commit(chosen, max(0.0, deadline - time.monotonic()))
        finally:
            self._commit_turn.release()
            self.wake()

    def commit_later(self, chosen: Chosen, callback: Callable[[ClientError | None], Any] | None) -> None:
        """Commit, and call `callback` with None or the error; on the loop."""

        async def commit() -> None:
            problem: ClientError | None = None
            try:
                await self.commit(chosen)
            except ClientError as error:
                problem = error
            if callback is None:
                if problem is not None:
                    logger.warning("Commit failed: %s", problem)
                return
            try:
                callback(problem)
            except Exception:
                logger.exception("The callback of a commit failed")

        task = self.spawn(commit())
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit(self, chosen: Chosen | None, timeout_s: float) -> None:
        if chosen is None:
            with self.lock:
                processed = self.core.processed()
                chosen = processed, self.core.held(processed)
        offsets, held = chosen
        if not offsets:
            return

        async def attempt() -> None:
            with self.lock:
                request = self.core.commit_request(offsets, held)
            response = await self._ask_coordinator(request)
            with self.lock:
                error = self.core.committed(request, response)
            self._check_coordinator(error)

        await self._retry(attempt, timeout_s)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None for a partition without."""
        wanted = [TopicPartition(*tp) for tp in partitions]

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self._ask_coordinator(self.core.ask_offsets(wanted))
            try:
                found = read_offsets(response)
            except BrokerError as error:
                self._check_coordinator(error)
                raise
            return {tp: found.get(tp) for tp in wanted}

        return await self._retry(attempt, timeout_s)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, timestamp in ms) of the first record not older than a timestamp; -1 is the end, -2 the beginning."""
        found: dict[TopicPartition, tuple[int, int] | None] = {}
        left = {TopicPartition(*tp): timestamp for tp, timestamp in wanted.items()}

        async def attempt() -> None:
            view = self.cluster.view
            if any(view.leader(*tp) is None for tp in left):
                await self.cluster.refresh({tp.topic for tp in left})
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for tp, timestamp in left.items():
                leader = view.leader(*tp)
                if leader is None:
                    raise UnknownTopicOrPartition(f"{tp} does not exist or has no leader")
                by_leader.setdefault(leader, {})[tp] = timestamp
            for node, rows in by_leader.items():
                response = await self.send(node, self.core.list_offsets_request(rows))
                for topic in response.topics:
                    for row in topic.partitions:
                        tp = TopicPartition(topic.name, row.partition_index)
                        if row.error_code:
                            await self.cluster.refresh({tp.topic})
                            raise error_for(row.error_code, f"{tp}: {ErrorCode(row.error_code).text}")
                        found[tp] = (row.offset, row.timestamp) if row.offset >= 0 else None
                        left.pop(tp, None)

        if left:
            await self._retry(attempt, timeout_s)
        return found

    async def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The partitions of a topic, in order. Raises UnknownTopicOrPartition."""

        async def attempt() -> list[int]:
            await self.cluster.refresh({topic})
            partitions = self.cluster.view.partitions(topic)
            if partitions is None:
                code = self.cluster.view.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                error = error_for(code, f"Topic {topic!r}: {ErrorCode(code).text}")
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    error.retriable = False  # who asks whether it is there does not want to wait
                raise error
            return partitions

        return await self._retry(attempt, timeout_s)

    async def partition_infos(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic with leaders and replicas. Raises UnknownTopicOrPartition."""
        await self.partitions_of(topic, timeout_s)
        return self.cluster.view.partition_infos(topic)

    async def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Every topic and its partitions, without the cluster's own topics."""

        async def attempt() -> dict[str, list[int]]:
            await self.cluster.refresh(None)
            rows = self.cluster.view.topics.values()
            return {row.name: list(row.partitions) for row in rows if not row.is_internal}

        return await self._retry(attempt, timeout_s)

    async def position(self, tp: TopicPartition, timeout_s: float | None = None) -> int:
        """The offset of the next record; waits until it is known. Raises NotAssigned."""
        limit_s = self.options["default_api_timeout_ms"] / 1000 if timeout_s is None else timeout_s
        changed = self._changed = self._changed or asyncio.Event()
        self.change(lambda core: core.want())
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    with self.lock:
                        state = self.core.positions.of(tp)
                        if state.error is not None:
                            raise state.error
                        if state.phase is Phase.FETCH:
                            return state.offset
                    changed.clear()
                    await changed.wait()
        except TimeoutError as error:
            raise RequestTimedOut(f"The position of {tp} was not found within {limit_s:g} s") from error

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float) -> None:
        """Wait for commits that are under way, leave the group, end every connection.

        Never raises for a broker that does not answer.
        """
        if self.closed:
            return
        if self._commits:
            await asyncio.wait(self._commits, timeout=timeout_s / 2)
        with self.lock:
            effects = self.core.membership.leave() if self.core.membership is not None else []
            self.closed = True
        for effect in effects:
            if isinstance(effect, Send):
                try:
                    async with asyncio.timeout(min(LEAVE_TIMEOUT_S, timeout_s)):
                        await self.send(effect.node, effect.request, LEAVE_TIMEOUT_S)
                except (ClientError, TimeoutError) as error:
                    logger.info("Left the group without an answer: %s", error)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await self.cluster.close()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)


def topic_list(topics: str | Iterable[str] | None) -> list[str] | None:
    """One name or several."""
    return [topics] if isinstance(topics, str) else None if topics is None else list(topics)


def compiled(pattern: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    """The pattern; raises ConfigurationError if it is none."""
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is no regular expression: {error}") from error
