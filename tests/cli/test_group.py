"""`ottla group` against Ottla and stock Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import (
    AcknowledgeType,
    Admin,
    Consumer,
    ShareConsumer,
    TopicPartition,
    UnknownTopicOrPartition,
)
from ottla.clients.admin import ConfigResource, PartialFailure
from tests.clients.support import WAIT_S, unique, wait_until

from .conftest import FIRST_MS, Run


@pytest.fixture
def member(ours: Admin, topic: str) -> Iterator[str]:
    """A group with one member that has read the topic and committed its offsets."""
    name = unique("team")
    broker = ours.describe_cluster().brokers[0]
    stop, read = threading.Event(), threading.Event()

    def poll() -> None:
        consumer = Consumer(
            bootstrap_servers=f"{broker.host}:{broker.port}",
            group_id=name,
            client_id="reader",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with consumer:
            consumer.subscribe([topic])
            count = 0
            while not stop.is_set():
                count += len(consumer.poll(0.1))
                if count == 60 and not read.is_set():
                    consumer.commit()
                    read.set()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert read.wait(WAIT_S)
        yield name
    finally:
        stop.set()
        thread.join(WAIT_S)
        ours.delete_group(name)


@pytest.fixture
def sharing(ours: Admin, topic: str) -> Iterator[str]:
    """A share group with one member that has accepted all records of the topic except the first of partition 0."""
    name = unique("sharing")
    ours.alter_config(ConfigResource.group(name), {"share.auto.offset.reset": "earliest"})
    broker = ours.describe_cluster().brokers[0]
    settings = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": name, "client.id": "sharer"}
    with ShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(topic)
        accepted, deadline = 0, time.monotonic() + WAIT_S
        while accepted < 59:
            assert time.monotonic() < deadline
            for record in consumer.poll(0.2):
                is_first = record.partition == 0 and record.offset == 0
                consumer.acknowledge(record, AcknowledgeType.RENEW if is_first else AcknowledgeType.ACCEPT)
                accepted += not is_first
            consumer.commit_sync()
        yield name
    wait_until(lambda: not ours.describe_group(name).members, "the group is empty")
    ours.delete_group(name)


@pytest.mark.both
def test_share_group_is_listed_and_its_lag_has_no_accepted_records(ottla: Run, sharing: str, topic: str) -> None:
    (listed,) = ottla("group", "list", sharing, "--json").objects
    assert (listed["state"], listed["type"], listed["protocol"]) == ("Stable", "share", "share")
    described = ottla("group", "describe", sharing)
    assert "share group at epoch" in described.out
    assert "START" in described.out
    assert "sharer" in described.out
    rows = ottla("group", "lag", sharing, "--json").objects
    # An acknowledgement that is stored out of order counts, too.
    assert [(row["partition"], row["lag"]) for row in rows] == [(0, 1), (1, 0), (2, 0)]
    assert rows[0]["committed"] == 0
    refused = ottla("group", "reset", sharing, "--to-latest", "--execute")
    assert (refused.code, f"{sharing} has 1 member" in refused.err) == (1, True)


@pytest.mark.both
def test_share_group_is_reset_and_deleted(ottla: Run, ours: Admin, topic: str) -> None:
    name = unique("sharing")
    ours.alter_share_group_offsets(name, {TopicPartition(topic, 0): 5})
    assert ottla("group", "reset", name, "--to-earliest", "--execute").code == 0
    rows = ottla("group", "lag", name, "--json").objects
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [(0, 0, rows[0]["end"])]
    assert ottla("group", "reset", name, "--topic", topic, "--to-latest", "--execute").code == 0
    assert {row["lag"] for row in ottla("group", "lag", name, "--json").objects} == {0}
    assert ottla("group", "delete", name, "--topic", topic, "--yes").code == 0
    assert ours.list_share_group_offsets(name) == {}
    assert ottla("group", "delete", name, "--yes").code == 0
    assert name not in {group.group_id for group in ours.list_groups()}


def offsets_of(ours: Admin, group: str) -> list[int]:
    return [offset.offset for _, offset in sorted(ours.list_group_offsets(group).items())]


def create_and_commit(ours: Admin, group: str, topic: str) -> None:
    """Create a topic and commit offset 0 to it. Stock Kafka's coordinator learns of a new topic later."""
    ours.create_topic(topic, partitions=1, replication_factor=1)

    def committed() -> bool:
        try:
            ours.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
        except PartialFailure as failure:
            if failure.subgroup(UnknownTopicOrPartition) is None:
                raise
            return False
        return True

    wait_until(committed, "the coordinator accepts a commit")


@pytest.mark.both
def test_lag_of_a_group_without_members(ottla: Run, group: str, topic: str) -> None:
    rows = ottla("group", "lag", group, "--json").objects
    assert [(row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
        (topic, 0, 5, 10, 5),
        (topic, 1, 5, 20, 15),
        (topic, 2, 5, 30, 25),
    ]
    assert [row["client"] for row in rows] == [None] * 3
    people = ottla("group", "lag", group).out.splitlines()
    assert people[0] == f"{group}  Empty, 0 members, lag 45 in 3 partitions"
    assert people[2].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"]
    (total,) = ottla("group", "lag", group, "--total", "--json").objects
    assert (total["state"], total["member_count"], total["lag"]) == ("Empty", 0, 45)
    (by_topic,) = ottla("group", "lag", group, "--by-topic", "--json").objects
    assert by_topic == {"group": group, "topic": topic, "partition_count": 3, "lag": 45}


@pytest.mark.both
def test_group_with_members_shows_its_assignment_and_cannot_be_reset(
    ottla: Run, member: str, topic: str, ours: Admin
) -> None:
    rows = ottla("group", "lag", member, "--json").objects
    assert [(row["lag"], row["client"]) for row in rows] == [(0, "reader")] * 3
    (described,) = ottla("group", "describe", member, "--json").objects
    assert (described["state"], described["member_count"]) == ("Stable", 1)
    (one,) = described["members"]
    assert (one["client"], one["assignment"], one["topics"]) == ("reader", {topic: [0, 1, 2]}, [topic])
    assert f"{topic} 0-2" in ottla("group", "describe", member, "--members").out

    shown = ottla("group", "reset", member, "--to-earliest")
    assert shown.code == 0
    assert f"{member} has 1 member" in shown.err
    rejected = ottla("group", "reset", member, "--to-earliest", "--execute")
    assert (rejected.code, rejected.out) == (1, "")
    assert rejected.err.splitlines()[0] == (f"ottla: {member} has 1 member: offsets can be reset only without members")
    assert offsets_of(ours, member) == [10, 20, 30]
    assert ottla("group", "delete", member).code == 1


@pytest.mark.both
def test_groups_are_listed_by_state_and_name(ottla: Run, group: str, member: str) -> None:
    empty = ottla("group", "list", "--state", "empty", "--quiet").out.split()
    assert group in empty
    assert member not in empty
    (row,) = ottla("group", "list", f"{group[:-2]}*", "--long", "--json").objects
    assert (row["group"], row["state"], row["lag"], row["partition_count"]) == (group, "Empty", 45, 3)
    assert "did you mean" not in ottla("group", "list", "--state", "asleep").err.lower()
    assert ottla("group", "list", "--state", "stabel").code == 2


@pytest.mark.both
@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (["--to-earliest"], [0, 0, 0]),
        (["--to-latest"], [10, 20, 30]),
        (["--to-offset", "0"], [0, 0, 0]),
        (["--to-offset", "12"], [10, 12, 12]),
        (["--shift-by", "-3"], [2, 2, 2]),
        (["--shift-by", "20"], [10, 20, 25]),
        (["--to-current"], [5, 5, 5]),
        (["--to-datetime", str(FIRST_MS + 15 * 10_000)], [10, 15, 15]),
        (["--to-datetime", "2026-01-01T00:00Z"], [0, 0, 0]),
    ],
    ids=lambda value: "-".join(map(str, value)),
)
def test_reset_moves_offsets_to_the_target_only_with_execute(
    where: list[str], offsets: list[int], ottla: Run, group: str, ours: Admin
) -> None:
    shown = ottla("group", "reset", group, *where, "--json")
    assert [(row["before"], row["offset"], row["changed"]) for row in shown.objects] == [
        (5, offset, False) for offset in offsets
    ]
    assert offsets_of(ours, group) == [5, 5, 5]
    done = ottla("group", "reset", group, *where, "--execute")
    assert done.code == 0
    assert offsets_of(ours, group) == offsets


@pytest.mark.both
def test_reset_of_some_partitions_does_not_change_the_others(ottla: Run, group: str, topic: str, ours: Admin) -> None:
    assert ottla("group", "reset", group, "--topic", f"{topic}:0,2", "--to-latest", "--execute").code == 0
    assert offsets_of(ours, group) == [10, 5, 30]
    wrong = ottla("group", "reset", group, "--topic", f"{topic}:3", "--to-latest")
    assert (wrong.code, wrong.err) == (1, f"ottla: {topic} has 3 partitions, but no '3'\n")
    assert "Did you mean" in ottla("group", "reset", group, "--topic", topic[:-1], "--to-latest").err


@pytest.mark.both
def test_exported_offsets_can_be_restored(ottla: Run, group: str, topic: str, ours: Admin, tmp_path: Path) -> None:
    saved = ottla("group", "reset", group, "--to-current", "--export")
    assert saved.out == f"{topic},0,5\n{topic},1,5\n{topic},2,5\n"
    file = tmp_path / "saved.csv"
    file.write_text(saved.out)
    assert ottla("group", "reset", group, "--to-latest", "--execute").code == 0
    assert ottla("group", "reset", group, "--from-file", str(file), "--execute").code == 0
    assert offsets_of(ours, group) == [5, 5, 5]
    file.write_text(f"{topic},0,5\n{topic},one,5\n")
    broken = ottla("group", "reset", group, "--from-file", str(file))
    assert broken.code == 2
    assert f"{file}, line 2 cannot be read" in broken.err


@pytest.mark.both
def test_reset_creates_a_group_with_its_first_offsets(ottla: Run, topic: str, ours: Admin) -> None:
    name = unique("newcomer")
    nothing = ottla("group", "reset", name, "--to-earliest")
    assert nothing.code == 1
    assert f"{name} has no committed offsets" in nothing.err
    assert ottla("group", "reset", name, "--topic", topic, "--to-latest", "--execute").code == 0
    assert offsets_of(ours, name) == [10, 20, 30]
    assert ottla("group", "delete", name, "--json").objects == [{"group": name, "deleted": True}]


@pytest.mark.both
def test_groups_and_their_offsets_are_deleted(ottla: Run, group: str, topic: str, ours: Admin) -> None:
    second = unique("other")
    create_and_commit(ours, group, second)
    assert ottla("group", "delete", group, "--topic", second).out == f"{group}: offsets for {second} deleted\n"
    assert [partition.topic for partition in ours.list_group_offsets(group)] == [topic] * 3
    ours.delete_topic(second)
    assert ottla("group", "delete", group).out == f"{group}: deleted\n"
    wait_until(lambda: all(listed.group_id != group for listed in ours.list_groups()), "the group is deleted")
    assert ottla("group", "delete", group).code == 1
    assert ottla("group", "delete", group, "--if-exists").code == 0


@pytest.mark.both
def test_lag_of_a_group_of_a_deleted_topic(ottla: Run, ours: Admin) -> None:
    name, deleted = unique("group"), unique("deleted")
    create_and_commit(ours, name, deleted)
    ours.delete_topic(deleted)
    answer = ottla("group", "lag", name, "--json")
    assert answer.code == 0
    assert [row["end"] for row in answer.objects] in ([None], [])


def test_fail_above_sets_the_exit_code(ottla: Run, group: str) -> None:
    assert ottla("group", "lag", group, "--fail-above", "45").code == 0
    answer = ottla("group", "lag", group, "--fail-above", "44")
    assert answer.code == 1
    assert answer.err == f"ottla: {group} is 45 records behind, more than 44\n"


def test_mistyped_group_is_an_error_with_the_nearest_name(ottla: Run, group: str) -> None:
    for verb in (["describe"], ["lag"], ["delete"]):
        assert f"Did you mean '{group}'?" in ottla("group", *verb, group[:-1] + "_").err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["reset", "g"], "one of --to-earliest, --to-latest"),
        (["reset", "--to-earliest"], "which group?"),
        (["reset", "a", "b", "--to-earliest"], "one group at a time"),
        (["reset", "g", "--to-earliest", "--to-latest"], "--to-earliest and --to-latest exclude each other"),
        (["reset", "g", "--to-earliest", "--execute", "--dry-run"], "give one"),
        (["reset", "g", "--to-datetime", "yesterday-ish"], "yesterday-ish"),
        (["reset", "g", "--by-duration", "long"], "not a duration"),
        (["reset", "g", "--from-file", "/no/such/file"], "cannot be read"),
        (["lag", "--interval", "0", "--watch"], "from 0.1"),
        (["delete"], "which group?"),
    ],
)
def test_wrong_arguments_are_a_usage_error(words: list[str], problem: str, plain: Run) -> None:
    answer = plain("group", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert problem in answer.err
