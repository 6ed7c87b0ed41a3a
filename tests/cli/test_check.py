"""`ottla check` on one broker without replicas, and on the facts of a good and of a bad cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients import admin as api
from ottla.clients.admin import Acl, AclOperation, AclResource
from ottla.clients.admin.model import LogDirectory, QuorumReplica
from ottla.clients.errors import BrokerError
from ottla.common.errors import ErrorCode
from ottla.config.authorization import STANDARD
from ottla.tools.readiness import Facts, checks, is_failed, unknown_checks
from ottla.tools.why.cluster_samples import ClusterSample, read_settings, read_topics
from tests.clients.support import unique
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Run


@pytest.mark.both
def test_single_broker_is_not_ready(ottla: Run, ours: Admin) -> None:
    name = unique("thin")
    ours.create_topic(name, partitions=1, replication_factor=1, config={"unclean.leader.election.enable": "true"})
    try:
        done = ottla("check", "--json")
        people = ottla("check")
    finally:
        ours.delete_topic(name)
    assert (done.code, people.code) == (1, 1)
    (report,) = done.objects
    rows: dict[str, list[dict[str, Any]]] = {}
    for each in report["checks"]:
        rows.setdefault(each["code"], []).append(each)
    assert (report["severity"], report["unknown"], report["unknown_checks"]) == ("critical", {}, [])
    assert {each["severity"] for each in rows["brokers"]} == {"critical"}
    assert name in rows["unclean_election"][0]["subject"] or "more" in rows["unclean_election"][0]["subject"]
    assert rows["replication_factor"][0]["severity"] == "critical"
    assert {"no authorizer" in each["cause"] for each in rows["security"]} == {True}
    assert rows["auto_create"][0]["severity"] in ("warning", "ok")
    assert rows["clocks"][0]["severity"] == "ok"
    assert rows["disks"][0]["subject"] in ("the cluster", "broker 1")
    assert "critical" in people.out.splitlines()[-1]


def good() -> Facts:
    """A cluster that passes each check that the protocol can show."""
    brokers = tuple(api.BrokerDescription(node, "h", 9092, f"r{node}", is_fenced=False) for node in (1, 2, 3))
    partition = api.PartitionDescription(0, 1, 1, (1, 2, 3), (1, 2, 3), ())
    names = {"orders": False, "__consumer_offsets": True, "__transaction_state": True, "__share_group_state": True}
    topics = {name: api.TopicDescription(name, "", internal, (partition,)) for name, internal in names.items()}
    voters = tuple(QuorumReplica(node, 10, 1_000_000, 1_000_000) for node in (1, 2, 3))
    directories = {node: (LogDirectory("/data", 100, 50, {}),) for node in (1, 2, 3)}
    seen = ClusterSample(
        1_000_000,
        api.ClusterDescription("id", 1, brokers),
        topics,
        {},
        api.Quorum(1, 1, 10, voters, ()),
        directories,
    )
    broker = {
        "auto.create.topics.enable": "false",
        "offsets.retention.minutes": "10080",
        "authorizer.class.name": "Standard",
        "listeners": "CLIENT://0.0.0.0:9092,LOCAL://127.0.0.1:9093,CONTROLLER://:9094",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
    topic = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "604800000"}
    return Facts(1_000_010, seen, dict.fromkeys(topics, topic), dict.fromkeys(("1", "2", "3"), broker))


def failed(facts: Facts) -> dict[str, str]:
    return {each.code: each.severity for each in checks(facts) if each.severity != "ok"}


def of_topic(**settings: str) -> Facts:
    facts, given = good(), {name.replace("_", "."): value for name, value in settings.items()}
    return replace(facts, topics={name: {**rows, **given} for name, rows in facts.topics.items()})


def of_broker(**settings: str) -> Facts:
    facts, given = good(), {name.replace("_", "."): value for name, value in settings.items()}
    return replace(facts, brokers={name: {**rows, **given} for name, rows in facts.brokers.items()})


def of_sample(**changes: Any) -> Facts:
    facts = good()
    return replace(facts, sample=replace(facts.sample, **changes))


def of_disk(directory: LogDirectory) -> Facts:
    return of_sample(directories={**good().sample.directories, 1: (directory,)})


STORAGE = BrokerError(code=ErrorCode.KAFKA_STORAGE_ERROR)
UNSEEN = {"file_descriptors": "info"}


def test_good_cluster_passes() -> None:
    assert failed(good()) == UNSEEN
    assert len({each.code for each in checks(good())}) == 13


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (of_topic(min_insync_replicas="1"), "min_isr", "critical"),
        (of_topic(min_insync_replicas="3"), "min_isr", "warning"),
        (of_topic(unclean_leader_election_enable="true"), "unclean_election", "critical"),
        (of_topic(retention_ms="-1"), "offsets_retention", "info"),
        (of_topic(retention_ms="604800001"), "offsets_retention", "info"),
        (of_broker(offsets_retention_minutes="1440"), "offsets_retention", "info"),
        (of_broker(auto_create_topics_enable="true"), "auto_create", "warning"),
        (of_broker(authorizer_class_name=""), "security", "critical"),
        (of_broker(listener_security_protocol_map="CLIENT:SASL_PLAINTEXT,LOCAL:PLAINTEXT"), "security", "critical"),
        (of_broker(listeners="PLAINTEXT://:9092"), "security", "critical"),
        (replace(good(), now_ms=1_003_000, sample=replace(good().sample, at_ms=1_002_000)), "clocks", "warning"),
        (replace(good(), now_ms=1_099_000, sample=replace(good().sample, at_ms=1_098_000)), "clocks", "critical"),
        (of_disk(LogDirectory("/data", 100, 4, {})), "disks", "critical"),
        (of_disk(LogDirectory("/data", -1, -1, {})), "disks", "info"),
        (of_disk(LogDirectory("/data", -1, -1, {}, STORAGE)), "disks", "critical"),
        (of_sample(directories={1: (LogDirectory("/data", 100, 50, {}),)}), "disks", "info"),
    ],
)
def test_each_fault_is_named_with_a_repair(facts: Facts, code: str, severity: str) -> None:
    assert failed(facts) == {**UNSEEN, code: severity}
    assert all(each.next_step for each in checks(facts) if each.severity != "ok")


def without(facts: Facts, broker: str | None = None, topic: str | None = None) -> Facts:
    """The facts without the settings of a broker and a topic."""
    brokers = {name: rows for name, rows in facts.brokers.items() if name != broker}
    return replace(facts, brokers=brokers, topics={name: rows for name, rows in facts.topics.items() if name != topic})


OF_BROKERS = {"auto_create", "offsets_retention", "security"}
OF_TOPICS = {"min_isr", "offsets_retention", "unclean_election"}


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        (replace(good(), brokers={}), OF_BROKERS),
        (without(good(), broker="2"), OF_BROKERS),
        (replace(good(), topics={}), OF_TOPICS),
        (without(good(), topic="orders"), OF_TOPICS),
        (without(good(), topic="__consumer_offsets"), {"unclean_election"}),
        (
            replace(good(), unknown={"partitions of topic t": "refused"}),
            {"replication_factor", "min_isr", "internal_topics", "unclean_election", "racks"},
        ),
        (replace(good(), unknown={"features of broker 2": "refused"}), {"versions"}),
        (of_sample(quorum=None), {"brokers", "clocks"}),
    ],
)
def test_check_without_its_input_is_unknown_and_never_ok(facts: Facts, codes: set[str]) -> None:
    assert failed(facts).keys() == {*UNSEEN, *codes}
    unknown = {each.code for each in checks(facts) if each.cause.startswith("Unknown: ")}
    assert unknown == unknown_checks(facts).keys() == codes - {"clocks"}


def test_missing_input_does_not_hide_what_was_read() -> None:
    facts = of_broker(authorizer_class_name="")
    rows = [each for each in checks(without(facts, broker="2")) if each.code == "security"]
    assert [each.severity for each in rows] == ["critical", "warning"]
    assert "broker 1, 3" in rows[0].subject
    assert "of broker 2" in rows[1].cause


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """A broker on which all users have the rights that no rule is about."""
    settings = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
    with ForkedOttla(tmp_path_factory.mktemp("ruled"), settings) as process:
        yield process
    process.assert_no_traceback()


def test_topic_that_is_deleted_after_it_was_listed_hides_no_other(ruled: OttlaProcess) -> None:
    unknown: dict[str, str] = {}

    async def read() -> tuple[set[str], set[str]]:
        async with api.AsyncAdmin(ruled.bootstrap) as admin:
            await admin.create_topic("stays", partitions=1, replication_factor=1)
            names = ["stays", "deleted"]
            found = await read_topics(admin, names, unknown)
            settings = await read_settings(admin, [api.ConfigResource.topic(name) for name in names], unknown)
            return set(found), set(settings)

    assert asyncio.run(read()) == ({"stays"}, {"stays"})
    assert not unknown


def test_offline_log_directory_is_named_and_hides_no_other(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    paths = f"{tmp_path / 'node' / 'data'},{tmp_path / 'broken'}"
    with ForkedOttla(tmp_path / "node", {"log.dirs": paths}) as process:
        (why,) = plain("cluster", "why", "--json", "--watch", "0", "-b", process.bootstrap).objects
        (check,) = plain("check", "--json", "-b", process.bootstrap).objects
        (cluster,) = plain("cluster", "--json", "-b", process.bootstrap).objects
    found = {each["code"]: each for each in why["findings"]}
    assert found.keys() == {"log_dir_offline"}
    assert f"{tmp_path / 'broken'}: " in found["log_dir_offline"]["cause"]
    assert why["unknown"] == {}
    assert "critical" in {each["severity"] for each in check["checks"] if each["code"] == "disks"}
    assert list(cluster["unknown"]) == [f"log directory {tmp_path / 'broken'} of broker 1"]
    assert [each["path"] for each in cluster["log_dirs"]] == [str(tmp_path / "node" / "data"), str(tmp_path / "broken")]


def test_user_that_may_not_read_settings_gets_no_ok(plain: Run, ruled: OttlaProcess) -> None:
    with Admin(ruled.bootstrap) as admin:
        admin.create_topic("mine", partitions=1, replication_factor=1)
        admin.create_acls(
            [
                Acl(AclResource.topic("mine"), "User:ANONYMOUS", AclOperation.DESCRIBE),
                Acl(AclResource.cluster(), "User:someone", AclOperation.ALL),
            ]
        )
    done = plain("check", "--json", "-b", ruled.bootstrap)
    (report,) = done.objects
    passed = {each["code"] for each in report["checks"] if each["severity"] == "ok"}
    assert not passed & {"security", "unclean_election", "auto_create", "offsets_retention", "min_isr"}
    assert {"security", "unclean_election", "auto_create", "brokers"} <= set(report["unknown_checks"])
    assert {"settings of broker 1", "settings of topic mine", "log directories of broker 1"} <= report["unknown"].keys()
    people = plain("check", "-b", ruled.bootstrap)
    assert people.code == 1
    assert "unknown" in people.out.splitlines()[-1]
    assert "settings of broker 1" in people.err
    # The broker is up and answers: nothing tells this user to restart it.
    why = plain("cluster", "why", "--watch", "0", "-b", ruled.bootstrap)
    assert why.code == 0
    assert "broker_silent" not in why.out
    assert "no_controller" not in why.out
    assert "No cause of trouble was found." not in why.out
    assert "not all parts could be read" in why.out
    assert "log directories of broker 1" in why.err


@pytest.mark.parametrize(
    ("facts", "fails"),
    [
        (good(), False),
        (without(good(), broker="2"), True),
        (without(good(), topic="orders"), True),
        (replace(good(), unknown={"features of broker 2": "refused"}), False),
        (of_topic(min_insync_replicas="1"), True),
        (of_topic(min_insync_replicas="3"), False),
    ],
)
def test_unknown_security_or_unclean_elections_fail_like_a_critical_check(facts: Facts, fails: bool) -> None:
    assert is_failed(facts) is fails


def test_replicas_in_one_rack_are_named() -> None:
    one = tuple(api.BrokerDescription(node, "h", 9092, "r", is_fenced=False) for node in (1, 2, 3))
    assert failed(of_sample(cluster=api.ClusterDescription("id", 1, one)))["racks"] == "warning"
    two = tuple(
        api.BrokerDescription(node, "h", 9092, "a" if node < 4 else "b", is_fenced=False) for node in (1, 2, 3, 4)
    )
    directories = {**good().sample.directories, 4: good().sample.directories[1]}
    facts = of_sample(cluster=api.ClusterDescription("id", 1, two), directories=directories)
    facts = replace(facts, brokers={**facts.brokers, "4": facts.brokers["1"]})
    assert failed(facts) == {**UNSEEN, "racks": "warning"}


def test_internal_topics_that_do_not_exist_are_judged_by_their_settings() -> None:
    facts = of_broker(offsets_topic_replication_factor="1")
    topics = {name: each for name, each in facts.sample.topics.items() if name != "__consumer_offsets"}
    found = failed(replace(facts, sample=replace(facts.sample, topics=topics)))
    assert found == {**UNSEEN, "internal_topics": "warning"}
