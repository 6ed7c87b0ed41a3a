"""Runs the quorum's core on this node: events in, effects on the disk and the network out, in the core's order.

    replica = Replica(log, config, election, owner, parts)
    replica.start(loaded)
    replica.receive(request, listener).on_done(...)       # a request of another node, or of an administrator

The promises of `ottla.raft.events` are kept here: an election is on disk before a message is sent, and an append is
reported before the next effect. Events from outside that come during a step wait for its end. A failed disk, or a
node that breaks the protocol (`QuorumError`), stops the replica: it appends and sends nothing more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.loading import Loaded, lower_synced, snapshot_controls, snapshot_image
from ottla.cluster.metadata.opening import write_election
from ottla.cluster.quorum.fetched import FetchedSnapshot, append_fetched, fetched_batches
from ottla.cluster.quorum.flusher import Flusher
from ottla.cluster.quorum.leader_watch import LeaderWatch
from ottla.cluster.quorum.requests import QuorumRequests
from ottla.cluster.quorum.sender import Sender
from ottla.cluster.quorum.timer import DeadlineTimer
from ottla.common.completion import Completion
from ottla.common.control_types import ControlType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.rate_limit import RateLimitedLog
from ottla.common.shortage import ShortageError
from ottla.common.values import value
from ottla.metadata.delta import MetadataError
from ottla.protocol.control_records import decode_control_key
from ottla.protocol.wire import DecodeError
from ottla.raft import Election, LogEnd, QuorumConfig, QuorumError, RaftCore, Role, VoterSet, control, wire_responses
from ottla.raft import events as e
from ottla.raft.values import SnapshotId
from ottla.records import encode_batch, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cluster.metadata.snapshotting import RunInThread
    from ottla.cluster.quorum.transport import QuorumTransport
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater
    from ottla.log.log import Log
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.message import Message
    from ottla.raft import Controls
    from ottla.raft.messages import VoterChangeResponse
    from ottla.raft.state import RandomSource

logger = logging.getLogger(__name__)
# A leader whose snapshot is damaged sends it again every second, until it has written the next one.
_damaged = RateLimitedLog(logger, lines=1, period_s=10.0)

_CONTROL = 0x20
# A voter without a majority alternates between these roles.
_TRANSIENT = (Role.UNATTACHED, Role.PROSPECTIVE)


class ReplicaOwner(Protocol):
    """The reports of the replica to the metadata shell."""

    def appended(self, size: int, timestamp_ms: int) -> None:
        """A batch of `size` bytes was appended."""
        ...

    def committed(self, high_watermark: int) -> None:
        """All records below are committed. Raises KafkaError if they cannot be replayed."""
        ...

    def snapshot_loaded(self, image: MetadataImage) -> None:
        """A snapshot of the leader replaced the log."""
        ...

    def leadership_won(self) -> None:
        """This node leads, and its log has the first record of its epoch. Raises KafkaError."""
        ...

    def leadership_lost(self) -> None:
        """This node does not lead any more; records that are not committed may be truncated next."""
        ...

    def leader_changed(self) -> None:
        """Another leader, or none, is known; called after the other reports."""
        ...

    def failed(self, error: KafkaError) -> None:
        """The replica has stopped."""
        ...


@value
class ReplicaParts:
    """The parts of the process that a replica uses. Without a transport it reaches no other node."""

    clock: Clock
    random: RandomSource
    run_in_thread: RunInThread | None = None
    transport: QuorumTransport | None = None
    call_later: CallLater | None = None


class _Events:
    """The events that wait for the present step, each with the response that it reports, if any."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[e.Event, Message | None]] = deque()
        self.is_stepping = False
        self.response: Message | None = None
        """The response of the present event, for the effects that append its records."""


class _Reported:
    """The state of the quorum that the owner and the log lines reported last."""

    def __init__(self) -> None:
        self.led_epoch: int | None = None
        self.had_leader = False
        self.leader: object = None
        self.transition: object = None


class Replica:
    """This node's replica of the metadata log. Not thread safe: use it on the event loop."""

    def __init__(
        self, log: Log, config: QuorumConfig, election: Election, owner: ReplicaOwner, parts: ReplicaParts
    ) -> None:
        self.core = RaftCore(config, election, parts.random)
        self.log = log
        self.failure: KafkaError | None = None
        self.flusher = Flusher(log, parts.run_in_thread, self)
        self._owner = owner
        self._clock = parts.clock
        self._sender = Sender(parts.transport, config, self._post, self._strangers_found)
        self._requests = QuorumRequests(log)
        self._watch = LeaderWatch(parts.clock)
        self._timer = DeadlineTimer(parts.clock, parts.call_later, self.wake)
        self._fetching: FetchedSnapshot | None = None
        self._events = _Events()
        self._reported = _Reported()
        self._stopped: Completion[None] | None = None
        self._closed = False

    # -- life --------------------------------------------------------------------------------------------------

    def start(self, loaded: Loaded) -> None:
        """Enter the quorum with the log as it was loaded."""
        log = self.log
        # If only a snapshot is left, the new epoch must be higher than the snapshot's.
        end = LogEnd(log.log_end_offset, max(0, log.epochs.latest, loaded.image.epoch))
        epochs = tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries)
        flushed_offset, controls = min(log.flushed_offset, end.offset), tuple(loaded.controls)
        self._sender.start()
        self._post(e.Started(end, flushed_offset, epochs, controls, self._snapshots(), log.log_start_offset))

    def shut_down(self) -> Completion[None]:
        """Resign; completes when the other voters have another leader, or need none of this node.

        The only voter leads until its end, because it has no successor.
        """
        core = self.core
        if self._has_stopped or core.voters.is_only_voter(core.config.key):
            return Completion.of(None)
        if self._stopped is None:
            self._stopped = Completion()
            self._post(e.ShutdownRequested())
        return self._stopped

    def close(self) -> None:
        """Stop; requests that wait fail. The owner closes the log."""
        self._closed = self.flusher.closed = True
        self._timer.cancel()
        self._sender.close()
        self._requests.fail_all(KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down"))

    def fail(self, error: KafkaError) -> None:
        """Stop after a failure: appended records may never become durable, so nothing more can be acknowledged."""
        if self.failure is not None:
            return
        self.failure = error
        self._timer.cancel()
        self._owner.failed(error)
        self._requests.fail_all(error)

    def _strangers_found(self, problem: str) -> None:
        """Stop, unless this node is in a cluster already: then others have the wrong cluster id."""
        if not self._reported.had_leader:
            self.fail(KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, problem))

    def wake(self) -> None:
        """Let the core do what is due, and log if the quorum has no leader."""
        self._watch.check(self.core)
        if self.core.deadline_ms <= self._clock.monotonic_ms():
            self._post(e.Ticked())
        else:
            self._timer.set(self.core.deadline_ms)

    # -- requests of others ------------------------------------------------------------------------------------

    def receive(self, message: Message, listener: str) -> Completion[Message]:
        """Handle a request that came through `listener`; completes with its response, for some requests later.

        Fails with KafkaError if this replica has stopped: the connection is closed then.
        """
        if self._has_stopped:
            return Completion.failed(self.failure or KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down"))
        event, answer = self._requests.received(message, listener)
        if event is not None:
            self._post(event)
        return answer

    def upgrade(self, level: int, *, validate_only: bool) -> Completion[VoterChangeResponse]:
        """Set kraft.version; completes when the record is committed."""
        event, answer = self._requests.upgrade(level, validate_only=validate_only)
        self._post(event)
        return answer

    # -- the log -----------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk, as far as the core knows."""
        return self.core.flushed_offset

    def flushed(self, end_offset: int) -> None:
        """Everything below `end_offset` is on disk."""
        self._step(e.Flushed(end_offset))

    def snapshots_changed(self) -> None:
        """A snapshot was written or deleted."""
        self._post(e.SnapshotsChanged(self._snapshots(), self.log.log_start_offset))

    def controls_at(self, end_offset: int) -> dict[ControlType, bytes]:
        """The kraft.version and the voters of a snapshot that ends at `end_offset`; level 0 is not named."""
        version, voters = self.core.snapshot_controls(end_offset)
        records: list[control.ControlRecord] = [version] if version.level else []
        if voters is not None:
            records.append(voters)
        pairs = ((decode_control_key(key), value) for key, value in map(control.encode, records))
        return {kind: value for kind, value in pairs if kind is not None}

    def _snapshots(self) -> tuple[tuple[SnapshotId, int], ...]:
        files, directory = self.log.files, self.log.directory
        ids = snapshots.list_ids(files, directory)
        return tuple((SnapshotId(*each), files.size(f"{directory}/{each.file_name}")) for each in ids)

    def append(self, pairs: Sequence[tuple[bytes | None, bytes]], attributes: int = 0, controls: Controls = ()) -> None:
        """Append one batch as the leader. Raises ShortageError, and KafkaError if the disk fails or has failed."""
        if self.failure is not None:
            raise self.failure
        now_ms = self._clock.wall_ms()
        batch = encode_batch([(now_ms, key, value, ()) for key, value in pairs], attributes=attributes)
        try:
            self.log.append_as_leader(batch, read_header(batch), self.core.epoch, now_ms, origin="raft")
        except ShortageError:
            raise
        except KafkaError as error:
            self.fail(error)
            raise
        self._owner.appended(len(batch), now_ms)
        self._step(e.Appended(self.log.log_end_offset, self.core.epoch, controls))
        if self.failure is not None:
            raise self.failure

    # -- steps -------------------------------------------------------------------------------------------------

    def _post(self, event: e.Event, response: Message | None = None) -> None:
        """Handle an event from outside, after the present step."""
        self._events.waiting.append((event, response))
        if not self._events.is_stepping:
            self._handle_events()

    def _step(self, event: e.Event) -> None:
        """Report the outcome of an effect, or an append of this leader, at once."""
        if self._events.is_stepping:
            self._safely(partial(self._run, event))
        else:
            self._post(event)

    def _handle_events(self) -> None:
        self._events.is_stepping = True
        try:
            while self._events.waiting and not self._has_stopped:
                event, self._events.response = self._events.waiting.popleft()
                self._safely(partial(self._run, event))
                self._events.response = None
                self._safely(self._settle)
        finally:
            self._events.is_stepping = False
        if not self._has_stopped:
            self._timer.set(self.core.deadline_ms)

    @property
    def _has_stopped(self) -> bool:
        return self.failure is not None or self._closed

    def _safely(self, work: Callable[[], None]) -> None:
        """Do a part of a step. After an error the replica stops: its memory and its disk may differ."""
        if self._has_stopped:
            return
        try:
            work()
        except QuorumError as error:
            self.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        except ShortageError as error:
            # A leader that cannot append its own records must not stay the leader.
            logger.warning("Resigning as the leader of the metadata quorum: %s", error)
            self._events.waiting.append((e.ResignRequested(self.core.epoch), None))
        except KafkaError as error:
            self.fail(error)
        except OSError as error:
            self.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot write in {self.log.directory}: {error}"))
        except Exception as error:
            self.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unhandled error in the metadata quorum: {error!r}"))
            raise

    def _run(self, event: e.Event) -> None:
        core = self.core
        effects = core.step(event, self._clock.monotonic_ms())
        if self._reported.led_epoch is not None and not (core.is_leader and core.epoch == self._reported.led_epoch):
            # Before any effect: records that a later leader commits must not complete this leader's operations.
            self._reported.led_epoch = None
            self._owner.leadership_lost()
        for effect in effects:
            if self.failure is not None:
                return
            self._obey(effect)

    def _settle(self) -> None:
        """After a step: report a won election, then a changed leader."""
        core = self.core
        if core.is_leader and self._reported.led_epoch is None:
            self._reported.led_epoch = core.epoch
            self._owner.leadership_won()
        transition = (core.role, core.epoch, core.election.leader_id)
        if transition != self._reported.transition:
            self._reported.transition = transition
            level = logging.DEBUG if core.role in _TRANSIENT else logging.INFO
            text = "[RaftManager id=%d] Completed transition to %s in epoch %d, leader %d"
            logger.log(level, text, core.node_id, core.role.value, core.epoch, core.election.leader_id)
        known = (core.leader, self._reported.led_epoch)
        if known != self._reported.leader:
            self._reported.leader = known
            self._reported.had_leader = self._reported.had_leader or core.leader is not None
            self._owner.leader_changed()
        if self._stopped is not None and core.may_stop:
            self._stopped.complete(None)

    # -- effects -----------------------------------------------------------------------------------------------

    def _obey(self, effect: e.Effect) -> None:
        match effect:
            case e.Persist():
                write_election(self.log, effect)
            case e.AppendControl(records=records):
                self._append_control(records)
            case e.AppendFetched():
                self._append_fetched()
            case e.Truncate(offset=offset):
                self._truncate(offset)
            case e.Flush():
                self.flusher.request()
            case e.Commit(high_watermark=high_watermark):
                self.log.high_watermark = high_watermark
                self._owner.committed(high_watermark)
            case e.Send():
                self._sender.send(effect)
            case e.Respond():
                self._requests.respond(effect)
            case _:
                self._obey_snapshot(effect)

    def _append_control(self, records: tuple[control.ControlRecord, ...]) -> None:
        offset = self.log.log_end_offset
        controls = tuple(
            (position, each)
            for position, each in enumerate(records, offset)
            if isinstance(each, control.KRaftVersion | VoterSet)
        )
        self.append([control.encode(record) for record in records], _CONTROL, controls)

    def _append_fetched(self) -> None:
        """Append the batches of the response. Without an append, the core fetches again at its next deadline."""
        assert self._events.response is not None, "records are appended only from a response"
        log = self.log
        try:
            records = wire_responses.records_of(self._events.response)
            batches = list(fetched_batches(records, log.log_end_offset, self.core.epoch))
        except (KafkaError, DecodeError) as error:
            logger.warning("Rejecting records of the metadata leader: %s", error)
            return
        for position, batch in enumerate(batches, 1):
            now_ms = self._clock.wall_ms()
            try:
                append_fetched(log, batch, now_ms)
            except ShortageError as error:
                logger.warning("Postponing the replication of the metadata: %s", error)
                return
            self._owner.appended(len(batch.data), batch.header.max_timestamp)
            epoch = batch.header.partition_leader_epoch
            self._run(e.Appended(log.log_end_offset, epoch, batch.controls, is_last=position == len(batches)))

    def _truncate(self, offset: int) -> None:
        lower_synced(self.log, offset)
        self.log.truncate_to(offset)
        assert self.log.log_end_offset == offset, "the log was truncated inside a batch"

    def _obey_snapshot(self, effect: e.Effect) -> None:
        match effect:
            case e.BeginSnapshot(snapshot=snapshot):
                logger.info("Fetching the metadata snapshot %s from the leader", snapshot)
                self._fetching = FetchedSnapshot(self.log, snapshot)
            case e.AppendSnapshot(position=position):
                assert self._fetching is not None, "a part without a snapshot"
                assert self._events.response is not None, "a part without a response"
                self._fetching.append(position, wire_responses.records_of(self._events.response))
            case e.LoadSnapshot(snapshot=snapshot):
                self._load_snapshot(snapshot)
            case _:
                raise TypeError(f"Unexpected effect: {effect}")

    def _load_snapshot(self, fetched: SnapshotId) -> None:
        assert self._fetching is not None, "no snapshot was fetched"
        fetching, self._fetching = self._fetching, None
        try:
            snapshot_id, snapshot, size = fetching.complete()
        except snapshots.DamagedSnapshotError as error:
            _damaged.warning("Fetching a metadata snapshot of the leader again, because it is damaged: %s", error)
            self._run(e.SnapshotRejected(fetched))
            return
        try:
            image = snapshot_image(snapshot, snapshot_id)
        except MetadataError as error:
            text = f"The metadata snapshot of the leader cannot be read: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        # A crash before this line: the next start continues with the snapshot.
        self.log.truncate_fully(snapshot_id.end_offset)
        self._owner.snapshot_loaded(image)
        controls = snapshot_controls(snapshot, snapshot_id)
        self._run(e.SnapshotLoaded(SnapshotId(*snapshot_id), size, controls))
