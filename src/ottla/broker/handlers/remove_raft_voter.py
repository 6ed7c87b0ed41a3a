"""RemoveRaftVoter (81), version 0: remove a voter from the quorum. KIP-853.

Only the leader of the quorum changes the voters: brokers forward the request to it, and other controllers respond with
NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


def handle(broker: HasMetadata, context: RequestContext, request: RemoveRaftVoterRequest) -> Completion[Message]:
    """Respond when the change is committed."""
    return broker.metadata.quorum.receive(request, context.listener)
