"""InitProducerId (22), versions 0-5: a producer id, for idempotence or for transactions. KIP-98, KIP-360, KIP-730.

Ids come from blocks of 1000 that the controller allocates, so that no id is allocated twice. With a transactional id
the transaction coordinator fences earlier producers and aborts their open transaction. Version 6 (KIP-939) is not
served, as in Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed, allowed_by_type, allowed_on_cluster
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import InitProducerIdPorts


def handle(
    broker: InitProducerIdPorts, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Completion[InitProducerIdResponse]:
    """Return an id and an epoch. An idempotent producer that has an id also gets a new one: its sequence restarts."""
    if broker.security.authorizer is not None:
        refusal = _problem(broker, context, request)
        if refusal is not None:
            return _refuse(refusal)
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return broker.transactions.submit(request.transactional_id, request, api_version=context.api_version)

    def succeeded(producer_id: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)

    def failed(error: KafkaError) -> InitProducerIdResponse:
        return _refuse(error.code)

    return broker.producer_ids.next_id().then(succeeded).otherwise(failed)


def _problem(broker: InitProducerIdPorts, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode | None:
    """An idempotent producer needs IDEMPOTENT_WRITE of the cluster, or WRITE of any topic (KIP-679)."""
    name = request.transactional_id
    if name is not None:
        may_write = allowed(broker, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        return None if may_write else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    may_write = allowed_on_cluster(broker, context, Operation.IDEMPOTENT_WRITE, FILTERED) or allowed_by_type(
        broker, context, Operation.WRITE, ResourceType.TOPIC
    )
    return None if may_write else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _refuse(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)
