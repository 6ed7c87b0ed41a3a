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
    assert len(store.clients[ID].values) == 3
    # A known series is still updated, and removed values leave their place to others.
    store.add(begun(store), ID, Point("m", 9, (("n", "0"),)))
    assert 9 in {value for _, _, value in store.rows()}
    store.expire(200_000)
    client = begun(store, now_ms=200_000)
    store.add(client, ID, Point("m", 1))
    assert len(list(store.rows())) == 1


def test_large_clients_cannot_hide_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 12)
    store = SeriesStore()

    def push(number: int, count: int) -> None:
        instance_id = bytes([number]) * 16
        client = begun(store, instance_id)
        for each in range(count):
            store.add(client, instance_id, Point("m", 1, (("n", str(each)),)))
        store.end(client, instance_id)

    def counts() -> list[int]:
        return [len(client.values) for client in store.clients.values()]

    push(0, 12)
    push(1, 2)
    assert counts() == [6, 2]
    for number in (2, 3):
        push(number, 12)
    # Each client has its share at least; the first values of a client stay.
    assert counts() == [3, 2, 4, 3]
    assert sum(counts()) == 12
    dropped = store.dropped
    push(0, 12)
    push(1, 2)
    assert counts() == [3, 2, 4, 3]
    assert store.dropped == dropped + 9
    first = [labels for _, labels, _ in store.rows() if 'n="0"' in labels]
    assert len(first) == 4


def pushed(store: SeriesStore, user: str, number: int, series_count: int = 1, now_ms: int = 0) -> None:
    """Push the values of a client of a user."""
    instance_id = user.encode() * 14 + number.to_bytes(2, "big")
    client = store.begin(instance_id, ABOUT._replace(principal=user), now_ms, 100_000)
    for each in range(series_count):
        store.add(client, instance_id, Point("m", 1, (("n", str(each)),)))
    store.end(client, instance_id)


def of_users(store: SeriesStore) -> dict[str, dict[int, int]]:
    """The number of series of each client, by user."""
    found: dict[str, dict[int, int]] = {}
    for instance_id, client in store.clients.items():
        found.setdefault(client.labels.principal, {})[instance_id[-1]] = len(client.values)
    return found


def test_user_with_many_clients_cannot_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_CLIENTS", 6)
    store = SeriesStore()
    for number in range(8):
        pushed(store, "a", number, now_ms=number)
    assert {user: list(clients) for user, clients in of_users(store).items()} == {"a": [0, 1, 2, 3, 4, 5]}
    assert store.dropped == 2
    pushed(store, "a", 0, now_ms=10)
    for number in range(4):
        pushed(store, "b", number, now_ms=11)
    pushed(store, "a", 6, now_ms=12)
    # The clients that pushed first made room.
    assert {user: list(clients) for user, clients in of_users(store).items()} == {"a": [0, 4, 5], "b": [0, 1, 2]}
    assert store.dropped == 7
    pushed(store, "c", 0, now_ms=13)
    assert {user: len(clients) for user, clients in of_users(store).items()} == {"a": 2, "b": 3, "c": 1}
    store.expire(200_000)
    assert not list(store.rows())
    for number in range(6):
        pushed(store, "b", number, now_ms=200_000)
    assert len(store.clients) == 6


def test_user_with_many_clients_leaves_others_their_share_of_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 12)
    store = SeriesStore()
    for number in range(12):
        pushed(store, "a", number)
    pushed(store, "b", 0, 8)
    found = of_users(store)
    assert found["b"] == {0: 6}
    assert sum(found["a"].values()) == len(found["a"]) == 6
    assert store.dropped == 8
    pushed(store, "b", 1, 8)
    assert of_users(store)["b"] == {0: 3, 1: 3}
    pushed(store, "a", 20)
    assert sum(of_users(store)["a"].values()) == 6


def test_client_of_another_user_counts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 4)
    store = SeriesStore()
    for user in "ab":
        client = store.begin(ID, ABOUT._replace(principal=user), 0, 100_000)
        for number in range(3):
            store.add(client, ID, Point("m", 1, (("n", str(number)),)))
    pushed(store, "a", 1, 3)
    assert {user: list(clients.values()) for user, clients in of_users(store).items()} == {"b": [2], "a": [2]}


def test_client_is_stored_with_its_first_value_and_until_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_CLIENTS", 1)
    store = SeriesStore()
    store.end(begun(store), ID)
    store.add(begun(store), ID, Point("not a name", 1))
    store.add(begun(store), ID, Point("g", math.nan))
    assert not store.clients
    client = begun(store)
    store.add(client, ID, Point("g", 1))
    store.end(client, ID)
    store.add(begun(store, OTHER), OTHER, Point("g", 1))
    assert list(store.clients) == [ID]
    assert store.dropped == 2
    store.end(begun(store), ID)
    assert not store.clients
    store.add(begun(store, OTHER), OTHER, Point("g", 1))
    assert list(store.clients) == [OTHER]


def test_value_that_is_removed_leaves_nothing() -> None:
    """Memory would grow with each push of other labels whose value is deleted again."""
    store = SeriesStore()
    client = begun(store)
    for number in range(3):
        for value in (1, math.nan):
            store.add(client, ID, Point("g", value, (("n", str(number)),)))
            store.add(client, ID, Point("d", 1, (("n", str(number)),), is_delta=True))
            store.add(client, ID, Point("d", math.nan, (("n", str(number)),)))
    assert not any((client.values, client.pushed, client.deltas, client.names, store.counters))
    store.add(client, ID, Point("g", 1))
    store.end(client, ID)
    assert not client.pushed


def test_name_is_free_when_no_client_has_it_and_one_client_has_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_NAMES", 3)
    monkeypatch.setattr(series, "MOST_NAMES_OF_CLIENT", 2)
    store = SeriesStore()
    first, other = begun(store), begun(store, OTHER)
    for name in "abc":
        store.add(first, ID, Point(name, 1))
    for name in "acd":
        store.add(other, OTHER, Point(name, 1))
    assert store.counters.keys() == {"kafka_client_a", "kafka_client_b", "kafka_client_c"}
    assert store.dropped == 2
    # A client that pushes other names releases its own.
    client = begun(store)
    store.add(client, ID, Point("a", 1))
    store.end(client, ID)
    assert store.counters.keys() == {"kafka_client_a", "kafka_client_c"}
    store.remove(OTHER)
    assert store.counters.keys() == {"kafka_client_a"}


def test_labels_of_one_series_are_bounded_together() -> None:
    store = SeriesStore()
    client = begun(store)
    for count in (5, 10):
        store.add(client, ID, Point("m", 1, tuple((f"l{number}", "x" * 256) for number in range(count))))
    assert len(list(store.rows())) == 1
    assert store.dropped == 1


def test_client_that_expires_during_its_push_is_stored_again() -> None:
    store = SeriesStore()
    client = begun(store)
    store.add(client, ID, Point("a", 1))
    store.expire(200_000)
    store.add(client, ID, Point("b", 1))
    store.end(client, ID)
    assert [name for name, _, _ in store.rows()] == ["kafka_client_b"]
    store.remove(ID)
    assert not store.counters


def test_pushes_look_for_expired_clients_once_a_second() -> None:
    store = SeriesStore()
    store.add(begun(store), ID, Point("m", 1))
    begun(store, OTHER, 99_500)
    begun(store, OTHER, 100_400)
    assert list(store.clients) == [ID]
    begun(store, OTHER, 100_500)
    assert not store.clients


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
