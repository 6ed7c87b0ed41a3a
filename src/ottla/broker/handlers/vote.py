"""Vote (52), versions 0-2: a candidate asks this voter for its vote or a pre-vote. KIP-595, KIP-996.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.vote import VoteRequest


def handle(broker: HasMetadata, context: RequestContext, request: VoteRequest) -> Completion[Message]:
    """Vote, or not, when the vote is on disk."""
    return broker.metadata.quorum.receive(request, context.listener)
