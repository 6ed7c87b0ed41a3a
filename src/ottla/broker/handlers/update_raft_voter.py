"""UpdateRaftVoter (82), version 0: a voter reports its endpoints and versions. KIP-853.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest


def handle(broker: HasMetadata, context: RequestContext, request: UpdateRaftVoterRequest) -> Completion[Message]:
    """Respond when the update is committed."""
    return broker.metadata.quorum.receive(request, context.listener)
