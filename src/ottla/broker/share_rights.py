"""Which topics a member of a share group may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareLeaderPorts
    from ottla.common.ids import Uuid


def may_read(broker: ShareLeaderPorts, context: RequestContext) -> Callable[[Uuid], bool]:
    """Return the function that says whether the client may read a topic; unknown topics have another error."""
    if broker.security.authorizer is None:
        return lambda _topic_id: True
    decisions: dict[Uuid, bool] = {}

    def decide(topic_id: Uuid) -> bool:
        if topic_id not in decisions:
            topic = broker.metadata.image.topics_by_id.get(topic_id)
            decisions[topic_id] = topic is None or allowed(
                broker, context, Operation.READ, ResourceType.TOPIC, topic.name
            )
        return decisions[topic_id]

    return decide
