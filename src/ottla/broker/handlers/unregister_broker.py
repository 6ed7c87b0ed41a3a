"""UnregisterBroker (64), version 0: remove a broker from the cluster's metadata. KIP-631."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: UnregisterBrokerRequest
) -> Completion[UnregisterBrokerResponse]:
    """Unregister a broker. Its error is BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST for this broker."""

    def failed(error: KafkaError) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)

    return broker.metadata.submit(lambda controller: controller.unregister_broker(request.broker_id)).otherwise(failed)
