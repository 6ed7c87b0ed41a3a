"""The parts of a simulated quorum: faults and setup, running nodes, messages in flight."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from ottla.raft.core import RaftCore
from ottla.raft.messages import Request, Response
from ottla.raft.values import SnapshotId
from tests.simulation.world.quorum_disk import Entry, Snapshot


@dataclass(frozen=True)
class Faults:
    """The faults of the network and the machines; `NONE` for a healthy quorum."""

    loss: float = 0.05
    duplication: float = 0.03
    latency_ms: tuple[int, int] = (1, 20)
    drift: float = 0.1
    crash_inside_step: float = 0.0005
    slow_flushes: float = 0.2
    old_versions: float = 0.02
    """How often a message has an old version, which lacks directories and high watermarks."""


NONE = Faults(
    loss=0.0, duplication=0.0, latency_ms=(1, 5), drift=0.0, crash_inside_step=0.0, slow_flushes=0.0, old_versions=0.0
)


class CrashError(Exception):
    """The node stops between two effects."""


@dataclass(eq=False)
class Running:
    """A running node. Messages to an earlier run of the node are lost."""

    core: RaftCore
    offset_ms: int
    rate: float
    paused_until_ms: int = 0
    """Until then, on the world's clock, the process does nothing, as after SIGSTOP; its messages wait."""

    def local_ms(self, now_ms: int) -> int:
        """The node's monotonic clock."""
        return self.offset_ms + int(now_ms * self.rate)

    @property
    def deadline_ms(self) -> int:
        """When the core's deadline has passed, on the world's clock."""
        return max(self.paused_until_ms, ceil((self.core.deadline_ms - self.offset_ms + 1) / self.rate))


@dataclass(frozen=True)
class Token:
    """A request in flight: the run that sent it, and its id there."""

    source: Running | None
    node: int
    request_id: int
    request: Request
    version: int = 0


@dataclass
class Fetched:
    """The data that the shell adds to a response: records, or a snapshot of which a part is sent."""

    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None


NOTHING = Fetched()


@dataclass
class Partial:
    """A snapshot that a node is fetching."""

    snapshot_id: SnapshotId
    received: int = 0
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class Setup:
    """The quorum at its start: nodes 1 to `voters` vote, the others observe."""

    voters: int
    observers: int = 0
    kraft_version: int = 1
    auto_join: bool = False
    wire: bool = False
    """Whether messages are passed as Kafka's bytes."""


@dataclass
class Answers:
    """Responses to the requests of a test, by its tokens."""

    received: dict[int, Response] = field(default_factory=dict)
    count: int = 0
