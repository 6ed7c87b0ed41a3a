"""ElectLeaders (43), versions 0-2: preferred and unclean elections. KIP-183, KIP-460."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> Completion[ElectLeadersResponse]:
    """Elect leaders of the named partitions, or of all."""

    def failed(error: KafkaError) -> ElectLeadersResponse:
        results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
        return ElectLeadersResponse(error_code=error.code, replica_election_results=results)

    return answer(broker.metadata.submit(lambda controller: controller.elect_leaders(request)), same, failed)
