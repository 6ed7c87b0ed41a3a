"""UnregisterBroker (64), version 0: forget a broker that is gone for good. KIP-631."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: UnregisterBrokerRequest
) -> Completion[UnregisterBrokerResponse]:
    """Unregister the broker: BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST for this one."""

    def failed(error: KafkaError) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)

    return answer(
        broker.metadata.submit(lambda controller: controller.unregister_broker(request.broker_id)), same, failed
    )
