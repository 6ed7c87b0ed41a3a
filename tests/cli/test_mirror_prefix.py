"""Two clusters that copy each other's topics under prefixes, and what `ottla mirror` does with the names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.clients import Admin, Producer
from ottla.common.ids import TopicPartition
from tests.cluster.processes import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Run

WAIT_S = 60.0


@pytest.fixture
def us(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "us") as process:
        yield process


@pytest.fixture
def eu(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "eu") as process:
        yield process


def write(at: OttlaProcess, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=at.bootstrap) as producer:
        for value in values:
            producer.send(topic, value).result(WAIT_S)


def topics(at: OttlaProcess) -> list[str]:
    with Admin(at.bootstrap) as admin:
        return sorted(each.name for each in admin.list_topics())


def read_both(at: OttlaProcess, group: str) -> dict[str, list[bytes]]:
    """The values by topic that a consumer of another vendor reads with a pattern, until both topics have three."""
    found: dict[str, list[bytes]] = {}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": at.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([r"^(.*\.)?orders$"])

    def is_complete() -> bool:
        for message in consumer.consume(10, timeout=0.5):
            assert message.error() is None
            found.setdefault(str(message.topic()), []).append(message.value() or b"")
        return len(found) == 2 and all(len(each) == 3 for each in found.values())

    try:
        wait_until(is_complete, WAIT_S)
    finally:
        consumer.close()
    return found


def read_offsets(admin: Admin, group: str) -> dict[str, int]:
    return {key.topic: each.offset for key, each in admin.list_group_offsets(group).items()}


def test_two_clusters_copy_each_other_under_prefixes(plain: Run, us: OttlaProcess, eu: OttlaProcess) -> None:
    def ottla(*words: str, at: OttlaProcess = eu) -> str:
        answer = plain("mirror", *words, "-b", at.bootstrap)
        assert answer.code == 0, answer.err
        return answer.out + answer.err

    def rows(name: str, at: OttlaProcess) -> list[dict[str, Any]]:
        return plain("mirror", "status", name, "--json", "-b", at.bootstrap).objects

    def is_copied(name: str, at: OttlaProcess, end: int) -> bool:
        return [(row["end"], row["lag"]) for row in rows(name, at)] == [(end, 0)]

    for region, values in ((us, (b"u0", b"u1", b"u2", b"u3")), (eu, (b"e0", b"e1", b"e2"))):
        with Admin(region.bootstrap) as admin:
            admin.create_topic("orders")
            write(region, "orders", *values)
    with Admin(us.bootstrap) as admin:
        # The copy begins behind this record: the mirror asks the source where its log begins, by the name there.
        admin.delete_records({TopicPartition("orders", 0): 1})
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 2})
    interval = us.directory / "source.properties"
    interval.write_text("refresh.interval.ms=300\n")
    copied = ("--topics", ".*", "--groups", ".*", "--source-config", str(interval))
    ottla("create", "us", "--from", us.bootstrap, "--prefix", "us.", *copied, at=eu)
    ottla("create", "eu", "--from", eu.bootstrap, "--prefix", "eu.", *copied, at=us)

    def listed() -> dict[str, Any]:
        [row] = plain("mirror", "list", "--json", "-b", eu.bootstrap).objects
        return row

    ottla("alter", "us", "--throttle", "20MiB")
    assert (listed()["prefix"], listed()["throttle"]) == ("us.", 20 << 20)
    assert "20.0 MiB" in ottla("list")
    ottla("alter", "us", "--throttle", "none")
    assert listed()["throttle"] is None
    wait_until(lambda: is_copied("us", eu, 4) and is_copied("eu", us, 3), WAIT_S)
    assert read_both(eu, "in-eu") == {"orders": [b"e0", b"e1", b"e2"], "us.orders": [b"u1", b"u2", b"u3"]}
    assert read_both(us, "in-us") == {"orders": [b"u1", b"u2", b"u3"], "eu.orders": [b"e0", b"e1", b"e2"]}
    # The consumer above refreshed its topics many times meanwhile, as the mirrors did.
    assert (topics(us), topics(eu)) == (["eu.orders", "orders"], ["orders", "us.orders"])
    with Admin(us.bootstrap) as of_us, Admin(eu.bootstrap) as of_eu:
        ids = {each.name: each.topic_id for each in of_eu.list_topics()}
        assert ids["us.orders"] == {each.name: each.topic_id for each in of_us.list_topics()}["orders"]
        wait_until(lambda: read_offsets(of_eu, "billing") == {"us.orders": 2}, WAIT_S)
        # A group that has read `orders` in one cluster continues there in its copy in the other cluster.
        wait_until(lambda: read_offsets(of_eu, "in-us") == {"us.orders": 4}, WAIT_S)
        wait_until(lambda: read_offsets(of_us, "in-eu") == {"eu.orders": 3}, WAIT_S)
    [compared] = plain("mirror", "verify", "us", "--json", "-b", eu.bootstrap).objects
    assert (compared["topic"], compared["result"], compared["start"]) == ("us.orders", "equal", 1)
    assert "us.orders-0  1 offsets were skipped" in ottla("why", "us")

    # A promoted copy keeps its name, and is not copied back by the mirror with the other prefix.
    assert "Promoted us.orders" in ottla("promote", "us", "--yes")
    wait_until(lambda: "eu.us.orders" in ottla("why", "eu", at=us), WAIT_S)
    write(eu, "us.orders", b"open")
    refused = plain("mirror", "failback", "us", "orders", "--yes", "-b", eu.bootstrap)
    assert (refused.code, "does not begin with us." in refused.err) == (1, True)

    # The original becomes a copy of it, is promoted, and then both have their first roles again.
    write(us, "orders", b"lost")
    back = ("--topics", "", "--source-prefix", "us.", "--source-config", str(interval))
    ottla("create", "back", "--from", eu.bootstrap, *back, at=us)
    assert "1 records would be dropped" in ottla("failback", "back", "orders", "--dry-run", at=us)
    ottla("failback", "back", "orders", "--yes", at=us)
    wait_until(lambda: [(row["truncated"], row["lag"]) for row in rows("back", us)] == [(1, 0)], WAIT_S)
    assert "Promoted orders" in ottla("promote", "back", "--yes", at=us)
    write(us, "orders", b"again")
    ottla("failback", "us", "us.orders", "--yes")
    wait_until(lambda: [(row["state"], row["lag"]) for row in rows("us", eu)] == [("MIRRORING", 0)], WAIT_S)
    [compared] = plain("mirror", "verify", "us", "--json", "-b", eu.bootstrap).objects
    assert compared["result"] == "equal"
    assert topics(us) == ["eu.orders", "orders"]
    us.assert_no_traceback()
    eu.assert_no_traceback()
