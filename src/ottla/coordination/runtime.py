"""Runs a coordinator's shards, one for each partition of its topic, for example `__consumer_offsets`.

A request goes to the shard of its key. The runtime appends the records that the shard returns, reports the outcome,
and sends the replies in order once everything appended so far is committed. Effects that only one coordinator has are
executed at the same point, so that no other log learns of a decision that could still be lost. If the partition is
lost or a commit fails, the shard is discarded: waiting requests get NOT_COORDINATOR, and the next request loads the
log again.

A shard exists while this node leads its partition, in one leader epoch. With `partitions_changed` the runtime follows
the metadata: it unloads shards of partitions that another node leads now, or this node in a later epoch, and loads
those that this node leads.

A shard loads in slices, one per event loop iteration, so that a long log does not delay other requests. Until it is
loaded its requests get COORDINATOR_LOAD_IN_PROGRESS. One event loop timer serves all shards.

`submit` never fails: each error is a response. Not thread safe: call it on the event loop's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.common.clock import Clock
from ottla.common.completion import DONE, Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.request import Request
from ottla.common.slices import Slices, result_of
from ottla.common.timers import CallLater, TimerHandle
from ottla.coordination.internal_topic import InternalTopic, partition_of
from ottla.coordination.loading import Loading
from ottla.coordination.log_lines import CoordinatorLog
from ottla.coordination.shards import Coordinator, CoordinatorOptions, Runner, S, Waiting
from ottla.coordinators.errors import from_append_error
from ottla.coordinators.events import Append, Appended, Call, Effect, LogLine, Moment, ParkedEffect, Reply
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL

if TYPE_CHECKING:
    from ottla.log.transaction_marker import TransactionEnd

R = TypeVar("R")

logger = logging.getLogger(__name__)

RELOAD_BACKOFF_MS = 1_000
# Shards whose loading begins in one event loop iteration: each may open a log.
BEGUN_AT_ONCE = 4
_NO_TIMER = 1 << 62


class CoordinatorRuntime(Generic[S]):
    """A coordinator of this node."""

    def __init__(
        self,
        coordinator: Coordinator[S],
        topic: InternalTopic,
        *,
        clock: Clock,
        call_later: CallLater,
        options: CoordinatorOptions,
    ) -> None:
        self.topic = topic
        self._coordinator = coordinator
        self._clock = clock
        self._call_later = call_later
        self._codec = options.codec
        self._commit_timeout_ms = options.commit_timeout_ms
        self._log = CoordinatorLog(coordinator.logger, coordinator.name, topic.name, options.node_id)
        self._runners: dict[int, Runner[S]] = {}
        self._loading: deque[Runner[S]] = deque()
        # Partitions whose shards begin to load in later event loop iterations.
        self._unbegun: dict[int, None] = {}
        self._timer: TimerHandle | None = None
        self._timer_ms = _NO_TIMER
        self._closed = False

    # -- start and stop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load all partitions of this node, so that members that died while the broker was down time out."""
        for index in self.topic.led():
            self._runner(index)

    def close(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and stop."""
        self._closed = True
        for runner in tuple(self._runners.values()):
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
        self._cancel_timer()

    def partitions_changed(self) -> None:
        """Follow a metadata change: unload what this node leads no longer in the same epoch, load what it leads now."""
        topic = self.topic
        for runner in tuple(self._runners.values()):
            if runner.partition.closed or topic.leader_epoch(runner.index) != runner.leader_epoch:
                self._unload(runner, ErrorCode.NOT_COORDINATOR)
        is_scheduled = bool(self._unbegun)
        self._unbegun = {index: None for index in topic.led() if index not in self._runners}
        if self._unbegun and not is_scheduled:
            self._call_later(0, self._begin_some)

    def _begin_some(self) -> None:
        for index in tuple(self._unbegun)[:BEGUN_AT_ONCE]:
            del self._unbegun[index]
            if not self._closed:
                self._runner(index)
        if self._unbegun:
            self._call_later(0, self._begin_some)

    def shards(self) -> list[S]:
        """The shards that are loaded or being loaded."""
        return [runner.shard for runner in self._runners.values()]

    # -- requests --------------------------------------------------------------------------------------------------

    def submit(
        self,
        key: str,
        request: Request[R],
        *,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        may_describe: Callable[[str], bool] | None = None,
    ) -> Completion[R]:
        """Pass `request` to the shard of `key`; completes with the response and never fails."""
        completion: Completion[R] = Completion()
        call = Call(request, api_version, client_id, client_host, completion, may_describe)
        count = self.topic.partition_count()
        if not count:
            self._refuse(call, ErrorCode.NOT_COORDINATOR)
        else:
            self._dispatch(partition_of(key, count), call)
        return completion

    def ask(self, index: int, question: Request[R]) -> Completion[R]:
        """Pass `question` to the shard of partition `index`; completes with the response and never fails."""
        completion: Completion[R] = Completion()
        self._dispatch(index, Call(question, token=completion))
        return completion

    def collect(self, question: Request[list[R] | ErrorCode]) -> Slices[tuple[ErrorCode, list[R]]]:
        """Return (error, rows) of all shards of this node. One shard's error (it may be loading) is all shards'."""
        rows: list[R] = []
        for index in self.topic.led():
            yield
            answer = yield from result_of(self.ask(index, question))
            if answer is ErrorCode.NOT_COORDINATOR and self.topic.leader_epoch(index) is None:
                continue  # another node has become its leader
            if isinstance(answer, ErrorCode):
                return answer, []
            rows += answer
        return ErrorCode.NONE, rows

    def settled(self, key: str) -> S | None:
        """The shard of `key`, if it is loaded and everything that it decided is committed, so that it may be shown."""
        count = self.topic.partition_count()
        runner = self._runners.get(partition_of(key, count)) if count else None
        if runner is None or runner.loading is not None or runner.retry_at_ms is not None or runner.partition.closed:
            return None
        return runner.shard if runner.committed_end >= runner.appended_end else None

    def resume(self, index: int, shard: S, event: Callable[[S, Moment], Iterable[Effect]]) -> None:
        """Report the outcome of an effect of the coordinator's own: `event(shard, now)` returns further effects.

        Does nothing if the shard was unloaded meanwhile: the shard loaded after it decides again from its log.
        """
        runner = self._runners.get(index)
        if runner is not None and runner.shard is shard and not self._closed:
            now = self._now()
            self._run(runner, event(shard, now), now)

    def end_transaction(self, index: int, end: TransactionEnd) -> Completion[None]:
        """Append the end of a producer's transaction to partition `index`, and apply it to the shard.

        Completes once the marker is committed; fails with KafkaError, then with nothing appended unless the commit
        failed: the caller must retry.
        """
        runner = ErrorCode.NOT_COORDINATOR if self._closed else self._runner(index)
        if isinstance(runner, ErrorCode):
            return Completion.failed(KafkaError(runner))
        try:
            info = runner.partition.append_marker(end)
        except KafkaError as error:
            return Completion.failed(error)
        runner.shard.end_transaction(end.producer_id, commit=end.commit)
        return self._appended(runner, info.last_offset + 1) or DONE

    def _dispatch(self, index: int, call: Call[Any]) -> None:
        runner = ErrorCode.NOT_COORDINATOR if self._closed else self._runner(index)
        if isinstance(runner, ErrorCode):
            self._refuse(call, runner)
            return
        now = self._now()
        self._run(runner, runner.shard.step(call, now), now)

    def _refuse(self, call: Call[Any], error: ErrorCode) -> None:
        _send(Reply(call, self._coordinator.error_response(call, error)))

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    # -- effects ---------------------------------------------------------------------------------------------------

    def _run(self, runner: Runner[S], effects: Iterable[Effect], now: Moment) -> None:
        """Execute effects. Replies go last: sending one may deliver the client's next request to the same shard."""
        outward: list[ParkedEffect] = []
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, Append):
                # The effects of an append's outcome precede the effects that the shard returned after the append.
                pending.extendleft(reversed(list(self._append(runner, effect, now))))
            elif isinstance(effect, LogLine):
                self._log.line(runner.index, effect)
            else:
                outward.append(effect)
        next_ms = runner.shard.next_timer_ms()
        if next_ms is not None and next_ms < self._timer_ms:
            self._arm(next_ms, now.monotonic_ms)
        if runner.committed_end >= runner.appended_end and not runner.waiting:
            for effect in outward:
                self._execute(runner, effect)
        elif outward:
            self._park(runner, outward, now)

    def _execute(self, runner: Runner[S], effect: ParkedEffect) -> None:
        if isinstance(effect, Reply):
            _send(effect)
        elif self._coordinator.execute is not None:
            self._coordinator.execute(runner.index, runner.shard, effect)
        else:
            raise TypeError(f"{self._coordinator.name} cannot execute {effect!r}")

    def _append(self, runner: Runner[S], append: Append, now: Moment) -> Iterable[Effect]:
        has_producer = append.producer_id >= 0
        batch = encode_batch(
            [(now.wall_ms, key, value, []) for key, value in append.records],
            codec=self._codec,
            attributes=TRANSACTIONAL if has_producer else 0,
            producer=BatchProducer(append.producer_id, append.producer_epoch),
        )
        try:
            info = runner.partition.append(memoryview(batch), origin="coordinator")
        except KafkaError as error:
            logger.warning("Failed to write to %s-%d: %s", self.topic.name, runner.index, error)
            return runner.shard.handle_appended(Appended(append.id, -1, from_append_error(error.code)), now)
        self._appended(runner, info.last_offset + 1)
        return runner.shard.handle_appended(Appended(append.id, info.first_offset), now)

    def _appended(self, runner: Runner[S], end: int) -> Completion[None] | None:
        """Take note of the log's new end; None if it is committed, otherwise a completion that waits for it."""
        runner.appended_end = end
        durable = runner.partition.when_durable(end)
        if durable is None:
            runner.committed_end = end
        else:
            durable.on_done(partial(self._durable, runner, end))
        return durable

    def _park(self, runner: Runner[S], effects: list[ParkedEffect], now: Moment) -> None:
        deadline_ms = now.monotonic_ms + self._commit_timeout_ms
        runner.waiting.extend(Waiting(runner.appended_end, deadline_ms, effect) for effect in effects)
        if not runner.expires_replies:
            self._expire_replies_later(runner, self._commit_timeout_ms)

    def _expire_replies_later(self, runner: Runner[S], delay_ms: int) -> None:
        runner.expires_replies = True
        self._call_later(delay_ms / 1000, partial(self._expire_replies, runner))

    def _durable(self, runner: Runner[S], end: int, done: Completion[None]) -> None:
        try:
            done.result()
        except KafkaError as error:
            logger.warning("A write to %s-%d was not committed: %s", self.topic.name, runner.index, error)
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
            return
        runner.committed_end = max(runner.committed_end, end)
        while runner.waiting and runner.waiting[0].end_offset <= runner.committed_end:
            self._execute(runner, runner.waiting.popleft().effect)

    def _expire_replies(self, runner: Runner[S]) -> None:
        """Answer requests whose commit timed out. The records may still be committed later: the client must retry.

        Effects of other kinds have no time limit: they wait until the commit succeeds, or the shard is unloaded.
        """
        now_ms = self._clock.monotonic_ms()
        waiting = runner.waiting
        expired: list[Call[Any]] = []
        without_limit: list[Waiting] = []
        while waiting and waiting[0].deadline_ms <= now_ms:
            row = waiting.popleft()
            if isinstance(row.effect, Reply):
                expired.append(row.effect.call)
            else:
                without_limit.append(row)
        runner.expires_replies = bool(waiting)
        if waiting:
            self._expire_replies_later(runner, max(waiting[0].deadline_ms - now_ms, 1))
        waiting.extendleft(reversed(without_limit))
        for call in expired:
            self._refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- loading and unloading ---------------------------------------------------------------------------------------

    def _runner(self, index: int) -> Runner[S] | ErrorCode:
        """Return the shard if it is loaded, otherwise the error for its requests; begins to load it."""
        runner = self._runners.get(index)
        if runner is not None and runner.partition.closed:
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
            runner = None
        if runner is None:
            leader_epoch = self.topic.leader_epoch(index)
            if leader_epoch is None:
                return ErrorCode.NOT_COORDINATOR
            try:
                partition = self.topic.find_partition(index)
            except KafkaError as error:
                return from_append_error(error.code)
            runner = Runner(index, leader_epoch, partition, self._coordinator.new_shard(index, leader_epoch))
            runner.scheduled_ms = self._clock.monotonic_ms()
            self._runners[index] = runner
            self._log.scheduled(partition)
            self._load_later(runner)
        elif runner.retry_at_ms is not None and runner.retry_at_ms <= self._clock.monotonic_ms():
            del self._runners[index]
            return self._runner(index)
        if runner.retry_at_ms is not None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return runner if runner.loading is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _load_later(self, runner: Runner[S]) -> None:
        if runner.loading is None or runner.loading.is_at_end:
            self._load_slice(runner)  # an empty log needs no place in the queue
            return
        self._loading.append(runner)
        if len(self._loading) == 1:
            self._call_later(0, self._load_slices)

    def _load_slices(self) -> None:
        """Load a part of the first shard in the queue."""
        runner = self._loading[0]
        if self._runners.get(runner.index) is not runner or self._load_slice(runner):
            self._loading.popleft()
        if self._loading:
            self._call_later(0, self._load_slices)

    def _load_slice(self, runner: Runner[S]) -> bool:
        """Load a part of a shard; returns True when loading has ended, also by an error."""
        loading = runner.loading
        if loading is None:
            return True
        if runner.started_ms is None:
            runner.started_ms = self._clock.monotonic_ms()
        try:
            done = loading.step()
            if done:
                self._loaded(runner, loading)
        except (KafkaError, ValueError) as error:  # DecodeError is a ValueError
            logger.error(  # noqa: TRY400 - the message suffices; a traceback adds nothing
                "Failed to load metadata from %s-%d at offset %d: %s",
                self.topic.name,
                runner.index,
                loading.offset,
                error,
            )
        except Exception:  # an unhandled error in one shard must not stop the others from loading
            logger.exception("Failed to load metadata from %s-%d", self.topic.name, runner.index)
        else:
            return done
        runner.retry_at_ms = self._clock.monotonic_ms() + RELOAD_BACKOFF_MS
        return True

    def _loaded(self, runner: Runner[S], loading: Loading) -> None:
        runner.loading = None
        # The log may end with records that are not committed yet: no reply shows them before they are.
        self._appended(runner, runner.partition.log.log_end_offset)
        shard = runner.shard
        scheduled_ms, started_ms = runner.scheduled_ms, runner.started_ms or 0
        took_ms = self._clock.monotonic_ms() - scheduled_ms
        self._log.loaded(runner.partition, took_ms, started_ms - scheduled_ms, loading.records, loading.bytes)
        if shard.skipped_records:
            logger.warning(
                "%s-%d has %d records of unknown types, which are retained and have no effect",
                self.topic.name,
                runner.index,
                shard.skipped_records,
            )
        now = self._now()
        self._run(runner, self._coordinator.loaded(runner.index, shard, now), now)

    def _unload(self, runner: Runner[S], error: ErrorCode) -> None:
        if self._runners.get(runner.index) is not runner:
            return
        del self._runners[runner.index]
        self._log.unloading(runner.partition)
        effects = runner.shard.unload(error, self._now())
        waiting, runner.waiting = runner.waiting, deque()
        for row in waiting:
            if isinstance(row.effect, Reply):
                self._refuse(row.effect.call, error)
        for effect in effects:
            if isinstance(effect, Reply):
                _send(effect)
            elif isinstance(effect, LogLine):
                self._log.line(runner.index, effect)
        self._log.unloaded(runner.partition)

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: int, now_ms: int) -> None:
        self._cancel_timer()
        self._timer_ms = deadline_ms
        self._timer = self._call_later(max(deadline_ms - now_ms, 0) / 1000, self._timer_elapsed)

    def clock_moved(self) -> None:
        """Handle the timers that are due after the clock jumped, and set the event loop timer again."""
        self._cancel_timer()
        self._timer_elapsed()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, _NO_TIMER

    def _timer_elapsed(self) -> None:
        self._timer, self._timer_ms = None, _NO_TIMER
        now = self._now()
        try:
            self._handle_timers(now)
        finally:  # an unhandled error in one shard must not stop the timers of the others
            self._arm_again(now)

    def _handle_timers(self, now: Moment) -> None:
        for runner in tuple(self._runners.values()):
            # Sending a reply may deliver a request that unloads the shard.
            while self._runners.get(runner.index) is runner:
                next_ms = runner.shard.next_timer_ms()
                if next_ms is None or next_ms > now.monotonic_ms:
                    break
                self._run(runner, runner.shard.handle_timer(now), now)

    def _arm_again(self, now: Moment) -> None:
        deadlines = [ms for runner in self._runners.values() if (ms := runner.shard.next_timer_ms()) is not None]
        if deadlines and min(deadlines) < self._timer_ms:
            # Wait at least a millisecond, because the event loop's clock may be slightly ahead of ours.
            self._arm(max(min(deadlines), now.monotonic_ms + 1), now.monotonic_ms)


def _send(reply: Reply[Any]) -> None:
    token = reply.call.token
    if isinstance(token, Completion):
        token.complete(reply.response)
