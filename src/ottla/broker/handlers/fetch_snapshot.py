"""FetchSnapshot (59), versions 0-1: a replica fetches a part of a metadata snapshot. KIP-630.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.common.completion import Completion
    from ottla.protocol.message import Message
    from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest


def handle(broker: HasMetadata, context: RequestContext, request: FetchSnapshotRequest) -> Completion[Message]:
    """Respond with the bytes."""
    return broker.metadata.quorum.receive(request, context.listener)
