"""The arguments of `MetadataShell.open`: which node it is on, and how it may use the process."""

from __future__ import annotations

from collections.abc import Callable

from ottla.cluster.metadata.snapshotting import MetadataLogSettings, RunInThread
from ottla.cluster.quorum.transport import QuorumTransport
from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.common.system_random import SystemRandom
from ottla.common.timers import CallLater
from ottla.common.values import value
from ottla.common.work import Worker
from ottla.controller import ControllerSettings
from ottla.controller.state import RandomSource
from ottla.log.files import Files
from ottla.raft import QuorumConfig


@value
class NodeIdentity:
    """A node, its cluster, and the log directory of its metadata."""

    node_id: int
    cluster_id: str
    directory_id: Uuid = ZERO_UUID


@value
class MetadataOptions:
    """Settings of the metadata log and its controller, and the parts of the process that they use."""

    settings: MetadataLogSettings = MetadataLogSettings()
    controller_settings: ControllerSettings | None = None
    files: Files = Files()
    random: RandomSource = SystemRandom()
    run_in_thread: RunInThread | None = None
    """Runs each fsync in a thread; without it, each fsync blocks."""
    on_failure: Callable[[KafkaError], None] | None = None
    """Called once if the disk fails."""
    quorum: QuorumConfig | None = None
    """The quorum that this node belongs to; without it, this node is the only voter."""
    transport: QuorumTransport | None = None
    """The way to the other nodes of the quorum; without it, they are not reached."""
    call_later: CallLater | None = None
    """The timer of elections and fetches; without it, `MetadataShell.tick` has to be called more often."""
    worker: Worker | None = None
    """Decides long operations in slices; without it, each operation is decided at once."""
