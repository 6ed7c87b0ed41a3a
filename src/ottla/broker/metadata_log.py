"""The cluster's metadata on this node: the quorum's log on disk, the controller on top, the image for everyone.

    shell = MetadataShell.open(directory, node_id=..., cluster_id=..., rules=..., clock=...)   # loads, is elected
    shell.register(request, clean_shutdown=...)                                   # this broker joins; now on disk
    shell.subscribe(listener); shell.submit(lambda controller: controller.create_topics(request)).on_done(...)
    shell.tick()                                                  # now and then: snapshots, retention

A submitted operation is decided on the latest image; its records are one batch (or, if they are too many, a metadata
transaction), appended at once. An fsync in a thread covers all that was appended before it; what is appended meanwhile
waits for the next. Then the high watermark moves, the image is published, listeners run, completions complete, in this
order. A disk that fails ends the shell: everything waiting fails with KAFKA_STORAGE_ERROR, and `on_failure` is called.
A shortage of descriptors or memory ends nothing: an operation that could not be appended fails, a flush is retried by
`tick`.
A mistake in an operation fails that one alone; one of who is told of a commit is logged: the log goes on.

The directory is KRaft's: `__cluster_metadata-0` with segments, snapshots and `quorum-state` (kraft.version 0: one
static voter), and `bootstrap.checkpoint` beside it. Records that say nothing (NoOp) are not written.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ottla.broker.metadata_batches import batches_of
from ottla.broker.metadata_loading import load, write_synced
from ottla.broker.metadata_opening import check_voters, first_records, open_metadata_log, read_election, write_election
from ottla.broker.metadata_snapshotting import MetadataLogSettings, RunInThread, Snapshotter
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.work import Worker
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.common.shortage import ShortageError
from ottla.common.slices import Slices, finish
from ottla.controller import ConfigRules, Controller, ControllerSettings, Outcome
from ottla.controller.state import RandomSource
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.protocol import metadata_records as m
from ottla.protocol.control_records import (
    ControlType,
    LeaderChangeMessage,
    LeaderChangeVoter,
    encode_control_key,
)
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.raft import AppendLeaderChange, Commit, Effect, Flush, LogEnd, Persist, RaftCore
from ottla.raft.events import Appended, Event, Flushed, Started
from ottla.records import encode_batch, read_header

if TYPE_CHECKING:
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger(__name__)

R = TypeVar("R")
Listener = Callable[["MetadataImage | None", MetadataImage], None]
Operation: TypeAlias = Callable[[Controller], "Outcome[R] | Slices[Outcome[R]]"]

# Kafka 4.3 writes and reads no other, with kraft.version 1 as well: a later one stops its start.
LEADER_CHANGE_VERSION = 0
_CONTROL = 0x20


@dataclass(frozen=True, slots=True)
class VoterState:
    """One voter as the leader sees it; times are of the wall clock, -1 if unknown."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum as the leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[VoterState, ...]


class _Waiting(NamedTuple):
    """Something appended, or asked, that is true once everything below `end_offset` is committed."""

    end_offset: int
    image: MetadataImage
    done: Callable[[], None]
    failed: Callable[[KafkaError], None]


class _SystemRandom:
    """What is needed of `random.SystemRandom`, whose module takes a start a millisecond."""

    def randbytes(self, n: int, /) -> bytes:
        return os.urandom(n)

    def randrange(self, stop: int, /) -> int:
        return int.from_bytes(os.urandom(16), "big") % stop


class MetadataShell:
    """The metadata log of this node. Everything is called on the broker's loop."""

    def __init__(
        self,
        log: Log,
        *,
        node_id: int,
        directory_id: Uuid,
        controller: Controller,
        clock: Clock,
        settings: MetadataLogSettings,
        random: RandomSource,
        run_in_thread: RunInThread | None,
        on_failure: Callable[[KafkaError], None] | None,
        worker: Worker | None,
    ) -> None:
        """For `open`."""
        self.node_id = node_id
        self.directory_id = directory_id
        self.log = log
        self._files = log.files
        self._controller = controller
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._on_failure = on_failure
        self._listeners: list[Listener] = []
        self._waiting: deque[_Waiting] = deque()
        self._worker = Worker(clock) if worker is None else worker
        # Operations to be decided, one after the other: each sees all that was decided before.
        self._operations: deque[tuple[Operation[Any], Completion[Any]]] = deque()
        self._deciding = False
        self._failure: KafkaError | None = None
        self._flush_held = True
        self._flush_due = False
        self._flushing_now = False
        self._retries_flush = False
        self._closed = False
        self._noted = 0
        self._producer_ids = ProducerIds(self._allocate_producer_ids)
        loaded = load(log)
        self._controls = loaded.controls
        self._in_transaction = loaded.in_transaction
        self._snapshots = Snapshotter(log, loaded, settings, clock, run_in_thread)
        self.image: MetadataImage = controller.load(loaded.image, log.log_end_offset)
        self.raft = RaftCore(node_id, {node_id}, read_election(log), random)

    # -- opening -----------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        node_id: int,
        cluster_id: str,
        rules: ConfigRules,
        clock: Clock,
        directory_id: Uuid = ZERO_UUID,
        settings: MetadataLogSettings | None = None,
        controller_settings: ControllerSettings | None = None,
        files: Files | None = None,
        random: RandomSource | None = None,
        run_in_thread: RunInThread | None = None,
        on_failure: Callable[[KafkaError], None] | None = None,
        worker: Worker | None = None,
    ) -> MetadataShell:
        """Load what is in `directory` (a log directory; the log is made in it if there is none) and become leader.

        Nothing is synced before `register` or the first `submit`; without `run_in_thread` each fsync blocks. Raises
        OSError, and KafkaError if the metadata there is not for this node or this software.
        """
        settings = settings or MetadataLogSettings()
        files = files or Files()
        random = random or _SystemRandom()
        log = open_metadata_log(directory, files, settings, clock)
        controller = Controller(
            node_id=node_id, cluster_id=cluster_id, rules=rules, random=random, settings=controller_settings
        )
        shell = cls(
            log,
            node_id=node_id,
            directory_id=directory_id,
            controller=controller,
            clock=clock,
            settings=settings,
            random=random,
            run_in_thread=run_in_thread,
            on_failure=on_failure,
            worker=worker,
        )
        shell._start(directory)
        return shell

    def _start(self, directory: str) -> None:
        check_voters(self.log, self._controls, self.node_id)
        # A snapshot may be all that is left: its epoch is over, too.
        end = LogEnd(self.log.log_end_offset, max(self.log.latest_epoch, self.image.epoch))
        epochs = tuple((entry.epoch, entry.start_offset) for entry in self.log.epochs.entries)
        self._step(Started(end, min(self.log.flushed_offset, end.offset), epochs))
        if self._in_transaction:
            self._abort_transaction("The controller restarted")
        if not self._controller.image.features:
            finish(self._append(first_records(directory, self._files, self._clock.wall_ms())))
        for name, (finalized, served) in self._controller.check_features().items():
            logger.info("Keeping %s at level %d in the metadata: level %d is served here", name, finalized, served)

    def register(self, request: BrokerRegistrationRequest, *, clean_shutdown: bool) -> BrokerRegistrationResponse:
        """Register this node's own broker; blocks until that, and all before it, is on disk and in `image`."""
        completion: Completion[BrokerRegistrationResponse] = Completion()
        finish(
            self._decide(
                lambda controller: controller.register_broker(request, clean_shutdown=clean_shutdown, fenced=False),
                completion,
            )
        )
        self._flush_now()
        return completion.result()

    # -- what others use ---------------------------------------------------------------------------------------

    def submit(self, operation: Operation[R]) -> Completion[R]:
        """Decide an operation on the latest metadata; done with its response once its records are committed.

        A long one is decided in slices, and those submitted meanwhile wait for it. Fails with what the operation raises
        (a KafkaError, or an unhandled error), with KAFKA_STORAGE_ERROR or NOT_CONTROLLER.
        """
        completion: Completion[R] = Completion()
        self._operations.append((operation, completion))
        if not self._deciding:
            self._deciding = True
            self._worker.run(self._decide_all())
        return completion

    def _decide_all(self) -> Slices[None]:
        try:
            while self._operations:
                yield from self._decide(*self._operations.popleft())
                self._release_flush()
                yield
        finally:
            self._deciding = False

    def _decide(self, operation: Operation[R], completion: Completion[R]) -> Slices[None]:
        # Held until the operation is in the image: a flush without a thread commits at once.
        self._flush_held = True
        try:
            self._check_leads()
            outcome = operation(self._controller)
            if not isinstance(outcome, Outcome):
                outcome = yield from outcome
                self._check_leads()
            yield from self._append(outcome.records)
        except Exception as error:  # noqa: BLE001 - not swallowed: the caller gets it
            completion.fail(error)
        else:
            response = outcome.response
            self._wait(lambda: completion.complete(response), completion.fail)

    def _check_leads(self) -> None:
        self._check_open()
        if not self.raft.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum")

    def create_topics(self, request: CreateTopicsRequest) -> Completion[CreateTopicsResponse]:
        """Create topics, for the broker itself."""
        return self.submit(lambda controller: controller.create_topics(request))

    def next_producer_id(self) -> Completion[int]:
        """A producer id that was never given before."""
        return self._producer_ids.next_id()

    def _allocate_producer_ids(self) -> Completion[AllocateProducerIdsResponse]:
        broker = self._controller.image.brokers.get(self.node_id)
        epoch = broker.epoch if broker is not None else -1
        return self.submit(lambda controller: controller.allocate_producer_ids(self.node_id, epoch))

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(old, new)` for each committed image; at once with (None, the present one)."""
        self._listeners.append(listener)
        listener(None, self.image)

    def describe_quorum(self) -> QuorumDescription:
        """Leader, epoch, high watermark, and how far each voter is."""
        now_ms = self._clock.wall_ms()
        voters = tuple(
            VoterState(
                voter,
                self.directory_id if voter == self.node_id else ZERO_UUID,
                self.log.log_end_offset,
                now_ms,
                now_ms,
            )
            for voter in sorted(self.raft.voters)
        )
        return QuorumDescription(self.raft.election.leader_id, self.raft.epoch, self.raft.high_watermark, voters)

    def close(self) -> None:
        """Sync what is appended, fail what is asked from now on, close the files.

        A disk that fails here is told as at any other time: the other directories must be closed all the same.
        """
        if self._closed:
            return
        if self._failure is None:
            try:
                self._flush_now()
            except KafkaError:
                logger.debug("The flush failed; its waiters were notified")
        self._closed = True
        closed = KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down")
        self._fail_waiting(closed)
        while self._operations:
            self._operations.popleft()[1].fail(closed)
        if self._failure is None:
            self._note_synced()
        try:
            self.log.close()
        except KafkaError as error:
            logger.warning("Error while closing the metadata log: %s", error)
            self.log.abandon()

    # -- appending ---------------------------------------------------------------------------------------------

    def _append(self, records: list[Message]) -> Slices[None]:
        """Append an operation's records, all or nothing, and take them into the controller's image."""
        if records:
            yield from self._append_messages(records)
            # Closed meanwhile, the records are in the log, and the next start reads them.
            yield from self._controller.replay_in_slices(records, self.log.log_end_offset - 1, self.raft.epoch)

    def _append_messages(self, records: list[Message]) -> Slices[None]:
        if self._in_transaction:
            self._abort_transaction("A shortage kept its last records from being written")
        batches = yield from batches_of(records, self._controller.image.metadata_version)
        for left, values in zip(reversed(range(len(batches))), batches, strict=True):
            self._check_open()
            self._append_batch([(None, value) for value in values])
            # What is too much for one batch is a transaction, from its first batch to its last (KIP-868).
            self._in_transaction = left > 0
            yield

    def _abort_transaction(self, reason: str) -> None:
        record = m.AbortTransactionRecord(reason=reason)
        self._append_batch([(None, encode_metadata_record(record, 0))])
        self._in_transaction = False

    def _check_open(self) -> None:
        if self._failure is not None or self._closed:
            raise self._failure or KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down")

    def _append_batch(self, pairs: list[tuple[bytes | None, bytes]], attributes: int = 0) -> None:
        now_ms = self._clock.wall_ms()
        batch = encode_batch([(now_ms, key, value, ()) for key, value in pairs], attributes=attributes)
        try:
            self.log.append_as_leader(batch, read_header(batch), self.raft.epoch, now_ms, origin="raft")
        except ShortageError:
            raise
        except KafkaError as error:
            self._fail(error)
            raise
        self._snapshots.appended(len(batch), now_ms)
        self._step(Appended(self.log.log_end_offset, self.raft.epoch))

    def _wait(self, done: Callable[[], Any], failed: Callable[[KafkaError], Any]) -> None:
        end_offset = self.log.log_end_offset
        if end_offset <= self.raft.high_watermark and not self._waiting:
            _tell(done)
        else:
            self._waiting.append(_Waiting(end_offset, self._controller.image, done, failed))

    # -- the quorum's effects ----------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        for effect in self.raft.step(event, self._clock.monotonic_ms()):
            self._obey(effect)

    def _obey(self, effect: Effect) -> None:
        if isinstance(effect, Persist):
            write_election(self.log, effect.election, self.raft.voters)
        elif isinstance(effect, AppendLeaderChange):
            self._append_leader_change(effect)
        elif isinstance(effect, Flush):
            self._flush_due = True
            if not self._flush_held:
                self._flush()
        elif isinstance(effect, Commit):
            self._commit(effect.high_watermark)
        else:
            raise TypeError(f"A quorum of one voter has no {effect}")

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        message = LeaderChangeMessage(
            version=LEADER_CHANGE_VERSION,
            leader_id=effect.leader_id,
            voters=[LeaderChangeVoter(voter) for voter in effect.voters],
            granting_voters=[LeaderChangeVoter(voter) for voter in effect.granting_voters],
        )
        value = message.encode(LEADER_CHANGE_VERSION)
        self._append_batch([(encode_control_key(ControlType.LEADER_CHANGE), value)], _CONTROL)

    def _release_flush(self) -> None:
        self._flush_held = False
        if self._flush_due:
            self._flush()

    def _flush(self) -> None:
        """Sync in a thread; the core asks for the next one only after this one was reported."""
        if self._run_in_thread is None:
            try:
                self._flush_now()
            except ShortageError as error:
                self._flush_later(error)
            except KafkaError:
                logger.debug("The flush failed; its waiters were notified")
            return
        if self._flushing_now:
            return
        self._flush_due = False
        target = self.log.log_end_offset

        def flushed(done: Completion[None]) -> None:
            if self._closed:
                return
            try:
                done.result()
            except ShortageError as error:
                self._flush_later(error)
            except KafkaError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - the quorum would wait for this flush for ever
                self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot flush {self.log}: {error!r}"))
            else:
                self._step(Flushed(target))

        self._run_in_thread(self._flush_log).on_done(flushed)

    def _flush_later(self, error: ShortageError) -> None:
        """Leave the flush to the next `tick`; what waits for it goes on waiting."""
        logger.warning("The metadata log is flushed later: %s", error)
        self._flush_due = self._retries_flush = True

    def _flush_log(self) -> None:
        self.log.flush()

    def _flush_now(self) -> None:
        """Sync on this thread, until nothing is left to sync."""
        self._flush_held = False
        if self._flushing_now:
            return  # called by who was told of a commit: the loop below goes on
        self._flushing_now = True
        try:
            while self._flush_due or self.raft.flushed_offset < self.log.log_end_offset:
                self._flush_due = False
                target = self.log.log_end_offset
                self.log.flush()
                self._step(Flushed(target))
        except ShortageError:
            raise
        except KafkaError as error:
            self._fail(error)
            raise
        finally:
            self._flushing_now = False

    def _commit(self, high_watermark: int) -> None:
        self.log.high_watermark = high_watermark
        waiting = self._waiting
        ready: list[_Waiting] = []
        while waiting and waiting[0].end_offset <= high_watermark:
            ready.append(waiting.popleft())
        latest = self._controller.image
        if latest.offset < high_watermark:
            self._publish(latest)
        elif ready:
            self._publish(ready[-1].image)
        for item in ready:
            _tell(item.done)

    def _publish(self, image: MetadataImage) -> None:
        old = self.image
        if image is old:
            return
        self.image = image
        for listener in self._listeners:
            _tell(listener, old, image)

    def _fail(self, error: KafkaError) -> None:
        """The disk failed: what is appended may never be durable, so nothing more can be promised."""
        if self._failure is not None:
            return
        self._failure = error
        logger.error("The metadata log failed: %s", error)
        self._fail_waiting(error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            _tell(item.failed, error)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Work that can wait: begin or go on with a snapshot, let old ones and old segments go. Costs milliseconds."""
        if self._failure is None and not self._closed:
            if self._retries_flush:
                self._retries_flush = False
                self._flush()
            self._note_synced()
            self._snapshots.tick(self.image)

    def _note_synced(self) -> None:
        offset = self.log.flushed_offset
        if offset > self._noted:
            try:
                write_synced(self._files, self.log.directory, offset)
            except OSError as error:  # an older note is as true
                logger.warning("Failed to write the synced offset of the metadata log: %s", error)
            else:
                self._noted = offset

    def begin_snapshot(self) -> None:
        """Begin a snapshot of the committed image; `tick` carries it on."""
        self._snapshots.begin(self.image)


def _tell(told: Callable[..., object], *what: object) -> None:
    """A mistake of one keeps nobody else from being told, nor the log from its next flush, without which it stands."""
    try:
        told(*what)
    except Exception:
        logger.exception("Unhandled error in a metadata listener")
