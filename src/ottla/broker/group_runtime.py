"""Runs the group coordinator's shards, one for each partition of `__consumer_offsets`.

A request goes to the shard of its group. The runtime appends the records that the shard returns, reports the outcome,
and sends the replies in order once everything appended so far is committed. If the partition is lost or a commit
fails, the shard is discarded: waiting requests get NOT_COORDINATOR, and the next request loads the log again.

A shard loads in slices, one per event loop iteration, so that a long log does not delay other requests. Until it is
loaded its groups answer COORDINATOR_LOAD_IN_PROGRESS. One event loop timer serves all shards.

`submit` never fails: each error is a response. Not thread safe: call it on the event loop's thread.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.broker.group_loading import Loading
from ottla.broker.group_log import GroupLog
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC, Uuid, group_partition
from ottla.common.slices import Slices, result_of
from ottla.coordinators.events import Append, Appended, Call, Effects, LogLine, Moment, Reply
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.errors import error_response, from_append_error
from ottla.coordinators.group.events import ListGroups, TopicsDeleted
from ottla.coordinators.group.shard import GroupShard
from ottla.records import Codec, encode_batch

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.protocol.messages.list_groups import ListedGroup

logger = logging.getLogger(__name__)

RELOAD_BACKOFF_MS = 1_000
TOPIC_CREATION_TIMEOUT_MS = 10_000
_NO_TIMER = 1 << 62

# A client may send a group id of 32 KB. Caching thousands of such ids would waste memory.
LONGEST_CACHED = 256
_cached_partition_of = lru_cache(maxsize=16_384)(group_partition)


def partition_of(group_id: str, count: int) -> int:
    """The partition of `__consumer_offsets` that holds a group."""
    return (_cached_partition_of if len(group_id) <= LONGEST_CACHED else group_partition)(group_id, count)


class TimerHandle(Protocol):
    """What `loop.call_later` returns."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]


class _Waiting(NamedTuple):
    """A reply that must not be sent before everything below `end_offset` is committed."""

    end_offset: int
    deadline_ms: int
    reply: Reply


class _Runner:
    """One shard and its partition."""

    __slots__ = (
        "appended_end",
        "committed_end",
        "expires_replies",
        "index",
        "loading",
        "partition",
        "retry_at_ms",
        "scheduled_ms",
        "shard",
        "started_ms",
        "waiting",
    )

    def __init__(self, index: int, partition: Partition, shard: GroupShard) -> None:
        self.index = index
        self.partition = partition
        self.shard = shard
        self.loading: Loading | None = Loading(partition.log, shard)
        """None once the shard is loaded."""
        self.retry_at_ms: int | None = None
        """When to retry a load that failed; None if it did not fail."""
        self.scheduled_ms = 0
        self.started_ms: int | None = None
        """When loading began, on the monotonic clock."""
        # Replies are parked while committed_end < appended_end.
        self.appended_end = self.committed_end = partition.log.log_end_offset
        self.waiting: deque[_Waiting] = deque()
        # Whether a timer is set that expires parked replies. It may fire after they have been sent.
        self.expires_replies = False


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """What the runtime asks about `__consumer_offsets` and other topics."""

    find_partition: Callable[[int], Partition]
    """A partition of `__consumer_offsets` by its index; raises KafkaError."""
    partition_count: Callable[[], int]
    """The number of partitions of `__consumer_offsets`, 0 while it does not exist. It includes partitions that cannot
    be served now, because it determines which partition holds a group."""
    create_topic: Callable[[], Completion[None]]
    """Creates `__consumer_offsets`; completes once its partitions can be found."""
    topic_id: Callable[[str], Uuid | None]
    """The id of any topic, None if it does not exist."""


class GroupRuntime:
    """The group coordinator of this node."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        clock: Clock,
        call_later: CallLater,
        topics: GroupTopics,
        random_bytes: Callable[[int], bytes] = os.urandom,
        codec: Codec = Codec.NONE,
        commit_timeout_ms: int = 5_000,
        node_id: int = 1,
    ) -> None:
        self.config = config
        self._clock = clock
        self._call_later = call_later
        self._find_partition = topics.find_partition
        self._partition_count = topics.partition_count
        self._create_topic = topics.create_topic
        self._topic_id = topics.topic_id
        self._random_bytes = random_bytes
        self._codec = codec
        self._commit_timeout_ms = commit_timeout_ms
        self._log = GroupLog(node_id)
        self._runners: dict[int, _Runner] = {}
        self._loading: deque[_Runner] = deque()
        self._timer: TimerHandle | None = None
        self._timer_ms = _NO_TIMER
        self._creating: Completion[None] | None = None
        self._closed = False

    # -- start and stop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load all existing partitions, so that members that died while the broker was down time out."""
        for index in range(self._partition_count()):
            self._runner(index)

    def close(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and stop."""
        self._closed = True
        for runner in tuple(self._runners.values()):
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
        self._cancel_timer()

    def ensure_topic(self) -> Completion[None]:
        """Create `__consumer_offsets` if it does not exist; fails with COORDINATOR_NOT_AVAILABLE (retriable)."""
        if self._partition_count():
            return Completion.of(None)
        if self._creating is not None:
            return self._creating
        creating = self._creating = Completion()

        def give_up() -> None:
            message = f"{OFFSETS_TOPIC} could not be created within {TOPIC_CREATION_TIMEOUT_MS} ms"
            creating.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))

        deadline = self._call_later(TOPIC_CREATION_TIMEOUT_MS / 1000, give_up)

        def created(done: Completion[None]) -> None:
            try:
                done.result()
            except KafkaError as error:
                # A client may have created the topic at the same time.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.warning("Auto topic creation failed for %s: %s", OFFSETS_TOPIC, error)
                    creating.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
                    return
            creating.complete(None)

        def finished(_done: Completion[None]) -> None:
            deadline.cancel()
            self._creating = None

        creating.on_done(finished)
        self._create_topic().on_done(created)
        return creating

    def partitions_changed(self) -> None:
        """Unload shards whose partition was closed by a metadata change."""
        for runner in tuple(self._runners.values()):
            if runner.partition.closed:
                self._unload(runner, ErrorCode.NOT_COORDINATOR)

    # -- requests --------------------------------------------------------------------------------------------------

    def submit(
        self, group_id: str, request: object, *, api_version: int = 0, client_id: str = "", client_host: str = ""
    ) -> Completion[Any]:
        """Pass `request` to the group's shard; completes with the response and never fails."""
        completion: Completion[Any] = Completion()
        call = Call(request, api_version, client_id, client_host, completion)
        count = self._partition_count()
        if self._closed or not count:
            self._refuse(call, ErrorCode.NOT_COORDINATOR)
            return completion
        self._dispatch(partition_of(group_id, count), call)
        return completion

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> Slices[tuple[ErrorCode, list[ListedGroup]]]:
        """Return (error, groups) over all shards. An error of one shard, e.g. while it loads, is the error of all."""
        question = ListGroups(states, types)
        groups: list[ListedGroup] = []
        for index in range(self._partition_count()):
            yield
            answer = yield from result_of(self._ask(index, question))
            if isinstance(answer, ErrorCode):
                return answer, []
            groups += answer
        return ErrorCode.NONE, groups

    def topics_deleted(self, names: Iterable[str]) -> Slices[None]:
        """Delete the offsets of deleted topics. A shard that is loading compares its topics when it has loaded."""
        event = TopicsDeleted(frozenset(names))
        for index in range(self._partition_count()):
            is_left = True
            while is_left:
                yield
                is_left = (yield from result_of(self._ask(index, event))) is True

    def _ask(self, index: int, question: object) -> Completion[Any]:
        completion: Completion[Any] = Completion()
        self._dispatch(index, Call(question, token=completion))
        return completion

    def _dispatch(self, index: int, call: Call) -> None:
        runner = self._runner(index)
        if isinstance(runner, ErrorCode):
            self._refuse(call, runner)
            return
        now = self._now()
        self._run(runner, runner.shard.step(call, now), now)

    def _refuse(self, call: Call, error: ErrorCode) -> None:
        _send(Reply(call, error_response(call, error)))

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    # -- effects ---------------------------------------------------------------------------------------------------

    def _run(self, runner: _Runner, effects: Effects, now: Moment) -> None:
        """Execute effects. Replies go last: sending one may deliver the client's next request to the same shard."""
        replies: list[Reply] = []
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, Reply):
                replies.append(effect)
            elif isinstance(effect, LogLine):
                self._log.line(runner.index, effect)
            else:
                # The effects of an append's outcome precede the effects that the shard returned after the append.
                pending.extendleft(reversed(self._append(runner, effect, now)))
        next_ms = runner.shard.next_timer_ms()
        if next_ms is not None and next_ms < self._timer_ms:
            self._arm(next_ms, now.monotonic_ms)
        if runner.committed_end >= runner.appended_end and not runner.waiting:
            for reply in replies:
                _send(reply)
        elif replies:
            self._park(runner, replies, now)

    def _append(self, runner: _Runner, append: Append, now: Moment) -> Effects:
        batch = encode_batch([(now.wall_ms, key, value, []) for key, value in append.records], codec=self._codec)
        try:
            info = runner.partition.append(memoryview(batch), origin="coordinator")
        except KafkaError as error:
            logger.warning("Failed to write to %s-%d: %s", OFFSETS_TOPIC, runner.index, error)
            return runner.shard.handle_appended(Appended(append.id, -1, from_append_error(error.code)), now)
        end = runner.appended_end = info.last_offset + 1
        durable = runner.partition.when_durable(end)
        if durable is None:
            runner.committed_end = end
        else:
            durable.on_done(partial(self._durable, runner, end))
        return runner.shard.handle_appended(Appended(append.id, info.first_offset), now)

    def _park(self, runner: _Runner, replies: list[Reply], now: Moment) -> None:
        deadline_ms = now.monotonic_ms + self._commit_timeout_ms
        runner.waiting.extend(_Waiting(runner.appended_end, deadline_ms, reply) for reply in replies)
        if not runner.expires_replies:
            self._expire_replies_later(runner, self._commit_timeout_ms)

    def _expire_replies_later(self, runner: _Runner, delay_ms: int) -> None:
        runner.expires_replies = True
        self._call_later(delay_ms / 1000, partial(self._expire_replies, runner))

    def _durable(self, runner: _Runner, end: int, done: Completion[None]) -> None:
        try:
            done.result()
        except KafkaError as error:
            logger.warning("A write to %s-%d was not committed: %s", OFFSETS_TOPIC, runner.index, error)
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
            return
        runner.committed_end = max(runner.committed_end, end)
        waiting = runner.waiting
        while waiting and waiting[0].end_offset <= runner.committed_end:
            _send(waiting.popleft().reply)

    def _expire_replies(self, runner: _Runner) -> None:
        """Answer requests whose commit timed out. The records may still be committed later: the client must retry."""
        now_ms = self._clock.monotonic_ms()
        waiting = runner.waiting
        while waiting and waiting[0].deadline_ms <= now_ms:
            self._refuse(waiting.popleft().reply.call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        runner.expires_replies = False
        if waiting:
            self._expire_replies_later(runner, max(waiting[0].deadline_ms - now_ms, 1))

    # -- loading and unloading ---------------------------------------------------------------------------------------

    def _runner(self, index: int) -> _Runner | ErrorCode:
        """Return the shard if it is loaded, otherwise the error for requests to its groups; begins to load it."""
        runner = self._runners.get(index)
        if runner is not None and runner.partition.closed:
            self._unload(runner, ErrorCode.NOT_COORDINATOR)
            runner = None
        if runner is None:
            try:
                partition = self._find_partition(index)
            except KafkaError as error:
                return from_append_error(error.code)
            runner = _Runner(index, partition, GroupShard(self.config, self._random_bytes))
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

    def _load_later(self, runner: _Runner) -> None:
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

    def _load_slice(self, runner: _Runner) -> bool:
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
                OFFSETS_TOPIC,
                runner.index,
                loading.offset,
                error,
            )
        except Exception:  # an unhandled error in one shard must not stop the others from loading
            logger.exception("Failed to load metadata from %s-%d", OFFSETS_TOPIC, runner.index)
        else:
            return done
        runner.retry_at_ms = self._clock.monotonic_ms() + RELOAD_BACKOFF_MS
        return True

    def _loaded(self, runner: _Runner, loading: Loading) -> None:
        runner.loading = None
        shard = runner.shard
        scheduled_ms, started_ms = runner.scheduled_ms, runner.started_ms or 0
        took_ms = self._clock.monotonic_ms() - scheduled_ms
        self._log.loaded(runner.partition, took_ms, started_ms - scheduled_ms, loading.records, loading.bytes)
        if shard.skipped_records:
            logger.warning(
                "%s-%d has %d records of unknown types, which are retained and have no effect",
                OFFSETS_TOPIC,
                runner.index,
                shard.skipped_records,
            )
        if shard.unserved:
            kinds = Counter(group.kind for group in shard.unserved.values())
            logger.info(
                "%s-%d has groups of unsupported types, which are retained: %s",
                OFFSETS_TOPIC,
                runner.index,
                ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
            )
        now = self._now()
        self._run(runner, shard.loaded(now, self._topic_id), now)

    def _unload(self, runner: _Runner, error: ErrorCode) -> None:
        if self._runners.get(runner.index) is not runner:
            return
        del self._runners[runner.index]
        self._log.unloading(runner.partition)
        effects = runner.shard.unload(error, self._now())
        waiting, runner.waiting = runner.waiting, deque()
        for row in waiting:
            self._refuse(row.reply.call, error)
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
        finally:  # an unhandled error in one group must not stop the timers of the others
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


def _send(reply: Reply) -> None:
    token = reply.call.token
    if isinstance(token, Completion):
        token.complete(reply.response)
