"""The share groups of a node: share coordinator, share partitions that it leads, share sessions. KIP-932."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.coordination.peers.share_states import ShareStates
from ottla.coordination.shards import CoordinatorOptions
from ottla.coordination.shares.coordinator import ShareCoordinator
from ottla.coordination.shares.fetching import ShareParts, ShareRequests
from ottla.coordination.shares.partitions import SharedPartitions
from ottla.coordination.shares.settings import ShareSettings, share_settings
from ottla.coordinators.share.events import DeleteState, InitializeState, Result
from ottla.coordinators.share.sessions import SessionKey, ShareSessions
from ottla.coordinators.share.shard import ShareCoordinatorConfig
from ottla.metadata.image import GROUP
from ottla.records import Codec

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.config import BrokerConfig
    from ottla.coordination.internal_topic import InternalTopic
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.coordination.ports import CoordinatorPorts
    from ottla.coordination.shares.coordinator import Request


MOST_CACHED_SETTINGS = 1_000


class ShareGroups:
    """The parts of a node for share groups; `topic` is `__share_group_state`."""

    def __init__(self, ports: CoordinatorPorts, topic: InternalTopic, peers: Callable[[], PeerRequests]) -> None:
        self._ports = ports
        self._settings: dict[str, tuple[Mapping[str, str], BrokerConfig, ShareSettings]] = {}
        config, clock = ports.settings.static, ports.clock
        call_later, run = ports.schedulers.call_later, ports.schedulers.worker.submit
        self.coordinator = ShareCoordinator(
            ShareCoordinatorConfig(
                update_records_per_snapshot=config.int("share.coordinator.snapshot.update.records.per.snapshot")
            ),
            topic,
            self._has_partition,
            clock=clock,
            call_later=call_later,
            options=CoordinatorOptions(
                codec=Codec(config.int("share.coordinator.state.topic.compression.codec")),
                commit_timeout_ms=config.int("share.coordinator.write.timeout.ms"),
                node_id=ports.node_id,
            ),
        )
        self.states = ShareStates(self.coordinator, ports.node_id, lambda: peers().share_states, call_later)
        self.partitions = SharedPartitions(
            ports.partitions,
            self.states,
            self.settings,
            run=run,
            clock=clock,
            call_later=call_later,
        )
        self.sessions = ShareSessions(config.int("group.share.max.share.sessions"))
        parts = ShareParts(self.partitions, self.sessions, self.settings)
        max_bytes = ports.settings.current.int("fetch.max.bytes")
        self.requests = ShareRequests(parts, clock, call_later, max_bytes, run)

    def settings(self, group_id: str) -> ShareSettings:
        """The present settings of a share group."""
        own, broker = self._ports.metadata.image.config(GROUP, group_id), self._ports.settings.current
        cached = self._settings.get(group_id)
        # Changed settings are another object.
        if cached is not None and cached[0] is own and cached[1] is broker:
            return cached[2]
        if len(self._settings) >= MOST_CACHED_SETTINGS:
            self._settings.clear()
        settings = share_settings(own, broker)
        self._settings[group_id] = own, broker, settings
        return settings

    def prepare(self) -> Completion[None]:
        """Create `__share_group_state` if it does not exist; fails with COORDINATOR_NOT_AVAILABLE (retriable)."""
        return self.coordinator.shards.topic.ensure()

    def submit(self, request: Request) -> Completion[Result]:
        """Pass a request to the share coordinator of this node; never fails.

        State that it replaces is no longer used here.
        """
        self._drop_replaced(request)
        return self.coordinator.submit(request)

    def ask(self, request: Request) -> Completion[Result]:
        """Pass a request to the share coordinator of any node; never fails. See `submit`."""
        self._drop_replaced(request)
        return self.states.submit(request)

    def _drop_replaced(self, request: Request) -> None:
        if isinstance(request, DeleteState) or (isinstance(request, InitializeState) and not request.keeps_existing):
            self.partitions.drop(request.key)

    def initialize(self, request: InitializeState) -> Completion[Result]:
        """Begin to share a partition, or reset it; call `prepare` first."""
        return self.ask(request)

    def delete(self, request: DeleteState) -> Completion[Result]:
        """Delete the state of a share partition. Without `__share_group_state` there is none."""
        if not self.coordinator.shards.topic.partition_count():
            return Completion.of(Result())
        return self.ask(request)

    def release_member(self, group_id: str, member_id: str) -> None:
        """End the session of a member that its group removed, and release its records."""
        self.requests.end_member(SessionKey(group_id, member_id))

    def _has_partition(self, topic_id: Uuid, index: int) -> bool:
        topic = self._ports.metadata.image.topics_by_id.get(topic_id)
        return topic is not None and 0 <= index < len(topic.partitions)
