"""`ottla topic` against Ottla and stock Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import ConfigResource
from tests.clients.support import unique, wait_until

from .conftest import Run


@pytest.mark.both
def test_topic_is_created_listed_altered_and_deleted(ottla: Run, ours: Admin) -> None:
    name = unique("life")
    created = ottla("topic", "create", name, "--partitions", "2", "--config", "retention.ms=7d")
    assert (created.code, created.out) == (0, f"{name}: created with 2 partitions, 1 replica each\n")
    assert ours.describe_config(ConfigResource.topic(name))["retention.ms"].value == "604800000"
    wait_until(lambda: any(topic.name == name for topic in ours.list_topics()), "the topic is listed")

    listed = ottla("topic", "list", name, "--json")
    assert listed.objects == [{"topic": name, "partition_count": 2, "internal": False}]

    altered = ottla("topic", "alter", name, "--config", "retention.ms=1h", "--partitions", "3")
    assert altered.out.splitlines() == [
        f"{name}: retention.ms is 3600000 (1 h), was 604800000 (7 d)",
        f"{name}: has 3 partitions now, 2 before",
    ]
    assert ottla("topic", "add-partitions", name, "--by", "1").out == f"{name}: has 4 partitions now, 3 before\n"
    assert ottla("topic", "alter", name, "--delete-config", "retention.ms", "--json").objects == [
        {
            "kind": "topic",
            "name": name,
            "setting": "retention.ms",
            "before": "3600000",
            "value": "604800000",
            "changed": True,
        }
    ]
    deleted = ottla("topic", "delete", name)
    assert (deleted.code, deleted.out, deleted.err) == (0, f"{name}: deleted\n", "")
    wait_until(lambda: all(topic.name != name for topic in ours.list_topics()), "the topic is deleted")


@pytest.mark.both
def test_describe_shows_partitions_with_their_offsets(ottla: Run, topic: str) -> None:
    answer = ottla("topic", "describe", topic)
    assert answer.code == 0
    assert f"{topic}  3 partitions, 1 replica each, 60 records" in answer.out
    heading, *rows = answer.out.splitlines()[-4:]
    assert heading.split() == ["PARTITION", "LEADER", "REPLICAS", "EARLIEST", "LATEST", "RECORDS", "SIZE"]
    assert [row.split()[3:6] for row in rows] == [["0", "10", "10"], ["0", "20", "20"], ["0", "30", "30"]]

    (described,) = ottla("topic", "describe", topic, "--json").objects
    assert described["partition_count"] == 3
    assert described["records"] == 60
    assert described["size"] == sum(row["size"] for row in described["partitions"]) > 60 * 20
    first = described["partitions"][0]
    assert first["replicas"] == first["isr"] == [first["leader"]]
    assert (first["earliest"], first["latest"], first["offline"]) == (0, 10, [])


@pytest.mark.both
def test_first_records_of_a_partition_are_deleted(ottla: Run, topic: str) -> None:
    words = ("topic", "delete-records", topic, "-p", "1")
    shown = ottla(*words, "--before", "5", "--dry-run")
    assert shown.out == f"5 offsets of {topic}-1, from 0 to 5: would be deleted\n"
    assert ottla(*words, "--before", "5").out == f"{topic}-1: begins at offset 5 now, at 0 before\n"
    refused = ottla(*words, "--before", "21")
    assert refused.code == 1
    assert refused.err.splitlines()[1].strip() == "Choose an offset from 5 to 20."
    assert ottla(*words, "--all", "--json").objects == [
        {"topic": topic, "partition": 1, "first": 5, "end": 20, "before": 20, "offsets": 15, "deleted": True}
    ]
    assert ottla(*words, "--all").out == f"0 offsets of {topic}-1, from 20 to 20: would be deleted\n"
    assert ottla(*words, "--all", "--before", "3").code == 2
    assert ottla(*words).code == 2
    assert ottla(*words, "--before", "-1").code == 2
    assert ottla("topic", "alter", topic, "--config", "cleanup.policy=compact").code == 0
    compacted = ottla("topic", "delete-records", topic, "-p", "2", "--all")
    assert compacted.code == 1
    assert f"Topic {topic} has cleanup.policy=compact" in compacted.err


@pytest.mark.both
def test_mistyped_topic_is_an_error_with_the_nearest_name(ottla: Run, topic: str) -> None:
    for words in (["describe"], ["delete"], ["alter", "--config", "retention.ms=1"], ["add-partitions", "--by", "1"]):
        answer = ottla("topic", words[0], topic[:-1] + "_", *words[1:])
        assert answer.code == 1
        assert answer.out == ""
        assert answer.err == f"ottla: there is no topic '{topic[:-1]}_'\n       Did you mean '{topic}'?\n"


@pytest.mark.both
def test_existing_topic_is_an_error_or_skipped(ottla: Run, topic: str) -> None:
    rejected = ottla("topic", "create", topic)
    assert rejected.code == 1
    assert "already exists" in rejected.err
    assert "--if-not-exists" in rejected.err
    skipped = ottla("topic", "create", topic, "--if-not-exists")
    assert (skipped.code, skipped.out) == (0, f"{topic}: already exists\n")


@pytest.mark.both
def test_wildcards_and_regular_expressions_select_topics(ottla: Run, ours: Admin) -> None:
    stem = unique("many")
    names = [f"{stem}-{end}" for end in ("a1", "a2", "b1")]
    assert ottla("topic", "create", *names).code == 0
    assert ottla("topic", "list", f"{stem}-a*", "--quiet").out.split() == names[:2]
    assert ottla("topic", "list", "--regex", f"{stem}-.1", "--quiet").out.split() == [names[0], names[2]]
    nothing = ottla("topic", "delete", f"{stem}-x*")
    assert (nothing.code, nothing.err.splitlines()[0]) == (1, f"ottla: no topic matches '{stem}-x*'")
    assert ottla("topic", "delete", f"{stem}-x*", "--if-exists").code == 0
    assert ottla("topic", "delete", f"{stem}-*", "--dry-run").out.count("would be deleted") == 3
    assert len(ottla("topic", "list", f"{stem}*", "--json").objects) == 3
    assert ottla("topic", "delete", f"{stem}-*", "--json").objects == [
        {"topic": name, "deleted": True} for name in names
    ]


@pytest.mark.both
def test_dry_run_is_validated_by_the_broker_and_changes_nothing(ottla: Run, ours: Admin, topic: str) -> None:
    name = unique("dry")
    assert ottla("topic", "create", name, "--dry-run").code == 0
    assert all(listed.name != name for listed in ours.list_topics())
    assert ottla("topic", "create", name, "--dry-run", "--config", "retention.ms=soon").code == 1
    assert "would change from" in ottla("topic", "alter", topic, "--config", "retention.ms=1h", "--dry-run").out
    assert ours.describe_config(ConfigResource.topic(topic))["retention.ms"].is_default
    assert ottla("topic", "add-partitions", topic, "--to", "5", "--dry-run").out.startswith(f"{topic}: would have 5")
    assert len(ours.describe_topic(topic).partitions) == 3


@pytest.mark.both
def test_number_of_partitions_cannot_be_reduced(ottla: Run, topic: str) -> None:
    answer = ottla("topic", "add-partitions", topic, "--to", "2")
    assert answer.code == 1
    assert f"{topic} has 3 partitions; the number cannot be reduced to 2" in answer.err
    assert ottla("topic", "add-partitions", topic, "--to", "3").out == f"{topic}: already has 3 partitions\n"


@pytest.mark.both
def test_replica_assignment_has_the_syntax_of_kafkas_tool(ottla: Run, ours: Admin) -> None:
    name, node = unique("placed"), ours.describe_cluster().brokers[0].node_id
    assert ottla("topic", "create", name, "--replica-assignment", f"{node},{node}").code == 0
    assert [partition.replicas for partition in ours.describe_topic(name).partitions] == [(node,), (node,)]
    assert ottla("topic", "create", name, "--replica-assignment", "1:x").code == 2
    assert ottla("topic", "delete", name, "--yes").code == 0


def test_filters_of_describe_show_only_matching_partitions(ottla: Run, topic: str) -> None:
    none = ottla("topic", "describe", topic, "--under-replicated-partitions")
    assert (none.code, none.out) == (0, "")
    assert "There is no partition with replicas that are not in sync" in none.err
    rows = ottla("topic", "describe", topic, "--at-min-isr-partitions", "--json").objects
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, 0), (topic, 1), (topic, 2)]


def test_wildcards_do_not_match_internal_topics(ottla: Run, group: str) -> None:
    assert "__consumer_offsets" not in ottla("topic", "list", "--quiet").out.split()
    assert "__consumer_offsets" in ottla("topic", "list", "--internal", "--quiet").out.split()
    assert ottla("topic", "list", "__consumer_offsets", "--quiet").out == "__consumer_offsets\n"
    assert "__consumer_offsets" not in ottla("topic", "delete", "*", "--dry-run").out


def test_long_list_has_records_and_size(ottla: Run, topic: str) -> None:
    (row,) = ottla("topic", "list", topic, "--long", "--json").objects
    assert (row["records"], row["replication_factor"], row["cleanup_policy"]) == (60, 1, "delete")
    assert row["size"] > 60 * 20


def test_unknown_setting_is_an_error_with_the_nearest_name(ottla: Run, topic: str) -> None:
    answer = ottla("topic", "alter", topic, "--config", "retention.mss=1")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        f"ottla: topic {topic} has no setting 'retention.mss'",
        "       Did you mean retention.ms?",
    ]


def test_unknown_setting_of_a_new_topic_is_an_error_with_the_nearest_name(ottla: Run) -> None:
    answer = ottla("topic", "create", "new", "--config", "retention.mss=1")
    assert (answer.code, answer.err.splitlines()) == (
        1,
        ["ottla: topics have no setting 'retention.mss'", "       Did you mean retention.ms?"],
    )
    answer = ottla("topic", "create", "new", "--config", "cleanup.policy=none")
    assert (answer.code, "cleanup.policy" in answer.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "which verb? There are create, list, "),
        (["--create", "--topic", "x"], "`ottla topic create`"),
        (["create"], "which topic?"),
        (["create", "x", "--partitions", "0"], "--partitions is 0"),
        (["create", "x", "--partitions", "many"], "'many' is not a valid integer"),
        (["create", "x", "--config", "retention.ms"], "not of the form NAME=VALUE"),
        (["create", "x", "-p", "2", "--replica-assignment", "1,1"], "--replica-assignment excludes --partitions"),
        (["alter", "x"], "nothing to alter"),
        (["delete"], "which topic?"),
        (["describe", "x", "--jsn"], "did you mean --json?"),
        (["descibe", "x"], "did you mean describe?"),
        (["list", "-X", "nonsense"], "not of the form NAME=VALUE"),
        (["list", "-X", "reqest.timeout.ms=3"], "did you mean 'request.timeout.ms'?"),
        (["list", "--command-config", "/no/such/file"], "cannot be read"),
        (["list", "--profile", "missing"], "there is no profile 'missing'"),
    ],
)
def test_wrong_arguments_are_an_error_in_one_line(words: list[str], problem: str, plain: Run) -> None:
    answer = plain("topic", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert problem in answer.err
    assert answer.err.count("\n") <= 2


def test_command_config_is_a_file_of_kafkas_clients(plain: Run, ours: Admin, tmp_path: Path) -> None:
    broker = ours.describe_cluster().brokers[0]
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.host}:{broker.port}\ngroup.id=not-for-an-admin\nacks=all\n")
    assert plain("topic", "list", "--command-config", str(file)).code == 0


@pytest.mark.both
def test_sasl_to_a_listener_without_sasl_is_an_error_with_the_reason(ottla: Run) -> None:
    words = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ann", "sasl.password=secret"]
    answer = ottla("topic", "list", *[word for setting in words for word in ("-X", setting)])
    assert answer.code == 1
    assert "does not use SASL: set security.protocol to PLAINTEXT or SSL" in answer.err


def test_refused_connection_is_reported_within_the_timeout(plain: Run) -> None:
    answer = plain("topic", "list", "-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=200")
    assert answer.code == 1
    assert answer.err.splitlines()[0] == (
        "ottla: No broker can be reached: 127.0.0.1:1: connection refused, nothing listens there"
    )
    assert "ottla up" in answer.err
