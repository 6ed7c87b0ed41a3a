"""A mirror whose source is stock Kafka: same bytes after a kill, DeleteRecords and transactions, promotion, failback.

The mirror and `ottla mirror verify` use SASL over TLS, with exactly the rights that docs/mirror.md names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Producer
from ottla.clients.admin import Acl, AclOperation, AclResource, Admin
from ottla.common.ids import TopicPartition
from ottla.config import format_properties
from tests.clients.secured import sasl
from tests.cluster.processes import wait_until
from tests.mirrors import (
    GROUP,
    PARTITIONS,
    TOPIC,
    WAIT_S,
    assert_equal,
    committed,
    is_open_to_producers,
    mirror,
    partitions,
    produce,
    promote,
    transaction,
    values,
    wait_until_copied,
)
from tests.ottla_process import OttlaProcess
from tests.peers.secured import SecuredKafka

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("mirror-of-stock")]


ANY_TOPIC, ANY_GROUP = AclResource.topic("*"), AclResource.group("*")
RIGHTS = (
    (ANY_TOPIC, AclOperation.DESCRIBE),
    (ANY_TOPIC, AclOperation.DESCRIBE_CONFIGS),
    (ANY_TOPIC, AclOperation.READ),
    (ANY_GROUP, AclOperation.DESCRIBE),
)


def test_mirror_of_stock_kafka_has_its_bytes_and_is_promoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SecuredKafka(tmp_path / "stock") as source, OttlaProcess(tmp_path / "ottla") as target:
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "123456789"})
            topic_id = admin.describe_topic(TOPIC).topic_id
        for position, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            produce(source.bootstrap, 100 * position, 100, codec)
        transaction(source.bootstrap, "kept", [b"kept"], Producer.commit_transaction)
        transaction(source.bootstrap, "aborted", [b"aborted"], Producer.abort_transaction)
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, 0): 42, TopicPartition(TOPIC, 1): 7})
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_acls([Acl(resource, "User:reader", operation) for resource, operation in RIGHTS])
        login = sasl(source, "SCRAM-SHA-512", "reader", "SASL_SSL")
        mirror(source.address("SASL_SSL"), target.bootstrap, login=login)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert_equal(source.data(), target.data)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            assert admin.describe_topic(TOPIC).topic_id == topic_id
        wait_until(lambda: committed(target.bootstrap) == {0: 42, 1: 7}, WAIT_S)

        source.kill_node(1)
        source.start_node(1)
        wait_until(lambda: is_open_to_producers(source.bootstrap, 1000, 40), WAIT_S)
        wait_until_copied(source.bootstrap, target.bootstrap)
        security = tmp_path / "source.properties"
        security.write_text(format_properties({name: str(text) for name, text in login.items()}))
        verify = ["mirror", "verify", "dr", "-b", target.bootstrap]
        assert main([*verify, "--source-config", str(security)]) == 0
        assert "equal" in capsys.readouterr().out
        assert main(verify) == 2
        assert "needs SASL_SSL" in capsys.readouterr().err

        hanging = transaction(source.bootstrap, "open", [b"open"], None)
        produce(source.bootstrap, 2000, 4)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert_equal(source.data(), target.data)
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.delete_records({TopicPartition(TOPIC, 0): 30})
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            key = TopicPartition(TOPIC, 0)
            wait_until(lambda: admin.list_offsets({key: -2})[key].offset == 30, WAIT_S)
            promote(admin)
        assert values(target.bootstrap)[-1] == b"2002"
        assert b"open" not in values(target.bootstrap)
        wait_until(lambda: is_open_to_producers(target.bootstrap, 3000, 2), WAIT_S)
        hanging.abort_transaction()
        hanging.close()

        # The source was not promoted: it cannot compare the leader epochs of the records of the target.
        failback = ["mirror", "failback", "dr", TOPIC, "--yes", "-b", target.bootstrap]
        assert main([*failback, "--source-config", str(security)]) == 0
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert main([*verify, "--source-config", str(security)]) == 0
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            wait_until(lambda: [row["lag"] for row in partitions(admin)] == [0] * PARTITIONS, WAIT_S)
        target.assert_no_traceback()
