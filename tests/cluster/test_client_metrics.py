"""The metrics of a client in a cluster: it pushes to one broker, and to another one after that broker has stopped."""

from __future__ import annotations

from ottla.clients import Admin, Producer
from ottla.clients.admin import ConfigResource, NewTopic, ResourceType
from tests.clients.metrics_receiver import Receiver

from .conftest import Clusters

TOPIC, CLIENT = "pushed", "moving"
SENT = "kafka_client_producer_record_send_total"


def test_client_pushes_to_another_broker_when_its_broker_stops(clusters: Clusters) -> None:
    cluster = clusters(brokers=2, properties={"ottla.metrics.listener": "127.0.0.1:0"})
    first, second = (Receiver(cluster.nodes[node_id]) for node_id in (1, 2))
    subscription = {"metrics": "*", "interval.ms": "200", "match": f"client_id={CLIENT}"}
    with Admin(first.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={0: [2, 1]})])
        admin.alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, "all"): subscription})
    with Producer(bootstrap_servers=second.bootstrap, client_id=CLIENT) as producer:
        producer.send(TOPIC, b"v").result(30)
        # The second broker reads the subscription in the metadata.
        cluster.wait_until(lambda: second.series(CLIENT).get(SENT) == 1)
        assert first.series(CLIENT) == {}
        instance_id = producer.client_instance_id()
        cluster.stop_node(2)
        producer.send(TOPIC, b"v").result(30)
        cluster.wait_until(lambda: first.series(CLIENT).get(SENT) == 2)
        assert producer.client_instance_id() == instance_id
        assert f'client_instance_id="{instance_id}"' in first.scrape()
        # Ids of subscriptions are equal on all brokers, so no push is refused.
        lines = first.scrape().splitlines()
        pushes = [line.split(" ")[0] for line in lines if line.startswith("ottla_client_telemetry_pushes_total")]
        assert pushes == ['ottla_client_telemetry_pushes_total{error="NONE"}']
    cluster.assert_no_traceback()
