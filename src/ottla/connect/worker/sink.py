"""One life of a sink task: poll, convert, transform, put, flush, commit. Runs in the task's thread.

Offsets are committed after `flush` has returned them, at intervals, before partitions are revoked and at the end. Power
off: records after the last committed offsets are put again. A sink with offsets of its own seeks to them in `open`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from ottla.clients.consumer.blocking import Consumer
from ottla.clients.errors import IllegalGeneration, RebalanceInProgress, UnknownMember
from ottla.common.ids import TopicPartition as Tp
from ottla.connect.api import SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.records import SinkRecord
from ottla.connect.worker.control import PAUSED
from ottla.connect.worker.conversion import Chain, DeliveredRecord, SinkConversion
from ottla.connect.worker.dead_letters import DeadLetters
from ottla.connect.worker.environment import TaskEnvironment
from ottla.connect.worker.failures import delay_ms
from ottla.connect.worker.steps import Step
from ottla.connect.worker.task_settings import ErrorSettings
from ottla.connect.worker.tolerance import Failure, Stage, Tolerance

logger = logging.getLogger("ottla.connect.worker")
_POLL_S: Final = 0.5
_PAUSED_POLL_S: Final = 0.2


class SinkLife:
    """A sink task from its start to its end or its first error."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment = environment
        self._control = environment.control
        self._errors = ErrorSettings.read(environment.connector)
        self._letters: DeadLetters | None = None
        self._tolerance: Tolerance
        self._task: SinkTask
        self._consumer: Consumer[Any, Any]
        self._delivered: dict[Tp, int] = {}
        """The next offset of each assigned partition after the records that `put` has accepted."""
        self._pending: Sequence[SinkRecord] = ()
        """Records that `put` has not accepted yet, and their raw records' next offsets."""
        self._pending_ends: dict[Tp, int] = {}
        self._is_holding = False
        self._retry = (0.0, "")
        """When a put is tried again, and its report."""
        self._put_tries = 0
        self._records = 0

    def run(self) -> None:
        """Run until the task should stop. Raises the error that ends this life."""
        environment, control = self._environment, self._control
        with ExitStack() as stack:
            chain = Chain(environment.worker, environment.connector)
            stack.callback(chain.close)
            if self._errors.dead_letter_topic.strip():
                control.waits_for("The task prepares its dead letter topic.")
                letters = DeadLetters(environment.task, environment.clients, self._errors, environment.secrets)
                self._letters = letters
                stack.callback(letters.close)
            hide = environment.secrets.hide
            self._tolerance = Tolerance(environment.task, self._errors, control, self._letters, hide=hide)
            task = environment.connector_class.task_class()
            assert isinstance(task, SinkTask)
            self._task = task
            stack.callback(task.stop)
            control.waits_for("The task connects to its destination.")
            task.start(self._context(), environment.config)
            self._consumer = self._subscribed()
            stack.callback(self._consumer.close)
            stack.callback(self._delivered.clear)  # after an error nothing is committed
            control.waits_for("")
            environment.reached(Step.STARTED, environment.task)
            self._loop(SinkConversion(chain, self._tolerance))
            self._finish()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self, conversion: SinkConversion) -> None:
        control, worker = self._control, self._environment.worker
        reached, name = self._environment.reached, self._environment.task
        is_paused, committed_at = False, time.monotonic()
        while not control.stopping:
            was_paused, is_paused = is_paused, control.paused
            if is_paused and not was_paused:
                self._commit_or_report(list(self._delivered))
            self._hold(hold=is_paused or bool(self._pending), is_paused=is_paused)
            reached(Step.BEFORE_POLL, name)
            raw = self._consumer.poll(_PAUSED_POLL_S if self._is_holding else _POLL_S)
            if raw:
                reached(Step.AFTER_POLL, name)
                self._take(conversion, raw)
            if self._pending and not is_paused and time.monotonic() >= self._retry[0]:
                self._put()
            if time.monotonic() - committed_at >= worker.flush_interval_ms / 1000:
                self._commit_or_report(list(self._delivered))
                committed_at = time.monotonic()

    def _take(self, conversion: SinkConversion, raw: Sequence[Any]) -> None:
        """Convert records of a poll, and put them with those that wait already."""
        records = conversion.convert_all(raw)
        self._pending = [*self._pending, *records] if self._pending else records
        # The records of a partition have one class, or one for each epoch of its leader.
        last = {type(each): each.offset for each in raw}
        for kind, offset in last.items():
            tp = Tp(kind.topic, kind.partition)
            self._pending_ends[tp] = max(offset + 1, self._pending_ends.get(tp, 0))
            if kind.topic not in self._used_topics:
                self._used_topics.add(kind.topic)
                self._environment.used_topic(kind.topic)
        self._put()

    def _put(self) -> None:
        """Hand records to the task. After a RetriableError the same records are put again later."""
        reached, name = self._environment.reached, self._environment.task
        try:
            if self._pending:
                reached(Step.BEFORE_PUT, name)
                self._task.put(self._pending)
                reached(Step.AFTER_PUT, name)
        except RetriableError as error:
            self._put_tries += 1
            wait_ms = delay_ms("connector", self._put_tries)
            self._control.retries(self._put_tries, time.time_ns() // 1_000_000 + wait_ms, str(error))
            text = f"The task puts {len(self._pending)} records again in {wait_ms} ms: {error}"
            self._retry = (time.monotonic() + wait_ms / 1000, text)
            self._control.waits_for(text)
            return
        self._records += len(self._pending)
        self._delivered |= {tp: end for tp, end in self._pending_ends.items() if tp in self._delivered}
        self._pending, self._pending_ends, self._put_tries = (), {}, 0
        self._control.succeeded()
        self._control.report_facts({"records": self._records})

    def _hold(self, *, hold: bool, is_paused: bool) -> None:
        """Fetch no records while the task is paused or repeats a put; the polls keep the membership.

        The task is shown as paused after its last put and its commit: the destination may be changed then.
        """
        if is_paused:
            self._control.waits_for(PAUSED)
        elif self._is_holding:
            # Also after a pause, which has replaced the report of the put.
            self._control.waits_for(self._retry[1] if self._pending else "")
        if hold:
            self._consumer.pause(self._consumer.assignment())
        elif self._is_holding:
            self._consumer.resume(self._consumer.paused())
        self._is_holding = hold
        self._environment.shows(is_paused)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def _commit(self, partitions: Sequence[Tp]) -> None:
        """Flush, and commit the offsets that the task returns. Raises ClientError and the task's errors."""
        current = {TopicPartition(*tp): self._delivered[tp] for tp in partitions if tp in self._delivered}
        if not current:
            return
        returned = self._task.flush(current)
        if self._letters is not None:
            self._letters.flush()
        self._environment.reached(Step.AFTER_FLUSH, self._environment.task)
        offsets = {Tp(*tp): offset for tp, offset in returned.items() if tp in current}
        if offsets:
            self._consumer.commit(offsets)
        self._environment.reached(Step.AFTER_COMMIT, self._environment.task)

    def _commit_or_report(self, partitions: Sequence[Tp]) -> None:
        """Commit. If the group rebalances or has another owner, nothing is lost: the records are put again."""
        try:
            self._commit(partitions)
        except (RebalanceInProgress, IllegalGeneration, UnknownMember) as error:
            logger.warning("Commit of the offsets of %s failed: %s", self._environment.task, error)
            self._control.report_facts({"last commit that failed": str(error)})

    def _finish(self) -> None:
        """Commit what was put, and close the partitions. The records of a put that failed are put again later."""
        partitions = list(self._delivered)
        self._commit(partitions)
        self._delivered.clear()
        if partitions:
            self._task.close([TopicPartition(*tp) for tp in partitions])

    # -- the group ---------------------------------------------------------------------------------------------------

    def _subscribed(self) -> Consumer[Any, Any]:
        environment, config = self._environment, self._environment.connector
        self._used_topics: set[str] = set()
        consumer = environment.clients.consumer(
            group_id=f"connect-{environment.task.connector}",
            client_id=f"connector-consumer-{environment.task}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        topics = [each.strip() for each in config.get("topics", "").split(",") if each.strip()]
        pattern = config.get("topics.regex", "").strip()
        if bool(topics) == bool(pattern):
            raise ConnectError("A sink needs either topics or topics.regex")
        consumer.subscribe(
            topics or None,
            pattern=re.compile(pattern) if pattern else None,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        return consumer

    def _assigned(self, partitions: Sequence[Tp]) -> None:
        """Open new partitions. Their offsets count from their first records on, or from a seek."""
        for tp in partitions:
            self._delivered[tp] = self._consumer.position(tp)
        if partitions:
            self._task.open([TopicPartition(*tp) for tp in partitions])
        if self._is_holding:
            self._consumer.pause(partitions)

    def _revoked(self, partitions: Sequence[Tp]) -> None:
        self._commit_or_report(partitions)
        self._close(partitions)

    def _lost(self, partitions: Sequence[Tp]) -> None:
        """Close partitions that may have another owner already: nothing may be committed."""
        self._close(partitions)

    def _close(self, partitions: Sequence[Tp]) -> None:
        owned = [tp for tp in partitions if self._delivered.pop(tp, None) is not None]
        if owned:
            self._task.close([TopicPartition(*tp) for tp in owned])
        gone = set(partitions)
        self._pending = [each for each in self._pending if Tp(each.original_topic, each.original_partition) not in gone]
        for tp in gone:
            self._pending_ends.pop(tp, None)

    # -- the task's context ------------------------------------------------------------------------------------------

    def _context(self) -> SinkTaskContext:
        task = self._environment.task
        return SinkTaskContext(
            task.connector,
            task.task,
            self._seek,
            self._reject,
            lambda: self._control.stopping,
            self._control.report_facts,
        )

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            self._consumer.seek(Tp(*tp), offset)
            if Tp(*tp) in self._delivered:
                self._delivered[Tp(*tp)] = offset

    def _reject(self, record: SinkRecord, error: Exception) -> None:
        """Hand a record to the dead letter topic, or raise if errors are not tolerated (KIP-610)."""
        raw = record.raw if type(record) is DeliveredRecord else None
        if self._letters is None and not self._errors.logs:
            raise ConnectError(
                "A record cannot be rejected: neither errors.deadletterqueue.topic.name nor errors.log.enable is set"
            ) from error
        plugin = type(self._task).__name__
        self._tolerance.failed(Failure(Stage.TASK_PUT, plugin, error, raw=raw))
