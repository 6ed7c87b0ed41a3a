"""The cluster's metadata on this node: the quorum's log on disk, the controller that changes it, the published image.

    shell = MetadataShell.open(directory, NodeIdentity(...), rules, clock)      # loads, is elected
    shell.register(request, clean_shutdown=...)                          # registers this broker, synced to disk
    shell.subscribe(listener); shell.submit(lambda controller: controller.create_topics(request)).on_done(...)
    shell.tick()                                                         # periodically: snapshots, retention

The controller decides a submitted operation on its latest image. The operation's records are appended at once as one
batch, or as a metadata transaction if they exceed a batch. An fsync in a thread covers everything appended before it
began; later records wait for the next fsync. A commit then has four steps, in this order: the high watermark advances,
the image is published, listeners run, completions complete.

- A failed disk ends the shell: all waiting operations fail with KAFKA_STORAGE_ERROR, and `on_failure` is called.
- A shortage of descriptors or memory does not: the operation that could not be appended fails, and `tick` retries a
  flush.
- An unhandled error in an operation fails only that operation; one in a listener is logged.

The directory has KRaft's format: `__cluster_metadata-0` with segments, snapshots and `quorum-state` (one voter), and
`bootstrap.checkpoint` beside it. NoOp records are not written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ottla.broker.metadata_batches import batches_of
from ottla.broker.metadata_loading import load, write_synced
from ottla.broker.metadata_opening import (
    check_voters,
    first_records,
    open_metadata_log,
    quorum_config,
    quorum_controls,
    read_election,
    write_election,
)
from ottla.broker.metadata_options import MetadataOptions, NodeIdentity
from ottla.broker.metadata_snapshotting import Snapshotter
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.work import Worker
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.shortage import ShortageError
from ottla.common.slices import Slices, finish
from ottla.controller import ConfigRules, Controller, Outcome
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.raft import (
    AppendControl,
    Commit,
    Effect,
    Endpoints,
    Flush,
    LogEnd,
    Persist,
    QuorumDescription,
    RaftCore,
    control,
)
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

_CONTROL = 0x20


class _Waiting(NamedTuple):
    """An operation's response, sent once everything below `end_offset` is committed and `image` is published."""

    end_offset: int
    image: MetadataImage
    completion: Completion[Any]
    response: object


class MetadataShell:
    """The metadata log of this node. Not thread safe: call it on the broker's event loop."""

    def __init__(
        self, log: Log, node: NodeIdentity, controller: Controller, clock: Clock, options: MetadataOptions
    ) -> None:
        """Use `open` instead."""
        self.node_id = node.node_id
        self.log = log
        self._files = log.files
        self._controller = controller
        self._clock = clock
        self._run_in_thread = options.run_in_thread
        self._on_failure = options.on_failure
        self._listeners: list[Listener] = []
        self._leader_callbacks: list[Callable[[], None]] = []
        self._waiting: deque[_Waiting] = deque()
        self._worker = Worker(clock) if options.worker is None else options.worker
        # Operations are decided one after the other, so that each sees the results of the previous ones.
        self._operations: deque[tuple[Operation[Any], Completion[Any]]] = deque()
        self._deciding = False
        self._failure: KafkaError | None = None
        self._flush_held = True
        self._flush_due = False
        self._flushing_now = False
        self._retries_flush = False
        self._closed = False
        self._noted_synced_offset = 0
        self._producer_ids = ProducerIds(self._allocate_producer_ids)
        loaded = load(log)
        self._controls = loaded.controls
        self._in_transaction = loaded.in_transaction
        self._snapshots = Snapshotter(log, loaded, options.settings, clock, options.run_in_thread)
        self.image: MetadataImage = controller.load(loaded.image, log.log_end_offset)
        self.raft = RaftCore(quorum_config(node, self._controls), read_election(log), options.random)

    # -- opening -----------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: str,
        node: NodeIdentity,
        rules: ConfigRules,
        clock: Clock,
        options: MetadataOptions | None = None,
    ) -> MetadataShell:
        """Load the metadata log of the log directory `directory`, or create it, and become its leader.

        Nothing is synced before `register` or the first `submit`. Raises OSError, and KafkaError if the metadata
        belongs to another node or cannot be read by this version.
        """
        options = options or MetadataOptions()
        log = open_metadata_log(directory, options.files, options.settings, clock)
        controller = Controller(
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            rules=rules,
            random=options.random,
            settings=options.controller_settings,
        )
        shell = cls(log, node, controller, clock, options)
        shell._start(directory)
        return shell

    def _start(self, directory: str) -> None:
        check_voters(self.log, self._controls, self.node_id)
        # If only a snapshot is left, the new epoch must be higher than the snapshot's.
        end = LogEnd(self.log.log_end_offset, max(0, self.log.epochs.latest, self.image.epoch))
        epochs = tuple((entry.epoch, entry.start_offset) for entry in self.log.epochs.entries)
        flushed_offset, controls = min(self.log.flushed_offset, end.offset), quorum_controls(self._controls)
        self._step(Started(end, flushed_offset, epochs, controls, start_offset=self.log.log_start_offset))
        if self._in_transaction:
            self._abort_transaction("The controller restarted")
        if not self._controller.image.features:
            finish(self._append(first_records(directory, self._files, self._clock.wall_ms())))
        for name, (finalized, served) in self._controller.check_features().items():
            logger.info("Keeping %s at level %d in the metadata: level %d is served here", name, finalized, served)

    def register(self, request: BrokerRegistrationRequest, *, clean_shutdown: bool) -> BrokerRegistrationResponse:
        """Register this node's broker; blocks until all records so far are on disk and in `image`."""
        completion: Completion[BrokerRegistrationResponse] = Completion()
        finish(
            self._decide(
                lambda controller: controller.register_broker(request, clean_shutdown=clean_shutdown, fenced=False),
                completion,
            )
        )
        self._flush_now()
        return completion.result()

    # -- operations --------------------------------------------------------------------------------------------

    def submit(self, operation: Operation[R]) -> Completion[R]:
        """Decide an operation on the latest metadata; completes with its response once its records are committed.

        A long operation is decided in slices; operations submitted meanwhile wait for it. Fails with the operation's
        exception, KAFKA_STORAGE_ERROR or NOT_CONTROLLER.
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
        # Hold flushes until the operation is in the image, because a flush without a thread commits at once.
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
            self._complete_when_committed(completion, outcome.response)

    def _check_leads(self) -> None:
        self._check_open()
        if not self.raft.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the leader of the metadata quorum")

    def create_topics(self, request: CreateTopicsRequest) -> Completion[CreateTopicsResponse]:
        """Create internal topics, or topics that a client's request creates automatically."""
        return self.submit(lambda controller: controller.create_topics(request))

    def next_producer_id(self) -> Completion[int]:
        """Allocate a producer id; no id is returned twice, also after a restart."""
        return self._producer_ids.next_id()

    def _allocate_producer_ids(self) -> Completion[AllocateProducerIdsResponse]:
        broker = self._controller.image.brokers.get(self.node_id)
        epoch = broker.epoch if broker is not None else -1
        return self.submit(lambda controller: controller.allocate_producer_ids(self.node_id, epoch))

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(old, new)` for each committed image, and `listener(None, image)` now."""
        self._listeners.append(listener)
        listener(None, self.image)

    # -- the active controller -----------------------------------------------------------------------------------

    @property
    def leader(self) -> tuple[int, Endpoints] | None:
        """The active controller: its node id and its controller listeners; None while there is none."""
        return self.raft.leader

    @property
    def is_active_controller(self) -> bool:
        """Whether this node decides operations: `submit` does not fail with NOT_CONTROLLER."""
        return self.raft.is_leader and self._failure is None and not self._closed

    def on_leader_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` now, and after each change of `leader` or `is_active_controller`."""
        self._leader_callbacks.append(callback)
        callback()

    def describe_quorum(self) -> QuorumDescription | None:
        """Return leader, epoch, high watermark, and the progress of each voter; None if another node leads."""
        return self.raft.describe(self._clock.monotonic_ms(), self._clock.wall_ms())

    def close(self) -> None:
        """Flush, fail all later operations, and close the files.

        A disk error is reported through `on_failure`, not raised: the caller still has to close other directories.
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
        """Append an operation's records atomically and apply them to the controller's image."""
        if records:
            yield from self._append_messages(records)
            # If the shell was closed meanwhile, the records are in the log and the next start reads them.
            yield from self._controller.replay_in_slices(records, self.log.log_end_offset - 1, self.raft.epoch)

    def _append_messages(self, records: list[Message]) -> Slices[None]:
        if self._in_transaction:
            self._abort_transaction("A shortage kept its last records from being written")
        batches = yield from batches_of(records, self._controller.image.metadata_version)
        for left, values in zip(reversed(range(len(batches))), batches, strict=True):
            self._check_open()
            self._append_batch([(None, value) for value in values])
            # Records that exceed one batch are a transaction from the first batch to the last (KIP-868).
            self._in_transaction = left > 0
            yield

    def _abort_transaction(self, reason: str) -> None:
        record = m.AbortTransactionRecord(reason=reason)
        self._append_batch([(None, encode_metadata_record(record, 0))])
        self._in_transaction = False

    def _check_open(self) -> None:
        if self._failure is not None or self._closed:
            raise self._failure or KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down")

    def _append_batch(self, pairs: Sequence[tuple[bytes | None, bytes]], attributes: int = 0) -> None:
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

    def _complete_when_committed(self, completion: Completion[R], response: R) -> None:
        end_offset = self.log.log_end_offset
        if end_offset <= self.raft.high_watermark and not self._waiting:
            _notify(completion.complete, response)
        else:
            self._waiting.append(_Waiting(end_offset, self._controller.image, completion, response))

    # -- the quorum's effects ----------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        for effect in self.raft.step(event, self._clock.monotonic_ms()):
            self._obey(effect)

    def _obey(self, effect: Effect) -> None:
        if isinstance(effect, Persist):
            write_election(self.log, effect)
        elif isinstance(effect, AppendControl):
            self._append_batch([control.encode(record) for record in effect.records], _CONTROL)
        elif isinstance(effect, Flush):
            self._flush_due = True
            if not self._flush_held:
                self._flush()
        elif isinstance(effect, Commit):
            self._commit(effect.high_watermark)
        else:
            raise TypeError(f"Unexpected effect in a quorum of one voter: {effect}")

    def _release_flush(self) -> None:
        self._flush_held = False
        if self._flush_due:
            self._flush()

    def _flush(self) -> None:
        """Sync in a thread. The core requests the next flush only after `Flushed` reported this one."""
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
            except Exception as error:  # noqa: BLE001 - not swallowed: the quorum would wait forever
                self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot flush {self.log}: {error!r}"))
            else:
                self._step(Flushed(target))

        self._run_in_thread(self._flush_log).on_done(flushed)

    def _flush_later(self, error: ShortageError) -> None:
        """Leave the flush to the next `tick`; operations that wait for it keep waiting."""
        logger.warning("Postponing the flush of the metadata log: %s", error)
        self._flush_due = self._retries_flush = True

    def _flush_log(self) -> None:
        self.log.flush()

    def _flush_now(self) -> None:
        """Sync on this thread until everything appended is on disk."""
        self._flush_held = False
        if self._flushing_now:
            return  # A listener called this during a commit: the outer call's loop continues.
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
            _notify(item.completion.complete, item.response)

    def _publish(self, image: MetadataImage) -> None:
        old = self.image
        if image is old:
            return
        self.image = image
        for listener in self._listeners:
            _notify(listener, old, image)

    def _fail(self, error: KafkaError) -> None:
        """Stop after a disk failure: appended records may never become durable, so nothing more can be acknowledged."""
        if self._failure is not None:
            return
        self._failure = error
        logger.error("The metadata log failed: %s", error)
        self._fail_waiting(error)
        for callback in self._leader_callbacks:
            _notify(callback)
        if self._on_failure is not None:
            self._on_failure(error)

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            _notify(item.completion.fail, error)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do deferrable work: write a part of a snapshot, delete old snapshots and segments. Takes milliseconds."""
        if self._failure is None and not self._closed:
            if self._retries_flush:
                self._retries_flush = False
                self._flush()
            self._note_synced()
            self._snapshots.tick(self.image)

    def _note_synced(self) -> None:
        """Write the synced offset to a file, so that the next start detects a log that lost synced records."""
        offset = self.log.flushed_offset
        if offset > self._noted_synced_offset:
            try:
                write_synced(self._files, self.log.directory, offset)
            except OSError as error:  # The older value is a valid lower bound.
                logger.warning("Failed to write the synced offset of the metadata log: %s", error)
            else:
                self._noted_synced_offset = offset

    def begin_snapshot(self) -> None:
        """Begin a snapshot of the committed image; `tick` continues it."""
        self._snapshots.begin(self.image)


def _notify(callback: Callable[..., object], *arguments: object) -> None:
    try:
        callback(*arguments)
    except Exception:  # a callback that raises must not stop the other callbacks or the next flush
        logger.exception("Unhandled error in a metadata listener")
