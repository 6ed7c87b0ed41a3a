"""EndQuorumEpoch (54), versions 0-1: a leader resigns. KIP-595. Served on the controller's listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest


def handle(broker: HasMetadata, context: RequestContext, request: EndQuorumEpochRequest) -> Completion[Message]:
    """Prepare the next election."""
    return broker.metadata.quorum.receive(request, context.listener)
