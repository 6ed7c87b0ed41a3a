"""A quorum whose nodes apply the cluster's metadata: an image each, and the controller on the node that leads.

Each operation's records are one batch, which is never divided. The image of a node has the committed records; the image
of an active controller also has the records that it has appended. `MetadataHistory` has the sequence of committed
images, and the invariants of each change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.controller import Controller, ControllerSettings, Outcome
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import bootstrap_records, record_version
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.message import Message
from ottla.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from ottla.raft.values import SnapshotId
from tests.simulation.world.metadata_history import MetadataHistory
from tests.simulation.world.quorum import Quorum
from tests.simulation.world.quorum_disk import Data, Entry
from tests.simulation.world.quorum_parts import NONE, Faults, Setup
from tests.unit.controller.support import Rules

SESSION_TIMEOUT_MS = 500
FENCE_PERIOD_MS = 50

Operation: TypeAlias = Callable[[Controller, int], Any]
"""Called with the controller and the node's monotonic time; returns an Outcome or a generator of one."""
Callback: TypeAlias = Callable[[Any], None]
"""Called with the response, or with a KafkaError."""


class Waiting(NamedTuple):
    """A response, sent when everything below `end_offset` is committed."""

    end_offset: int
    callback: Callback
    response: Any


class Metadata:
    """The metadata that a running node has applied."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.offset = 0
        self.controller: Controller | None = None
        self.epoch = -1
        self.waiting: deque[Waiting] = deque()


class MetadataQuorum(Quorum):
    """Nodes that apply the log."""

    def __init__(self, seed: int, setup: Setup, faults: Faults = NONE) -> None:
        self.history = MetadataHistory(f"seed {seed}")
        self.metadata: dict[int, Metadata] = {}
        super().__init__(seed, setup, faults)
        self.clock.plan(FENCE_PERIOD_MS, self._fence_expired)

    # -- operations --------------------------------------------------------------------------------------------------

    def submit(self, node: int, operation: Operation, callback: Callback) -> None:
        """Let the node decide an operation; NOT_CONTROLLER unless it leads. Without effect if it is down."""
        running, metadata = self.running.get(node), self.metadata.get(node)
        if running is None or metadata is None:
            return
        if running.paused_until_ms > self.clock.now_ms:
            return
        controller = metadata.controller
        if controller is None or not running.core.is_leader:
            callback(KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead"))
            return
        # The quorum's own records, such as a change of the voters, are also in the log.
        controller.load(controller.image, self.disks[node].end)
        try:
            decided = operation(controller, running.local_ms(self.clock.now_ms))
            outcome = decided if isinstance(decided, Outcome) else finish(decided)
        except KafkaError as error:
            callback(error)
            return
        self._append_records(node, metadata, outcome.records)
        if self.metadata.get(node) is metadata and metadata.controller is controller:
            metadata.waiting.append(Waiting(self.disks[node].end, callback, outcome.response))
            self._answer(metadata, running.core.high_watermark)
        else:
            callback(KafkaError(ErrorCode.NOT_CONTROLLER, "This node ceased to lead"))

    def _append_records(self, node: int, metadata: Metadata, records: list[Message]) -> None:
        controller = metadata.controller
        if not records or controller is None:
            return
        version = controller.image.metadata_version
        encoded = [encode_metadata_record(record, record_version(record, version)) for record in records]
        epoch = self.core(node).epoch
        entries = tuple((epoch, Data(value, len(encoded) - i - 1)) for i, value in enumerate(encoded))
        end_offset = self.disks[node].end + len(entries)
        # The operation is in the controller's image before anything else can happen.
        controller.replay(decoded(entries), end_offset - 1, epoch)
        self._append(node, entries)

    def _answer(self, metadata: Metadata, high_watermark: int) -> None:
        while metadata.waiting and metadata.waiting[0].end_offset <= high_watermark:
            waiting = metadata.waiting.popleft()
            waiting.callback(waiting.response)

    def _fence_expired(self) -> None:
        self.clock.plan(FENCE_PERIOD_MS, self._fence_expired)
        for node in list(self.running):
            self.fence_expired(node)

    def fence_expired(self, node: int) -> None:
        """Let an active controller fence the brokers whose sessions have expired, one after the other."""

        def again(more: Any) -> None:
            if more is True:
                self.fence_expired(node)

        if self.metadata[node].controller is not None:
            self.submit(node, lambda controller, now_ms: controller.fence_one_expired_broker(now_ms), again)

    def active(self) -> int | None:
        """The node with the active controller of the latest epoch."""
        nodes = [node for node, metadata in self.metadata.items() if metadata.controller is not None]
        return max(nodes, key=lambda node: self.metadata[node].epoch, default=None)

    # -- the log -----------------------------------------------------------------------------------------------------

    def on_started(self, node: int) -> None:
        metadata = self.metadata[node] = Metadata()
        start = self.disks[node].start
        if start:
            metadata.image, metadata.offset = self.history.load_snapshot(start), start

    def on_stopped(self, node: int) -> None:
        del self.metadata[node]

    def on_loaded(self, node: int, snapshot: SnapshotId) -> None:
        metadata = self.metadata[node]
        metadata.image, metadata.offset = self.history.load_snapshot(snapshot.end_offset), snapshot.end_offset

    def on_committed(self, node: int, high_watermark: int) -> None:
        metadata, disk = self.metadata[node], self.disks[node]
        if high_watermark <= metadata.offset:
            return
        entries = disk.read(metadata.offset, high_watermark - metadata.offset)
        assert len(entries) == high_watermark - metadata.offset, self.checks.fail("a batch is divided")
        metadata.image = apply(metadata.image, metadata.offset, entries)
        self.history.committed(metadata.offset, entries, metadata.image)
        metadata.offset = high_watermark
        self._answer(metadata, high_watermark)

    def on_stepped(self, node: int) -> None:
        metadata, running = self.metadata.get(node), self.running.get(node)
        if metadata is None or running is None:
            return
        core = running.core
        leads = core.is_leader
        if metadata.controller is not None and not (leads and core.epoch == metadata.epoch):
            self._deactivate(metadata)
        if leads and metadata.controller is None:
            # Later, because this step may be part of another one.
            self.clock.plan(0, partial(self._activate, node, metadata, core.epoch))

    def _activate(self, node: int, metadata: Metadata, epoch: int) -> None:
        if self.metadata.get(node) is not metadata or metadata.controller is not None:
            return
        core, disk = self.core(node), self.disks[node]
        if not core.is_leader or core.epoch != epoch:
            return
        metadata.epoch = epoch
        controller = Controller(
            node_id=node,
            cluster_id="simulated",
            rules=Rules(),
            random=self.random,
            settings=ControllerSettings(broker_session_timeout_ms=SESSION_TIMEOUT_MS),
        )
        entries = disk.read(metadata.offset, disk.end - metadata.offset)
        controller.load(apply(metadata.image, metadata.offset, entries), disk.end)
        controller.begin_sessions(self.running[node].local_ms(self.clock.now_ms))
        # No broker is connected yet. A heartbeat shows that it is, and else a new incarnation replaces it at once.
        controller.note_silent(lambda _: False)
        metadata.controller = controller
        if not controller.image.features:
            self._append_records(node, metadata, bootstrap_records())

    def _deactivate(self, metadata: Metadata) -> None:
        metadata.controller = None
        waiting, metadata.waiting = metadata.waiting, deque()
        for each in waiting:
            each.callback(KafkaError(ErrorCode.NOT_CONTROLLER, "This node ceased to lead"))


@lru_cache(maxsize=10_000)
def _decode(value: bytes) -> Message:
    return decode_metadata_record(value)


def decoded(entries: tuple[Entry, ...]) -> list[Message]:
    """The metadata records among entries of the log."""
    return [_decode(value.value) for _, value in entries if isinstance(value, Data)]


def apply(image: MetadataImage, offset: int, entries: tuple[Entry, ...]) -> MetadataImage:
    """The image after the entries, which begin at `offset`."""
    if not entries:
        return image
    delta = MetadataDelta(image)
    for record in decoded(entries):
        delta.replay(record)
    return delta.apply(offset + len(entries) - 1, entries[-1][0])
