"""Mirrors between clusters of real processes: same bytes after every kill, promotion, and the direction reversed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Producer
from ottla.clients.admin import Admin
from ottla.clients.errors import PolicyViolation
from ottla.common.ids import TopicPartition
from ottla.tools.admin.mirrors import MirrorReport
from tests.mirrors import (
    GROUP,
    PARTITIONS,
    TOPIC,
    WAIT_S,
    assert_equal,
    committed,
    data,
    is_open_to_producers,
    mirror,
    move,
    partitions,
    produce,
    promote,
    transaction,
    values,
    wait_until_copied,
)
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Clusters
from .processes import wait_until

OWN_TOPIC = "orders-own"
"""A topic of both clusters that is not a copy."""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "source") as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "target") as process:
        yield process


def test_copy_promotion_and_failback_between_killed_brokers(source: OttlaProcess, target: OttlaProcess) -> None:
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "123456789"})
    produce(source.bootstrap, 0, 200, "zstd")
    transaction(source.bootstrap, "kept", [b"kept"], Producer.commit_transaction)
    transaction(source.bootstrap, "aborted", [b"aborted"], Producer.abort_transaction)
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, 0): 42, TopicPartition(TOPIC, 1): 7})
    mirror(source.bootstrap, target.bootstrap)
    wait_until_copied(source.bootstrap, target.bootstrap)
    assert_equal(source.data, target.data)
    wait_until(lambda: committed(target.bootstrap) == {0: 42, 1: 7}, WAIT_S)

    # Neither kill -9 of the source nor of the target changes that.
    source.kill()
    source.start()
    produce(source.bootstrap, 200, 100, "lz4")
    wait_until_copied(source.bootstrap, target.bootstrap)  # in the source's next leader epoch
    target.kill()
    target.start()
    hanging = transaction(source.bootstrap, "open", [b"open"], None)
    produce(source.bootstrap, 300, 50, "gzip")
    wait_until_copied(source.bootstrap, target.bootstrap)
    assert_equal(source.data, target.data)
    with pytest.raises(PolicyViolation):
        produce(target.bootstrap, 0, 1)
    assert b"aborted" not in values(target.bootstrap)

    # The records that the source gets after the promotion are not copied, and the failback drops them.
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        promote(admin)
    before = values(target.bootstrap)
    assert b"kept" in before
    assert b"open" not in before, "the open transaction is aborted"
    assert before[-1] == b"348", "records behind the open transaction are committed"
    wait_until(lambda: is_open_to_producers(target.bootstrap, 1000, 20), WAIT_S)
    hanging.abort_transaction()
    hanging.close()
    produce(source.bootstrap, 5000, 10)
    mirror(target.bootstrap, source.bootstrap, "back")
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        move(admin, "FAILBACK", "back")
        wait_until(lambda: sum(row["truncated"] for row in _copied(admin, "back")) > 0, WAIT_S)
    wait_until_copied(target.bootstrap, source.bootstrap)
    assert_equal(source.data, target.data)
    assert values(source.bootstrap) == values(target.bootstrap)
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        promote(admin, "back")
    wait_until(lambda: is_open_to_producers(source.bootstrap, 2000, 4), WAIT_S)
    assert values(source.bootstrap)[-1] == b"2002"
    source.assert_no_traceback()
    target.assert_no_traceback()


def _copied(admin: Admin, name: str) -> list[dict[str, Any]]:
    return [row for row in partitions(admin, name) if "truncated" in row]


def test_replicas_of_the_target_are_equal_after_its_leader_was_killed(source: OttlaProcess, clusters: Clusters) -> None:
    target = clusters(controllers=1, properties={"default.replication.factor": 3, "min.insync.replicas": 2})
    with Admin(bootstrap_servers=source.bootstrap) as admin, target.admin() as other:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        for each in (admin, other):
            each.create_topic(OWN_TOPIC)
    produce(source.bootstrap, 0, 100, "snappy")
    mirror(source.bootstrap, target.bootstrap, login={"copy": "acls"})
    with target.admin() as admin:
        wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, WAIT_S)
        # Only the controller, which cannot be asked, creates topics; a broker finds the same problems.
        wait_until(lambda: OWN_TOPIC in MirrorReport.of(admin.mirror_status("dr")).topics, WAIT_S)
        wait_until(lambda: "SECURITY_DISABLED" in str(MirrorReport.of(admin.mirror_status("dr")).acls), WAIT_S)
    wait_until_copied(source.bootstrap, target.bootstrap)
    killed = target.leader(TOPIC)
    target.kill(killed)
    produce(source.bootstrap, 100, 100)
    wait_until_copied(source.bootstrap, target.bootstrap)
    target.start_node(killed)
    target.wait_until(lambda: sorted(target.in_sync(TOPIC)) == [1, 2, 3])
    moved = TopicPartition(TOPIC, 0)
    former = target.leader(TOPIC)
    with target.admin() as admin:
        # The copy goes on at another node, and while a replica is added.
        for replicas in ([each for each in (1, 2, 3) if each != former], [1, 2, 3]):
            admin.alter_partition_reassignments({moved: replicas})
            produce(source.bootstrap, 200, 10)
            target.wait_until(lambda replicas=replicas: sorted(target.in_sync(TOPIC)) == replicas)
            assert replicas == [1, 2, 3] or target.leader(TOPIC) != former
            wait_until_copied(source.bootstrap, target.bootstrap)
        wait_until(lambda: len(partitions(admin)) == PARTITIONS, WAIT_S)
        promote(admin)
    wait_until(lambda: is_open_to_producers(target.bootstrap, 1000, 10), WAIT_S)
    for index in range(PARTITIONS):
        wait_until(lambda index=index: len({data(target.nodes[each].data, index) for each in (1, 2, 3)}) == 1, WAIT_S)
        copied = data(target.nodes[1].data, index)
        assert copied.startswith(data(source.data, index))
        assert len(copied) > len(data(source.data, index))
    target.assert_no_traceback()
