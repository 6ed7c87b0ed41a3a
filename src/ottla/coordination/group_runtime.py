"""The group coordinator of this node: the shards of `__consumer_offsets`, and the requests that concern all of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.common.clock import Clock
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.common.timers import CallLater
from ottla.coordination.internal_topic import InternalTopic
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.coordination.shards import Coordinator, CoordinatorOptions
from ottla.coordinators.events import Effects, Moment, ParkedEffect
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.errors import error_response
from ottla.coordinators.group.events import ListGroups, TopicsDeleted
from ottla.coordinators.group.shard import GroupShard
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage

if TYPE_CHECKING:
    from ottla.coordination.shares.effects import ShareEffects
    from ottla.protocol.messages.list_groups import ListedGroup

R = TypeVar("R")

logger = logging.getLogger(__name__)


class GroupPorts(NamedTuple):
    """The ports of the group coordinator, besides its log. `share_effects` may be omitted without share groups."""

    topic_id: Callable[[str], Uuid | None]
    """Returns the id of any topic, None if it does not exist."""
    share_effects: ShareEffects | None = None
    # Looked up at each call: simulations replace it.
    random_bytes: Callable[[int], bytes] = lambda count: os.urandom(count)


class GroupRuntime:
    """The group coordinator."""

    def __init__(
        self,
        config: GroupConfig,
        topic: InternalTopic,
        ports: GroupPorts,
        *,
        clock: Clock,
        call_later: CallLater,
        options: CoordinatorOptions,
    ) -> None:
        self.config = config
        self._ports = ports
        self._image = EMPTY_IMAGE
        coordinator = Coordinator(
            name="GroupCoordinator",
            logger=logging.getLogger("ottla.coordinators.group"),
            new_shard=lambda _index, _epoch: self._new_shard(),
            loaded=self._loaded,
            error_response=error_response,
            execute=self._execute,
        )
        self.shards = CoordinatorRuntime(coordinator, topic, clock=clock, call_later=call_later, options=options)
        self.submit = self.shards.submit
        """Passes a request to the shard of a group; completes with the response and never fails."""

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> Slices[tuple[ErrorCode, list[ListedGroup]]]:
        """Return (error, groups) over the shards of this node. One shard's error (it may be loading) is all shards'."""
        return (yield from self.shards.collect(ListGroups(states, types)))

    def topics_deleted(self, names: Iterable[str]) -> Slices[None]:
        """Delete the offsets of deleted topics. A shard that is loading compares its topics when it has loaded."""
        event = TopicsDeleted(frozenset(names))
        for index in self.shards.topic.led():
            is_left = True
            while is_left:
                yield
                is_left = (yield from result_of(self.shards.ask(index, event))) is True

    def publish(self, image: MetadataImage, *, has_new_topics: bool = True) -> None:
        """Pass the cluster's metadata to all shards."""
        self._image = image
        for shard in self.shards.shards():
            shard.metadata_changed(image, has_new_topics=has_new_topics)

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.config, self._ports.random_bytes)
        shard.metadata_changed(self._image)
        return shard

    def _execute(self, index: int, shard: GroupShard, effect: ParkedEffect) -> None:
        assert self._ports.share_effects is not None, "a share group without its effects"
        self._ports.share_effects.execute(effect, lambda outcome: self.shards.resume(index, shard, outcome))

    def _loaded(self, index: int, shard: GroupShard, now: Moment) -> Effects:
        if shard.unserved:
            text = "%s-%d has %d groups of unsupported types, which are retained"
            logger.info(text, self.shards.topic.name, index, len(shard.unserved))
        return shard.loaded(now, self._ports.topic_id)
