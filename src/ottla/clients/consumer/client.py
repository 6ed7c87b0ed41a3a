"""A consumer on the network: what the asyncio and the blocking interface share below their way of waiting.

`ConsumerClient` joins the core, the runner that carries out its effects, and the queries. Methods that are not
coroutines may be called from any thread; coroutines run on the runner's loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.clients.consumer.collectors import Collector
from ottla.clients.consumer.commits import Assignments
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.effect_runner import now_ms
from ottla.clients.consumer.effects import COORDINATOR
from ottla.clients.consumer.fetch_core import FetchCore
from ottla.clients.consumer.group_member import Duty
from ottla.clients.consumer.positions import Phase
from ottla.clients.consumer.queries import Queries, retry
from ottla.clients.consumer.reader import ReaderClient
from ottla.clients.consumer.requests import COORDINATOR_MOVED, newest_version, read_offsets
from ottla.clients.consumer.settings import ConsumerSettings
from ottla.clients.consumer.timings import PollTimes
from ottla.clients.errors import BrokerError, ClientError, Closed, NotSubscribed, RequestTimedOut
from ottla.clients.events import Rebalanced, Statistics
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.telemetry import Role, Telemetry
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest

logger = logging.getLogger("ottla.clients.consumer")
CommitPlan = tuple[Mapping[TopicPartition, OffsetAndMetadata], Assignments]
"""The offsets to commit, and the assignments at the time when they were chosen."""


class ConsumerClient(ReaderClient[ConsumerCore]):
    """One consumer."""

    def __init__(self, options: Mapping[str, Any], settings: ConsumerSettings, notify: Callable[[], None]) -> None:
        super().__init__(options, settings, lambda view, member_id: ConsumerCore(settings, view, member_id), notify)
        self._settings = settings
        self._reporter = self.runner.cluster.reporter
        self._polls: PollTimes | None = None
        """Measured since a broker asked for metrics: this takes 3 to 4 % of a poll that does not wait."""
        if options["enable_metrics_push"]:
            role = Role("consumer", self._pushed, self._measure_polls)
            self.runner.cluster.telemetry = Telemetry(self.runner.cluster, role)
        self.queries = Queries(self.runner, self.core.fetch, self._api_timeout_s)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self.runner.cluster.begin_statistics, self._statistics)
        super().start(loop)

    def describe(self) -> str:
        group = self._settings.group_id
        return "consumer" if group is None else f"consumer of group {group}"

    def _measure_polls(self) -> None:
        with self.runner.lock:
            self._polls = PollTimes()

    def _pushed(self) -> dict[str, float]:
        """Return the metrics of a push; averages and maxima are since the previous one."""
        with self.runner.lock:
            polls = {} if self._polls is None else self._polls.taken()
            return {**_metrics(self.core.fetch), **polls, **self.core.rebalances.taken()}

    def _statistics(self) -> Statistics:
        with self.runner.lock:
            return _metrics(self.core.fetch), _partition_metrics(self.core)

    def metrics(self) -> dict[str, float]:
        return {**self.runner.cluster.metrics(), **self._statistics()[0]}

    # -- polling, in any thread --------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        if self.closed:
            raise Closed("The consumer was closed")
        with self.runner.lock:
            if not self.core.subscription.is_set:
                raise NotSubscribed("This consumer reads nothing: subscribe() to topics or assign() partitions first")
            now = now_ms()
            if self._polls is not None:
                self._polls.begin(now)
            self.core.begin_poll(now)
        self._wake_if_needed()

    def step(self, collector: Collector | None) -> Duty | None:
        """Return the duty that this poll must do next, or fill `collector`, if one is given, with buffered records.

        If there is no duty and the collector stays empty, the poll must wait. Raises the error that prevents the poll
        from returning records.
        """
        core = self.core
        try:
            with self.runner.lock:
                duty = core.duty()
                if duty is not None:
                    core.begin_duty(duty)
                else:
                    core.raise_error()
                    if collector is not None:
                        core.fill(collector)
                return duty
        finally:
            self._wake_if_needed()

    def duty_done(self, duty: Duty) -> None:
        with self.runner.lock:
            self.core.duty_done(duty, now_ms())
            member = self.core.group_metadata()
        self.runner.wake()
        names = ", ".join(map(str, duty.partitions)) or "none"
        logger.info("Group %s, generation %d: partitions %s: %s", member.group_id, member.generation, duty.kind, names)
        self._reporter.report(
            Rebalanced(
                self._reporter.client_id, duty.kind, member.group_id, member.member_id, member.generation,
                duty.partitions,
            )
        )  # fmt: skip

    def end_poll(self) -> None:
        with self.runner.lock:
            now = now_ms()
            if self._polls is not None:
                self._polls.end(now)
            self.core.end_poll(now)

    def _wake_if_needed(self) -> None:
        if self.core.outbox.needs_advance:
            self.runner.wake()

    # -- commits, on the loop ----------------------------------------------------------------------------------

    async def commit(self, plan: CommitPlan | None, timeout_s: float | None = None) -> None:
        """Commit offsets; None: those after the records of earlier polls, where they are not committed yet.

        Commits are sent one at a time, in the order of the calls, so that an older position never replaces a newer one.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        turn = self.runner.commit_turn
        try:
            async with asyncio.timeout(limit_s):
                await turn.acquire()
        except TimeoutError as error:
            raise RequestTimedOut(f"An earlier commit was not completed within {limit_s:g} s") from error
        try:
            await self._commit(plan, max(0.0, deadline - time.monotonic()))
        finally:
            turn.release()
            self.runner.wake()

    def commit_later(self, plan: CommitPlan, callback: Callable[[ClientError | None], Any] | None) -> None:
        """Commit in the background, and call `callback` with None or the error; on the loop."""
        self._commit_in_background(self._commit_and_call(plan, callback))

    async def _commit_and_call(self, plan: CommitPlan, callback: Callable[[ClientError | None], Any] | None) -> None:
        try:
            await self.commit(plan)
        except ClientError as error:
            if callback is None:
                logger.warning("Commit failed: %s", error)
            else:
                self._call_back(callback, error)
        else:
            if callback is not None:
                self._call_back(callback, None)

    async def _commit(self, plan: CommitPlan | None, timeout_s: float) -> None:
        runner = self.runner
        if plan is None:
            with runner.lock:
                processed = self.core.processed()
                plan = processed, self.core.required_commits().assignments(processed) if processed else {}
        offsets, assignments = plan
        if not offsets:
            return
        commits = self.core.required_commits()

        async def attempt() -> None:
            with runner.lock:
                request = commits.commit_request(offsets, assignments)
            response = await self._send_to_coordinator(request)
            with runner.lock:
                error = commits.apply_commit(request, response)
            self._raise_commit_error(error)

        await retry(attempt, self._settings.fetch.backoff, timeout_s)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        wanted = [TopicPartition(*tp) for tp in partitions]
        commits = self.core.required_commits()

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            request = commits.offset_fetch_request(wanted)
            response = await self._send_to_coordinator(request)
            try:
                found = read_offsets(request, response)
            except BrokerError as error:
                self._raise_commit_error(error)
                raise
            return {tp: found.get(tp) for tp in wanted}

        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        return await retry(attempt, self._settings.fetch.backoff, limit_s)

    async def _send_to_coordinator(self, request: OffsetCommitRequest | OffsetFetchRequest) -> Any:
        try:
            return await self.runner.send(COORDINATOR, request, max_version=newest_version(request))
        except ClientError as error:
            if not isinstance(error, BrokerError):
                self._forget_coordinator()
            raise

    def _raise_commit_error(self, error: ClientError | None) -> None:
        if isinstance(error, BrokerError) and error.code in COORDINATOR_MOVED:
            self._forget_coordinator()
        if error is not None:
            raise error

    def _forget_coordinator(self) -> None:
        self.runner.cluster.forget_coordinator(self._settings.group_id or "")

    # -- position and close, on the loop -----------------------------------------------------------------------

    async def position(self, tp: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record; waits until it is known. Raises NotAssigned."""
        self.change(lambda core: core.fetch.want())
        return await self._until(lambda: self._known_position(tp), timeout_s, f"The position of {tp} was not found")

    def _known_position(self, tp: TopicPartition) -> int | None:
        """Return the position of a partition; None while it is looked up. Raises NotAssigned or the lookup's error."""
        with self.runner.lock:
            state = self.core.fetch.positions.of(tp)
            if state.lookup.error is not None:
                raise state.lookup.error.with_traceback(None)  # as in Delivery
            return state.offset if state.phase is Phase.FETCH else None

    async def close(self, timeout_s: float) -> None:
        """Wait for the commits in flight, leave the group, and close the connections.

        Does not raise if a broker does not respond.
        """
        if self.closed:
            return
        if self._commits:
            await asyncio.wait(self._commits, timeout=timeout_s / 2)
        await self.runner.close(ConsumerCore.leave, timeout_s)


def _metrics(fetch: FetchCore) -> dict[str, float]:
    isolation_level = fetch.settings.isolation_level
    lags = [lag for state in fetch.positions if (lag := state.lag(isolation_level)) is not None]
    return {
        "records-consumed-total": fetch.delivery.records_consumed,
        "bytes-consumed-total": fetch.delivery.bytes_consumed,
        "records-lag-max": max(lags, default=0),
        "assigned-partitions": len(fetch.positions),
        "buffered-bytes": fetch.positions.buffered_bytes,
    }


def _partition_metrics(core: ConsumerCore) -> dict[TopicPartition, dict[str, float]]:
    """Return the position, the committed offset and the lag of each partition, if they are known."""
    found: dict[TopicPartition, dict[str, float]] = {}
    for state in core.fetch.positions:
        known = {
            "position": state.offset if state.phase is Phase.FETCH else None,
            "committed": core.committed_offset(state.tp),
            "records-lag": state.lag(core.fetch.settings.isolation_level),
        }
        found[state.tp] = {name: value for name, value in known.items() if value is not None}
    return found
