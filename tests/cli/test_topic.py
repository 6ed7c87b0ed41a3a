"""`ottla topic` against Ottla and stock Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import ConfigResource
from tests.clients.support import unique, wait_until

from .conftest import Run


@pytest.mark.both
def test_a_topic_from_its_creation_to_its_end(ottla: Run, ours: Admin) -> None:
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
    wait_until(lambda: all(topic.name != name for topic in ours.list_topics()), "the topic is gone")


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
def test_a_mistyped_topic_is_answered_with_the_one_that_is_meant(ottla: Run, topic: str) -> None:
    for words in (["describe"], ["delete"], ["alter", "--config", "retention.ms=1"], ["add-partitions", "--by", "1"]):
        answer = ottla("topic", words[0], topic[:-1] + "_", *words[1:])
        assert answer.code == 1
        assert answer.out == ""
        assert answer.err == f"ottla: there is no topic '{topic[:-1]}_'\n       Did you mean '{topic}'?\n"


@pytest.mark.both
def test_a_topic_that_exists_is_an_error_or_passed_over(ottla: Run, topic: str) -> None:
    refused = ottla("topic", "create", topic)
    assert refused.code == 1
    assert "already exists" in refused.err
    assert "--if-not-exists" in refused.err
    passed = ottla("topic", "create", topic, "--if-not-exists")
    assert (passed.code, passed.out) == (0, f"{topic}: exists already\n")


@pytest.mark.both
def test_wildcards_and_expressions_choose_topics(ottla: Run, ours: Admin) -> None:
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
def test_a_dry_run_is_checked_by_the_broker_and_changes_nothing(ottla: Run, ours: Admin, topic: str) -> None:
    name = unique("dry")
    assert ottla("topic", "create", name, "--dry-run").code == 0
    assert all(listed.name != name for listed in ours.list_topics())
    assert ottla("topic", "create", name, "--dry-run", "--config", "retention.ms=soon").code == 1
    assert "would change from" in ottla("topic", "alter", topic, "--config", "retention.ms=1h", "--dry-run").out
    assert ours.describe_config(ConfigResource.topic(topic))["retention.ms"].is_default
    assert ottla("topic", "add-partitions", topic, "--to", "5", "--dry-run").out.startswith(f"{topic}: would have 5")
    assert len(ours.describe_topic(topic).partitions) == 3


@pytest.mark.both
def test_partitions_are_never_taken_away(ottla: Run, topic: str) -> None:
    answer = ottla("topic", "add-partitions", topic, "--to", "2")
    assert answer.code == 1
    assert f"{topic} has 3 partitions, which cannot become 2" in answer.err
    assert ottla("topic", "add-partitions", topic, "--to", "3").out == f"{topic}: has 3 already\n"


@pytest.mark.both
def test_replicas_are_placed_as_kafkas_tool_takes_it(ottla: Run, ours: Admin) -> None:
    name, node = unique("placed"), ours.describe_cluster().brokers[0].node_id
    assert ottla("topic", "create", name, "--replica-assignment", f"{node},{node}").code == 0
    assert [partition.replicas for partition in ours.describe_topic(name).partitions] == [(node,), (node,)]
    assert ottla("topic", "create", name, "--replica-assignment", "1:x").code == 2
    assert ottla("topic", "delete", name, "--yes").code == 0


def test_partitions_in_trouble_are_shown_alone(ottla: Run, topic: str) -> None:
    calm = ottla("topic", "describe", topic, "--under-replicated-partitions")
    assert (calm.code, calm.out) == (0, "")
    assert "No partition is with fewer replicas in sync" in calm.err
    rows = ottla("topic", "describe", topic, "--at-min-isr-partitions", "--json").objects
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, 0), (topic, 1), (topic, 2)]


def test_kafkas_own_topics_are_spared_by_wildcards(ottla: Run, group: str) -> None:
    assert "__consumer_offsets" not in ottla("topic", "list", "--quiet").out.split()
    assert "__consumer_offsets" in ottla("topic", "list", "--internal", "--quiet").out.split()
    assert ottla("topic", "list", "__consumer_offsets", "--quiet").out == "__consumer_offsets\n"
    assert "__consumer_offsets" not in ottla("topic", "delete", "*", "--dry-run").out


def test_a_long_list_has_records_and_bytes(ottla: Run, topic: str) -> None:
    (row,) = ottla("topic", "list", topic, "--long", "--json").objects
    assert (row["records"], row["replication_factor"], row["cleanup_policy"]) == (60, 1, "delete")
    assert row["size"] > 60 * 20


def test_an_unknown_setting_is_answered_with_the_nearest(ottla: Run, topic: str) -> None:
    answer = ottla("topic", "alter", topic, "--config", "retention.mss=1")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        f"ottla: topic {topic} has no setting 'retention.mss'",
        "       Did you mean retention.ms?",
    ]


def test_an_unknown_setting_of_a_new_topic_too(ottla: Run) -> None:
    answer = ottla("topic", "create", "new", "--config", "retention.mss=1")
    assert (answer.code, answer.err.splitlines()) == (
        1,
        ["ottla: topics have no setting 'retention.mss'", "       Did you mean retention.ms?"],
    )
    answer = ottla("topic", "create", "new", "--config", "cleanup.policy=none")
    assert (answer.code, "cleanup.policy" in answer.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which verb? There are create, list, "),
        (["--create", "--topic", "x"], "`ottla topic create`"),
        (["create"], "which topic?"),
        (["create", "x", "--partitions", "0"], "--partitions is 0"),
        (["create", "x", "--partitions", "many"], "'many' is not a valid integer"),
        (["create", "x", "--config", "retention.ms"], "not of the form NAME=VALUE"),
        (["create", "x", "-p", "2", "--replica-assignment", "1,1"], "--replica-assignment already says"),
        (["alter", "x"], "nothing to alter"),
        (["delete"], "which topic?"),
        (["describe", "x", "--jsn"], "did you mean --json?"),
        (["descibe", "x"], "did you mean describe?"),
        (["list", "-X", "nonsense"], "not of the form NAME=VALUE"),
        (["list", "-X", "reqest.timeout.ms=3"], "did you mean 'request.timeout.ms'?"),
        (["list", "--command-config", "/no/such/file"], "cannot be read"),
        (["list", "--profile", "nobody"], "there is no profile 'nobody'"),
    ],
)
def test_what_is_asked_for_wrongly_is_told_in_a_line(words: list[str], said: str, plain: Run) -> None:
    answer = plain("topic", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err
    assert answer.err.count("\n") <= 2


def test_settings_come_from_a_file_as_kafkas_tools_take_it(plain: Run, ours: Admin, tmp_path: Path) -> None:
    broker = ours.describe_cluster().brokers[0]
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.host}:{broker.port}\ngroup.id=not-for-an-admin\nacks=all\n")
    assert plain("topic", "list", "--command-config", str(file)).code == 0


@pytest.mark.both
def test_a_log_in_where_nobody_asks_for_one_is_told_at_once(ottla: Run) -> None:
    words = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ann", "sasl.password=secret"]
    answer = ottla("topic", "list", *[word for setting in words for word in ("-X", setting)])
    assert answer.code == 1
    assert "does not use SASL: set security.protocol to PLAINTEXT or SSL" in answer.err


def test_nobody_there_is_told_soon(plain: Run) -> None:
    answer = plain("topic", "list", "-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=200")
    assert answer.code == 1
    assert answer.err.splitlines()[0] == (
        "ottla: No broker can be reached: 127.0.0.1:1: connection refused, nothing listens there"
    )
    assert "ottla up" in answer.err
