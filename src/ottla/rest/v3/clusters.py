"""The cluster and its brokers."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from ottla.clients.admin.model import BrokerDescription, ClusterDescription
from ottla.rest.calls import Call, json_response
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import Links, cluster_of, existing, integer, not_found

_CLUSTER: Final = "KafkaCluster"
_BROKER: Final = "KafkaBroker"
_REPLICA: Final = "KafkaReplica"


async def list_clusters(call: Call) -> Response:
    """GET /clusters: the one cluster that the proxy serves."""
    cluster, links = await cluster_of(call)
    return links.collection(_CLUSTER, links.clusters, [_cluster(cluster, links)])


async def get_cluster(call: Call) -> Response:
    """GET /clusters/CLUSTER."""
    cluster, links = await cluster_of(call)
    return json_response(_cluster(cluster, links))


async def list_brokers(call: Call) -> Response:
    """GET /clusters/CLUSTER/brokers."""
    cluster, links = await cluster_of(call)
    return links.collection(_BROKER, links.url("brokers"), (_broker(broker, links) for broker in cluster.brokers))


async def get_broker(call: Call) -> Response:
    """GET /clusters/CLUSTER/brokers/BROKER."""
    cluster, links = await cluster_of(call)
    return json_response(_broker(broker_of(call, cluster), links))


async def list_replicas(call: Call) -> Response:
    """GET /clusters/CLUSTER/brokers/BROKER/partition-replicas: the replicas on a broker."""
    cluster, links = await cluster_of(call)
    broker = broker_of(call, cluster).node_id
    admin = call.clients.admin
    names = [topic.name for topic in await admin.list_topics(include_internal=True)]
    topics = await existing(admin.describe_topics(names)) if names else {}
    data = [
        replica(links, name, partition, broker)
        for name, topic in sorted(topics.items())
        for partition in topic.partitions
        if broker in partition.replicas
    ]
    return links.collection(_REPLICA, links.url("brokers", broker, "partition-replicas"), data)


def replica(links: Links, topic: str, partition: Any, broker: int) -> dict[str, Any]:
    """Return a replica of a partition on a broker."""
    number = partition.partition
    fields = {
        "topic_name": topic,
        "partition_id": number,
        "broker_id": broker,
        "is_leader": partition.leader == broker,
        "is_in_sync": broker in partition.isr,
        "broker": links.related("brokers", broker),
    }
    name = links.name("topic", topic, "partition", number, "replica", broker)
    return links.resource(_REPLICA, links.url("topics", topic, "partitions", number, "replicas", broker), name, fields)


def broker_of(call: Call, cluster: ClusterDescription) -> BrokerDescription:
    """Return the broker in the path. Raises HttpError."""
    number = integer(call.path("broker"), "Broker")
    for broker in cluster.brokers:
        if broker.node_id == number:
            return broker
    raise not_found(f"Broker {number} cannot be found.")


def _cluster(cluster: ClusterDescription, links: Links) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if cluster.controller is not None:
        fields["controller"] = links.related("brokers", cluster.controller)
    fields |= {
        "acls": links.related("acls"),
        "brokers": links.related("brokers"),
        "broker_configs": links.related("broker-configs"),
        "consumer_groups": links.related("consumer-groups"),
        "topics": links.related("topics"),
        "partition_reassignments": links.related("topics", "-", "partitions", "-", "reassignment"),
    }
    return links.resource(_CLUSTER, links.url(), links.name(), fields)


def _broker(broker: BrokerDescription, links: Links) -> dict[str, Any]:
    fields = {
        "broker_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "configs": links.related("brokers", broker.node_id, "configs"),
        "partition_replicas": links.related("brokers", broker.node_id, "partition-replicas"),
    }
    return links.resource(_BROKER, links.url("brokers", broker.node_id), links.name("broker", broker.node_id), fields)


OPERATIONS: Final = (
    Operation("GET", "/clusters", list_clusters, "List the clusters", f"{_CLUSTER}List"),
    Operation("GET", "/clusters/{cluster}", get_cluster, "Get the cluster", _CLUSTER),
    Operation("GET", "/clusters/{cluster}/brokers", list_brokers, "List the brokers", f"{_BROKER}List"),
    Operation("GET", "/clusters/{cluster}/brokers/{broker}", get_broker, "Get a broker", _BROKER),
    Operation(
        "GET", "/clusters/{cluster}/brokers/{broker}/partition-replicas", list_replicas,
        "List the replicas on a broker", f"{_REPLICA}List",
    ),
)  # fmt: skip
