"""The cluster's metadata on this node: the quorum's log, the controller that changes it, the published image.

    shell = MetadataShell.open(directory, NodeIdentity(...), rules, clock)      # loads, enters the quorum
    shell.register(request, clean_shutdown=...)                          # registers this broker, synced to disk
    shell.subscribe(listener); shell.submit(lambda controller: controller.create_topics(request)).on_done(...)
    shell.tick()                                                         # periodically: snapshots, retention

While this node leads the quorum, its controller is the active one. It decides a submitted operation on its latest
image. The operation's records are appended at once as one batch, or as a metadata transaction if they exceed a batch.
An fsync in a thread covers everything appended before it began; later records wait for the next fsync. A commit then
has four steps, in this order: the high watermark advances, the image is published, listeners run, completions complete.
A node that does not lead replays committed records and publishes the image.

- When this node loses the leadership, operations that wait fail with NOT_CONTROLLER, and the controller's image of
  uncommitted records is dropped: the next leader decides which of them remain.
- A failed disk ends the shell: all waiting operations fail with KAFKA_STORAGE_ERROR, and `on_failure` is called.
- A shortage of descriptors or memory does not: the operation that could not be appended fails, and `tick` retries a
  flush.
- An unhandled error in an operation fails only that operation; one in a listener is logged.

The directory has KRaft's format: `__cluster_metadata-0` with segments, snapshots and `quorum-state`, and
`bootstrap.checkpoint` beside it. `quorum/` has the replica.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cluster.metadata.batches import batches_of
from ottla.cluster.metadata.loading import Loaded, load, load_or_start_over
from ottla.cluster.metadata.opening import check_level, first_records, open_metadata_log, own_quorum, read_election
from ottla.cluster.metadata.operations import Operation, Operations
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshotting import Snapshotter
from ottla.cluster.quorum.replay import LogReplay
from ottla.cluster.quorum.replica import Replica, ReplicaParts
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, finish
from ottla.common.values import value
from ottla.common.work import Worker
from ottla.controller import ConfigRules, Controller, Outcome
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.raft import Endpoints, QuorumDescription, RaftCore

if TYPE_CHECKING:
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger(__name__)

R = TypeVar("R")
Listener = Callable[["MetadataImage | None", MetadataImage], None]


@value
class _Waiting:
    """An operation's response, sent once everything below `end_offset` is committed and `image` is published."""

    end_offset: int
    image: MetadataImage
    completion: Completion[Any]
    response: object


class _Term:
    """The time from a won election until this node loses the leadership."""

    def __init__(self) -> None:
        self.in_transaction = False


class Phase(Enum):
    """The life of a shell."""

    OPENING = 0
    OPEN = 1
    CLOSED = 2


class MetadataShell:
    """The metadata log of this node. Not thread safe: call it on the broker's event loop."""

    def __init__(
        self,
        log: Log,
        loaded: Loaded,
        node: NodeIdentity,
        controller: Controller,
        clock: Clock,
        options: MetadataOptions,
    ) -> None:
        """Use `open` instead."""
        self.node_id = node.node_id
        self.log = log
        self._controller = controller
        self._clock = clock
        self._options = options
        self._listeners: list[Listener] = []
        self._leader_callbacks: list[Callable[[], None]] = []
        self._waiting: deque[_Waiting] = deque()
        worker = Worker(clock) if options.worker is None else options.worker
        self._operations = Operations(worker, self._decide_and_flush)
        self._phase = Phase.OPENING
        controls = tuple(loaded.controls)
        check_level(log, controls)
        config = options.quorum or own_quorum(node, log, controls)
        is_alone = options.quorum is None
        parts = ReplicaParts(clock, options.random, options.run_in_thread, options.transport, options.call_later)
        self.quorum = Replica(log, config, read_election(log, is_only_voter=is_alone), self, parts)
        """This node's replica: requests of other nodes, changes of the voters, the shutdown."""
        self._snapshots = Snapshotter(log, loaded, options.settings, clock, options.run_in_thread, self.quorum)
        self.image: MetadataImage = loaded.image
        self._term: _Term | None = None
        """None while this node does not lead."""
        # Replays committed records while this node does not lead.
        self._replay = LogReplay(log, loaded.image, loaded.snapshot_end)

    @property
    def raft(self) -> RaftCore:
        """The state of the quorum, to read."""
        return self.quorum.core

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
        """Load the metadata log of the log directory `directory`, or create it, and enter the quorum.

        The only voter becomes the leader at once, and has all records of its log in `image`. Without `options.quorum`
        it syncs nothing before `register`, the first `submit` or the first `tick`. Raises OSError, and KafkaError if
        the metadata belongs to another node or cannot be read by this version.
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
        is_observer = options.quorum is not None and not options.quorum.can_become_voter
        loaded = load_or_start_over(log) if is_observer else load(log)
        shell = cls(log, loaded, node, controller, clock, options)
        shell._start(loaded)
        return shell

    def _start(self, loaded: Loaded) -> None:
        self.quorum.flusher.hold()
        self.quorum.start(loaded)
        if self.quorum.failure is not None:
            raise self.quorum.failure
        self._phase = Phase.OPEN
        if self._options.quorum is not None:
            self.quorum.flusher.release()

    def register(self, request: BrokerRegistrationRequest, *, clean_shutdown: bool) -> BrokerRegistrationResponse:
        """Register this node's broker; blocks until all records so far are on disk and in `image`.

        Only for a node that is the only voter; another one sends the request to the active controller.
        """
        completion: Completion[BrokerRegistrationResponse] = Completion()
        finish(
            self._decide(
                lambda controller: controller.register_broker(request, clean_shutdown=clean_shutdown, fenced=False),
                completion,
            )
        )
        self.quorum.flusher.flush_now()
        return completion.result()

    # -- operations --------------------------------------------------------------------------------------------

    def submit(self, operation: Operation[R]) -> Completion[R]:
        """Decide an operation on the latest metadata; completes with its response once its records are committed.

        A long operation is decided in slices; operations submitted meanwhile wait for it. Fails with the operation's
        exception, KAFKA_STORAGE_ERROR or NOT_CONTROLLER.
        """
        return self._operations.submit(operation)

    def _decide_and_flush(self, operation: Operation[R], completion: Completion[R]) -> Slices[None]:
        yield from self._decide(operation, completion)
        self.quorum.flusher.release()

    def _decide(self, operation: Operation[R], completion: Completion[R]) -> Slices[None]:
        # Hold flushes until the operation is in the image, because a flush without a thread commits at once.
        self.quorum.flusher.hold()
        try:
            response = yield from self._while_leading(self._execute(operation))
        except Exception as error:  # noqa: BLE001 - not swallowed: the caller gets it
            completion.fail(error)
        else:
            self._complete_when_committed(completion, response)

    def _execute(self, operation: Operation[R]) -> Slices[R]:
        outcome = operation(self._controller)
        if not isinstance(outcome, Outcome):
            outcome = yield from outcome
        yield from self._append(outcome.records)
        return outcome.response

    def _while_leading(self, work: Slices[R]) -> Slices[R]:
        """Run the work as long as this node leads in the present term. Otherwise it would change another image."""
        term = self._term
        while True:
            self._check_leads(term)
            try:
                step = next(work)
            except StopIteration as end:
                result: R = end.value
                return result
            yield step

    def _check_leads(self, term: _Term | None) -> None:
        if self.quorum.failure is not None:
            raise self.quorum.failure
        if self._phase is Phase.CLOSED:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down")
        if term is None or term != self._term:
            raise self._not_controller()

    def _not_controller(self) -> KafkaError:
        leader = self.leader
        is_known = leader is not None and leader[0] != self.node_id
        text = f"The active controller appears to be node {leader[0]}." if leader is not None and is_known else ""
        return KafkaError(ErrorCode.NOT_CONTROLLER, text or "No controller appears to be active.")

    def create_topics(self, request: CreateTopicsRequest) -> Completion[CreateTopicsResponse]:
        """Create internal topics, or topics that a client's request creates automatically."""
        return self.submit(lambda controller: controller.create_topics(request))

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
        return self._term is not None and self.quorum.failure is None and self._phase is not Phase.CLOSED

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
        if self._phase is Phase.CLOSED:
            return
        if self.quorum.failure is None:
            try:
                self.quorum.flusher.flush_now()
            except KafkaError:
                logger.debug("The flush failed; its waiters were notified")
        self._phase = Phase.CLOSED
        closed = KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down")
        self._fail_waiting(closed)
        self._operations.fail(closed)
        self.quorum.close()
        if self.quorum.failure is None:
            self.quorum.flusher.note_synced()
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
        term = self._term
        assert term is not None
        if term.in_transaction:
            self._abort_transaction("A shortage kept its last records from being written")
        batches = yield from batches_of(records, self._controller.image.metadata_version)
        for left, values in zip(reversed(range(len(batches))), batches, strict=True):
            self.quorum.append([(None, value) for value in values])
            # Records that exceed one batch are a transaction from the first batch to the last (KIP-868).
            term.in_transaction = left > 0
            yield

    def _abort_transaction(self, reason: str) -> None:
        record = m.AbortTransactionRecord(reason=reason)
        self.quorum.append([(None, encode_metadata_record(record, 0))])
        if self._term is not None:
            self._term.in_transaction = False

    def _complete_when_committed(self, completion: Completion[R], response: R) -> None:
        end_offset = self.log.log_end_offset
        self._waiting.append(_Waiting(end_offset, self._controller.image, completion, response))
        if end_offset <= self.raft.high_watermark:
            # The followers may acknowledge records before their replay has ended, which is done in slices.
            self.committed(self.raft.high_watermark)

    # -- reports of the replica ----------------------------------------------------------------------------------

    def appended(self, size: int, timestamp_ms: int) -> None:
        """See `ReplicaOwner`."""
        self._snapshots.appended(size, timestamp_ms)

    def committed(self, high_watermark: int) -> None:
        """See `ReplicaOwner`."""
        if self._term is None:
            self._publish(self._replay.advance(high_watermark))
            return
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

    def snapshot_loaded(self, image: MetadataImage) -> None:
        """See `ReplicaOwner`."""
        self._replay = LogReplay(self.log, image, image.offset + 1)
        self._snapshots.loaded(image.offset + 1)

    def leadership_won(self) -> None:
        """See `ReplicaOwner`: the controller takes over all records of the log, also those not committed yet."""
        image = self._controller.load(self._replay.advance(self.log.log_end_offset), self.log.log_end_offset)
        if self._phase is Phase.OPENING:
            self.image = image
        self._term = _Term()
        logger.info(
            "[QuorumController id=%d] Becoming the active controller at epoch %d", self.node_id, self.raft.epoch
        )
        if self._replay.in_transaction:
            self._abort_transaction("The controller restarted")
        own = self.node_id if self._phase is Phase.OPENING else None
        self._controller.begin_sessions(self._clock.monotonic_ms(), own)
        if not image.features:
            formatted = first_records(self.log.log_directory.path, self.log.files, self._clock.wall_ms())
            finish(self._append(self._controller.first_records(formatted).records))
        for name, (finalized, served) in self._controller.check_features().items():
            logger.info("Keeping %s at level %d in the metadata: level %d is served here", name, finalized, served)

    def leadership_lost(self) -> None:
        """See `ReplicaOwner`: drop what is not committed."""
        if self._term is None:
            return
        logger.warning("[QuorumController id=%d] Renouncing the leadership", self.node_id)
        self._term = None
        self._replay = LogReplay(self.log, self.image, self.image.offset + 1)
        self._controller.load(self.image)
        self._fail_waiting(self._not_controller())

    def leader_changed(self) -> None:
        """See `ReplicaOwner`."""
        for callback in self._leader_callbacks:
            _notify(callback)

    def failed(self, error: KafkaError) -> None:
        """See `ReplicaOwner`."""
        logger.error("The metadata log failed: %s", error)
        self._fail_waiting(error)
        self.leader_changed()
        if self._options.on_failure is not None and self._phase is not Phase.OPENING:
            self._options.on_failure(error)

    def _publish(self, image: MetadataImage) -> None:
        old = self.image
        if image is old:
            return
        self.image = image
        for listener in self._listeners:
            _notify(listener, old, image)

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            _notify(item.completion.fail, error)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do deferrable work: write a part of a snapshot, delete old snapshots and segments. Takes milliseconds."""
        if self.quorum.failure is None and self._phase is not Phase.CLOSED:
            if not self._operations.is_deciding:
                self.quorum.flusher.release()
            self.quorum.wake()
            self.quorum.flusher.note_synced()
            self._snapshots.tick(self.image)

    def begin_snapshot(self) -> None:
        """Begin a snapshot of the committed image; `tick` continues it."""
        self._snapshots.begin(self.image)


def _notify(callback: Callable[..., object], *arguments: object) -> None:
    try:
        callback(*arguments)
    except Exception:  # a callback that raises must not stop the other callbacks or the next flush
        logger.exception("Unhandled error in a metadata listener")
