"""Which subscriptions match a client, and what it is asked for."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.subscriptions import Assigned, assign, parse

CLIENT = {
    "client_id": "orders-7",
    "client_instance_id": "AAECAwQFBgcICQoLDA0ODw",
    "client_software_name": "librdkafka",
    "client_software_version": None,
    "client_source_address": "10.0.0.1",
    "client_source_port": "50000",
}
ID = bytes(range(16))


def assigned(*configs: dict[str, str]) -> Assigned:
    return assign(parse({str(number): each for number, each in enumerate(configs)}), CLIENT, ID)


def test_client_without_a_subscription_has_no_metrics_and_the_default_interval() -> None:
    assert assigned()[1:] == ((), 300_000)


def test_subscriptions_add_up_at_the_shortest_interval() -> None:
    found = assigned(
        {"metrics": "b,a", "interval.ms": "5000"}, {"metrics": "a,c", "interval.ms": "100"}, {"metrics": "d"}
    )
    assert found[1:] == (("a", "b", "c", "d"), 100)
    assert assigned({"metrics": "a,*"}, {"metrics": "b"}).metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("", True),
        ("client_id=orders-.*", True),
        ("client_id=orders", False),
        ("client_id=.*,client_software_name=librdkafka", True),
        ("client_id=.*,client_software_name=java", False),
        ("client_software_version=.*", False),
        ("client_source_address=10\\.0\\.0\\.1, client_source_port = 5[0-9]+", True),
        ("client_instance_id=AAEC.*", True),
    ],
)
def test_every_selector_has_to_match_the_whole_value(match: str, fits: bool) -> None:
    assert bool(assigned({"metrics": "m", "match": match}).metrics) == fits


def test_expression_of_java_disables_only_its_own_subscription(caplog: pytest.LogCaptureFixture) -> None:
    found = assigned({"metrics": "a", "match": "client_id=(?!x).*"}, {"metrics": "b"})
    assert found.metrics == ("b",)
    assert "Ignoring the client metrics subscription 0: Illegal client matching pattern" in caplog.text


def test_subscription_id_depends_on_metrics_interval_and_client() -> None:
    """The CRC-32C of Kafka's text, XORed with `Uuid.hashCode`."""
    one = assigned({"metrics": "a", "interval.ms": "100"})
    others = [assigned({"metrics": "b", "interval.ms": "100"}), assigned({"metrics": "a", "interval.ms": "101"})]
    other_client = assign(parse({"0": {"metrics": "a", "interval.ms": "100"}}), CLIENT, bytes(15) + b"\x07")
    assert len({each.subscription_id for each in [one, *others, other_client]}) == 4
    assert one == assigned({"metrics": "a", "interval.ms": "100"})


def test_subscription_id_is_as_in_stock_kafka() -> None:
    """As a stock broker of 4.3 answered to the subscription `metrics=a,b`, `interval.ms=100`."""
    instance_id = bytes.fromhex("cd03b06a41834b6b9704a375e1558b83")
    found = assign(parse({"s": {"metrics": "a,b,a", "interval.ms": " 100 "}}), CLIENT, instance_id)
    assert found == Assigned(1129302146, ("a", "b"), 100)
