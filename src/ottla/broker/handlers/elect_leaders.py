"""ElectLeaders (43), versions 0-2: preferred and unclean elections. KIP-183, KIP-460."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(broker: HasMetadata, context: RequestContext, request: ElectLeadersRequest) -> Slices[ElectLeadersResponse]:
    """Elect leaders of the named partitions, or of all."""
    try:
        return (yield from result_of(broker.metadata.submit(lambda controller: controller.elect_leaders(request))))
    except KafkaError as error:
        results = []
        for topic in request.topic_partitions or ():
            rows = []
            for index in topic.partitions:
                rows.append(PartitionResult(partition_id=index, error_code=error.code, error_message=error.message))
                yield
            results.append(ReplicaElectionResult(topic=topic.topic, partition_result=rows))
            yield
        return ElectLeadersResponse(error_code=error.code, replica_election_results=results)
