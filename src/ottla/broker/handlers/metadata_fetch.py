"""Fetch (1), versions 4-18, on the controller's listeners: a replica fetches the metadata log. KIP-595.

The controller's listeners serve only the metadata partition; another one gets INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.network.connection import FETCHED_BY_REPLICA

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.fetch import FetchRequest


def handle(broker: HasMetadata, context: RequestContext, request: FetchRequest) -> Completion[Message]:
    """Respond with records, or wait for them."""
    # Each version has one of the two fields; the other field is -1.
    if max(request.replica_id, request.replica_state.replica_id) >= 0:
        context.connection.state[FETCHED_BY_REPLICA] = True
    return broker.metadata.quorum.receive(request, context.listener)
