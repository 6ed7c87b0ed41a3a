"""Schema validation of topics that a mirror copies: the copy is not checked, and producers are after the promotion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer
from ottla.clients.admin import ConfigResource
from ottla.clients.errors import InvalidRecord, PolicyViolation
from tests.cluster.processes import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.mirrors import PARTITIONS, TOPIC, WAIT_S, assert_equal, mirror, partitions, values, wait_until_copied
from tests.ottla_process import ForkedOttla, OttlaProcess

from .registry import HttpRegistry
from .test_with_other_features import valid

VALIDATION = "confluent.value.schema.validation"


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    with HttpRegistry() as running:
        yield running


@pytest.fixture
def clusters(tmp_path: Path, registry: HttpRegistry) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """A source and a target that ask the same registry; the source's topic has records from before its validation."""
    settings = TEST_PROPERTIES | {"confluent.schema.registry.url": registry.url}
    with ForkedOttla(tmp_path / "source", settings) as source, ForkedOttla(tmp_path / "target", settings) as target:
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
            send(source, b"plain")
            admin.alter_config(ConfigResource.topic(TOPIC), {VALIDATION: "true"})
        yield source, target
        source.assert_no_traceback()
        target.assert_no_traceback()


def send(cluster: OttlaProcess, *sent: bytes) -> None:
    """Send values to partition 0."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for each in sent:
            producer.send(TOPIC, each, partition=0).result(WAIT_S)


def validation_of(admin: Admin) -> object:
    return admin.describe_config(ConfigResource.topic(TOPIC))[VALIDATION].value


def test_copy_is_not_checked_and_producers_are_after_the_promotion(
    clusters: tuple[OttlaProcess, OttlaProcess], registry: HttpRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = clusters
    first, second = valid(registry, 1), valid(registry, 2)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        mirror(source.bootstrap, target.bootstrap)
        wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, WAIT_S)
        assert validation_of(admin) == "true"
        diverted = {"ottla.schema.validation.mode": "dlq", "ottla.schema.validation.dlq.topic": "bad"}
        with Admin(bootstrap_servers=source.bootstrap) as of_source:
            of_source.create_topic("bad", partitions=1)
            of_source.alter_config(ConfigResource.topic(TOPIC), diverted)
            send(source, b"to the dead letters", first)
            of_source.alter_config(ConfigResource.topic(TOPIC), dict.fromkeys(diverted))
        asked = len(registry.asked)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert values(target.bootstrap) == [b"plain", first]
        assert_equal(source.data, target.data)
        for each in (second, b"plain"):
            with pytest.raises(PolicyViolation, match="mirror dr"):
                send(target, each)
        # Neither the copy nor the refusals need the registry.
        assert len(registry.asked) == asked
        # The source answers for a partition without records after half a second.
        wait_until(lambda: all(row["age_ms"] >= 0 for row in partitions(admin)), WAIT_S)
        assert main(["mirror", "switch", "dr", "--yes", "--json", "-b", target.bootstrap]) == 0
        checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [each["result"] for each in checks if each.get("check") == "schemas"] == ["ok"]
        with pytest.raises(InvalidRecord, match="does not begin with a zero byte"):
            send(target, b"plain")
        send(target, second)
        assert values(target.bootstrap)[:3] == [b"plain", first, second]
