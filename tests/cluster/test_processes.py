"""The fixture itself: nodes are formatted, started, killed, paused and started again."""

from __future__ import annotations

from ottla.clients import Consumer, Producer

from .conftest import Clusters


def test_node_survives_a_kill_and_a_pause(clusters: Clusters) -> None:
    cluster = clusters(brokers=1)
    assert cluster.active_controller() == 1
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("topic", b"before").result(10)
        assert (cluster.leader("topic"), cluster.in_sync("topic")) == (1, [1])
        cluster.kill(1)
        assert cluster.running == []
        cluster.start_node(1)
        cluster.pause(1)
        sent = producer.send("topic", b"after")
        cluster.resume(1)
        sent.result(10)
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe(["topic"])
        values: list[bytes | None] = []
        while len(values) < 2:
            batch = consumer.poll(10)
            assert batch, "no records within 10 s"
            values += [record.value for record in batch]
    assert values == [b"before", b"after"]
    assert cluster.stop() == {1: 0}
    cluster.assert_no_traceback()


def test_voters_may_be_in_the_log(clusters: Clusters) -> None:
    cluster = clusters(brokers=1, dynamic=True)
    assert cluster.active_controller() == 1
    cluster.kill(1)
    cluster.start_node(1)
    assert cluster.stop_node(1) == 0
