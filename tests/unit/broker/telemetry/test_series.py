"""The pushed values: names, labels, deltas, and the limits on what a client can store."""

from __future__ import annotations

import math

import pytest

from ottla.broker.metrics.families import FAMILIES
from ottla.broker.telemetry import series
from ottla.broker.telemetry.series import PREFIX, ClientLabels, ClientSeries, SeriesStore
from ottla.protocol.otlp import Point

ABOUT = ClientLabels("c", "librdkafka", "2", "127.0.0.1", "User:ANONYMOUS")
ID, OTHER = bytes(range(16)), bytes(range(1, 17))
OWN = 'client_id="c",client_instance_id="AAECAwQFBgcICQoLDA0ODw"'


def begun(store: SeriesStore, instance_id: bytes = ID, now_ms: int = 0) -> ClientSeries:
    return store.begin(instance_id, ABOUT, now_ms, 100_000)


def stored(*points: Point) -> list[tuple[str, str, float]]:
    store = SeriesStore()
    client = begun(store)
    for point in points:
        store.add(client, ID, point)
    return list(store.rows())


def test_name_and_labels_have_the_syntax_of_prometheus() -> None:
    point = Point("org.apache.kafka.producer.node.request.latency.avg", 1.5, (("node_id", "1"), ("a.b", 'x"\n\\')))
    labels = f'{{{OWN},node_id="1",a_b="x\\"\\n\\\\"}}'
    assert stored(point) == [("kafka_client_producer_node_request_latency_avg", labels, 1.5)]


def test_client_cannot_replace_the_labels_of_the_broker() -> None:
    attributes = (("client_id", "forged"), ("client_instance_id", "forged"), ("client.id", "forged"), ("__name__", "x"))
    ((_, labels, _),) = stored(Point("m", 1, attributes))
    assert labels == f'{{{OWN},name__="x"}}'


def test_client_cannot_replace_a_metric_of_the_node() -> None:
    assert not [name for name in FAMILIES if name.startswith(PREFIX)]
    ((name, _, _),) = stored(Point("process_open_fds", 1))
    assert name == "kafka_client_process_open_fds"


@pytest.mark.parametrize("name", ["", "1a", "a b", "a{", "a\n", "ä", "a" * 201])
def test_name_that_is_not_one_is_dropped(name: str) -> None:
    store = SeriesStore()
    store.add(begun(store), ID, Point(name, 1))
    assert (list(store.rows()), store.dropped) == ([], 1)


def test_values_replace_each_other_and_differences_add_up() -> None:
    delta = Point("d", 2, is_counter=True, is_delta=True)
    assert [value for _, _, value in stored(Point("g", 1), Point("g", 3), delta, delta)] == [3, 4]


def test_values_that_a_push_lacks_are_removed_but_not_sums_of_differences() -> None:
    store = SeriesStore()
    for points in (
        [Point("g", 1, (("member_id", ""),)), Point("d", 2, is_counter=True, is_delta=True)],
        [Point("g", 1, (("member_id", "m"),))],
    ):
        client = begun(store)
        for point in points:
            store.add(client, ID, point)
        store.end(client, ID)
    assert sorted((name, 'member_id="m"' in labels) for name, labels, _ in store.rows()) == [
        ("kafka_client_d", False),
        ("kafka_client_g", True),
    ]


def test_gauge_without_a_number_has_no_sample() -> None:
    assert stored(Point("g", 1), Point("g", math.nan)) == []
    assert len(stored(Point("g", math.inf), Point("g", 1))) == 1


def test_series_of_a_client_and_of_the_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SERIES_OF_CLIENT", 3)
    monkeypatch.setattr(series, "MOST_SERIES", 5)
    store = SeriesStore()
    for instance_id in (ID, OTHER):
        client = begun(store, instance_id)
        for number in range(4):
            store.add(client, instance_id, Point("m", 1, (("n", str(number)),)))
    assert len(list(store.rows())) == 5
    assert store.dropped == 3
    # A known series is still updated, and removed values leave their place to others.
    store.add(begun(store), ID, Point("m", 9, (("n", "0"),)))
    assert 9 in {value for _, _, value in store.rows()}
    store.expire(200_000)
    client = begun(store, now_ms=200_000)
    store.add(client, ID, Point("m", 1))
    assert len(list(store.rows())) == 1


def test_names_and_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_NAMES", 2)
    store = SeriesStore()
    client = begun(store)
    for name in "abca":
        store.add(client, ID, Point(name, 1, (("long", "x" * 10_000),)))
    assert {name for name, _, _ in store.rows()} == {"kafka_client_a", "kafka_client_b"}
    assert store.dropped == 1
    assert max(len(labels) for _, labels, _ in store.rows()) < 500


def test_values_expire_after_the_last_push_and_soon_after_a_disconnection() -> None:
    store = SeriesStore()
    store.add(begun(store), ID, Point("m", 1))
    store.expire(99_999)
    assert list(store.rows())
    store.disconnected(ID, 10_000)
    store.expire(69_999)
    assert list(store.rows())
    store.expire(70_000)
    assert not list(store.rows())
