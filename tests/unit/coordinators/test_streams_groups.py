"""Streams groups in the group coordinator (KIP-1071): topology, statuses, tasks, sessions, replay, other requests."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DeleteGroup, DescribeGroup, FetchOffsets, GroupConfig, ListGroups
from ottla.coordinators.group.streams.config import StreamsGroupConfig
from ottla.coordinators.group.streams.events import DescribeStreamsGroup
from ottla.coordinators.group.streams.member import MemberState
from ottla.coordinators.group.streams.topics import InternalTopic, Status
from ottla.protocol.messages import streams_group_heartbeat as h
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.drivers.consumer_members import Member as ConsumerMember
from tests.drivers.groups import GroupDriver, Joiner
from tests.drivers.streams_members import StreamsMember, settle, word_count

from .test_offsets import DAY_MS, commit, raw_commit

CONFIG = GroupConfig(streams=StreamsGroupConfig(max_size=3))
DELAY_MS = CONFIG.streams.initial_rebalance_delay_ms
SESSION_MS = CONFIG.streams.session_timeout_ms


@pytest.fixture
def driver() -> GroupDriver:
    driver = GroupDriver(CONFIG)
    driver.change_topics(**{"in": 2})
    return driver


@pytest.fixture
def ready(driver: GroupDriver) -> GroupDriver:
    """A coordinator of a cluster that has the internal topics of the word count, too."""
    driver.change_topics(words=2, counts=2)
    return driver


def joined(driver: GroupDriver, *names: str, process: str | None = None) -> list[StreamsMember]:
    """Members that have their tasks."""
    members = [StreamsMember(driver, name, process=process) for name in names]
    for member in members:
        assert member.beat() is ErrorCode.NONE
    settle(*members)
    return members


def state(driver: GroupDriver) -> str:
    (row,) = driver.ask(ListGroups(types=frozenset({"streams"})))
    assert (row.group_id, row.group_type, row.protocol_type) == ("g", "streams", "streams")
    return str(row.group_state)


def test_topics_are_named_then_created_then_assigned_after_the_delay(driver: GroupDriver) -> None:
    member = StreamsMember(driver, "m")
    assert member.beat() is ErrorCode.NONE
    assert (member.epoch, member.tasks) == (1, "")
    assert member.statuses == {
        Status.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured initial rebalance delay.",
        Status.MISSING_INTERNAL_TOPICS: "Internal topics are missing: counts, words",
    }
    compact = (("cleanup.policy", "compact"),)
    assert member.missing == (InternalTopic("counts", 2, 0, compact), InternalTopic("words", 2, 0, ()))
    assert state(driver) == "NotReady"
    driver.change_topics(words=2, counts=2)
    driver.advance(DELAY_MS)
    assert member.beat() is ErrorCode.NONE
    assert state(driver) in ("Assigning", "Stable")
    settle(member)
    assert (member.tasks, member.statuses, member.missing) == ("0_0 0_1 1_0 1_1", {}, ())
    assert state(driver) == "Stable"


def test_group_that_misses_internal_topics_has_no_tasks(driver: GroupDriver) -> None:
    member = StreamsMember(driver, "m")
    member.beat()
    settle(member)
    assert (member.tasks, member.missing != ()) == ("", True)
    driver.change_topics(words=2, counts=2)
    settle(member)
    assert member.tasks == "0_0 0_1 1_0 1_1"


def test_missing_source_topics_are_reported_and_assigned_once_they_exist(driver: GroupDriver) -> None:
    driver.change_topics(**{"in": 0}, words=3, counts=3)
    member = StreamsMember(driver, "m")
    member.beat()
    assert member.statuses[Status.MISSING_SOURCE_TOPICS] == "Source topics in are missing."
    settle(member)
    assert (member.tasks, state(driver)) == ("", "NotReady")
    driver.change_topics(**{"in": 3})
    settle(member)
    assert member.tasks == "0_0 0_1 0_2 1_0 1_1 1_2"
    driver.change_topics(**{"in": 0})
    settle(member)
    assert (member.tasks, state(driver)) == ("", "NotReady"), "a deleted source takes the tasks away"


def test_wrong_partition_counts_are_reported(ready: GroupDriver) -> None:
    ready.change_topics(counts=3)
    member = StreamsMember(ready, "m")
    member.beat()
    text = "Existing topic counts has different number of partitions: expected 2, found 3"
    assert member.statuses[Status.INCORRECTLY_PARTITIONED_TOPICS] == text


def test_tasks_move_only_after_their_owner_gave_them_up(ready: GroupDriver) -> None:
    (first,) = joined(ready, "a")
    second = StreamsMember(ready, "b")
    first.clings = True
    second.beat()
    settle(second, first, rounds=3)
    assert (second.tasks, first.tasks) == ("", "0_0 0_1 1_0 1_1")
    assert state(ready) == "Reconciling"
    first.clings = False
    settle(first, second)
    assert sorted([*first.tasks.split(), *second.tasks.split()]) == ["0_0", "0_1", "1_0", "1_1"]
    assert len(first.tasks.split()) == 2
    assert state(ready) == "Stable"


def test_member_that_reports_nothing_keeps_its_tasks(ready: GroupDriver) -> None:
    (first,) = joined(ready, "a")
    second = StreamsMember(ready, "b")
    second.beat()
    ready.advance(1_000)
    for _ in range(3):
        assert first.beat(active_tasks=None, standby_tasks=None, warmup_tasks=None) is ErrorCode.NONE
        second.beat()
    assert second.tasks == ""


def test_member_that_keeps_tasks_too_long_is_removed(ready: GroupDriver) -> None:
    (first,) = joined(ready, "a")
    first.clings = True
    second = StreamsMember(ready, "b")
    second.beat()
    for _ in range(12):
        ready.advance(5_000)
        second.beat()
        if first.beat() is not ErrorCode.NONE:
            break
    assert set(ready.shard.streams_groups["g"].members) == {"b"}
    settle(second)
    assert second.tasks == "0_0 0_1 1_0 1_1"


def test_wrong_epochs_are_fenced_and_the_previous_one_of_a_lost_response_is_not(ready: GroupDriver) -> None:
    first, second = joined(ready, "a", "b")
    assert first.beat(member_epoch=first.epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.epoch == 0
    assert first.beat() is ErrorCode.NONE
    settle(first, second)
    epoch = first.epoch
    StreamsMember(ready, "c").beat()
    ready.advance(1_000)
    second.leave()
    for _ in range(3):
        first.lose_response()
    assert ready.shard.streams_groups["g"].members["a"].epoch > epoch
    unknown = first.request(active_tasks=[h.RequestTaskIds("0", [0, 1]), h.RequestTaskIds("1", [0, 1])])
    assert first.beat() is ErrorCode.NONE, "the response of its previous epoch was lost"
    assert first.send(unknown).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_member_that_lost_a_response_gets_its_tasks_again(ready: GroupDriver) -> None:
    first, second = joined(ready, "a", "b")
    second.leave()
    ready.advance(1_000)
    for _ in range(3):
        first.lose_response()
    assert first.tasks != "0_0 0_1 1_0 1_1"
    first.beat()
    assert first.tasks == "0_0 0_1 1_0 1_1"
    first.beat()
    assert first.send(first.request()).active_tasks is None, "it knows them"


def test_session_ends_and_the_tasks_go_to_others(ready: GroupDriver) -> None:
    first, second = joined(ready, "a", "b")
    for _ in range(12):
        ready.advance(5_000)
        assert second.beat() is ErrorCode.NONE
    settle(second)
    assert second.tasks == "0_0 0_1 1_0 1_1"
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert "[GroupId g] Streams member a fenced from the group because the member session expired." in ready.log_lines


def test_failed_append_changes_nothing_and_the_session_still_ends(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    ready.append_error = ErrorCode.NOT_COORDINATOR
    ready.advance(SESSION_MS)
    assert set(ready.shard.streams_groups["g"].members) == {"a"}
    ready.append_error = ErrorCode.NONE
    ready.advance(SESSION_MS)
    assert not ready.shard.streams_groups["g"].members
    assert state(ready) == "Empty"
    del member


def test_standby_tasks_are_in_other_processes_and_take_over(ready: GroupDriver) -> None:
    ready.config = GroupConfig(streams=StreamsGroupConfig(num_standby_replicas=1))
    ready.restart()
    first, second = joined(ready, "a", "b")
    assert first.tasks.count("standby") == second.tasks.count("standby") == 1
    mine = set(first.standby["1"])
    second.leave()
    settle(first)
    assert first.tasks == "0_0 0_1 1_0 1_1", "one process has no standby task"
    assert mine <= set(first.active["1"])


def test_standby_replicas_of_the_group_start_a_new_assignment(ready: GroupDriver) -> None:
    first, second = joined(ready, "a", "b")
    assert first.standby == second.standby == {}
    set_group_config(ready, "streams.num.standby.replicas", "1")
    settle(first, second)
    assert len(first.standby["1"]) + len(second.standby["1"]) == 2


def set_group_config(driver: GroupDriver, name: str, value: str) -> None:
    from dataclasses import replace

    from ottla.metadata.image import GROUP

    driver.image = replace(driver.image, configs={**driver.image.configs, (GROUP, "g"): {name: value}})
    driver.shard.metadata_changed(driver.image, has_new_topics=False)


def test_group_settings_replace_the_settings_of_the_broker(ready: GroupDriver) -> None:
    set_group_config(ready, "streams.heartbeat.interval.ms", "7000")
    member = StreamsMember(ready, "m")
    assert member.send(member.request()).heartbeat_interval_ms == 7_000
    set_group_config(ready, "streams.session.timeout.ms", "9000")
    member.beat()
    ready.advance(9_000)
    assert member.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    set_group_config(ready, "streams.initial.rebalance.delay.ms", "0")
    assert member.beat() is ErrorCode.NONE
    ready.advance(1_000)
    assert member.beat() is ErrorCode.NONE
    assert member.tasks == "0_0 0_1 1_0 1_1", "without a delay"


def test_changes_of_many_members_are_assigned_together(ready: GroupDriver) -> None:
    (first,) = joined(ready, "a")
    second, third = StreamsMember(ready, "b"), StreamsMember(ready, "c")
    ready.advance(1_000)
    second.beat()
    third.beat()
    text = "Assignment delayed due to the configured assignment interval."
    assert third.statuses[Status.ASSIGNMENT_DELAYED] == text
    settle(first, second, third)
    assert sorted(len(each.tasks.split()) for each in (first, second, third)) == [1, 1, 2]


def test_stale_topology_is_reported_and_another_one_is_refused(ready: GroupDriver) -> None:
    member = StreamsMember(ready, "a", topology=word_count(epoch=2))
    member.beat()
    old = StreamsMember(ready, "b", topology=word_count(epoch=1))
    assert old.beat() is ErrorCode.NONE
    assert old.statuses[Status.STALE_TOPOLOGY].startswith("The member's topology epoch 1 is behind")
    other = StreamsMember(ready, "c", topology=word_count(epoch=2, source="words"))
    answer = other.send(other.request())
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )


def test_shutdown_of_the_application_reaches_all_members_until_the_group_is_empty(ready: GroupDriver) -> None:
    first, second = joined(ready, "a", "b")
    first.beat(shutdown_application=True)
    assert first.statuses[Status.SHUTDOWN_APPLICATION].startswith("Streams group member a encountered a fatal error")
    second.beat()
    assert Status.SHUTDOWN_APPLICATION in second.statuses
    first.leave()
    second.leave()
    first.beat()
    assert Status.SHUTDOWN_APPLICATION not in first.statuses


def test_endpoints_name_the_partitions_of_all_instances(ready: GroupDriver) -> None:
    first, second = StreamsMember(ready, "a"), StreamsMember(ready, "b")
    first.endpoint, second.endpoint = h.RequestEndpoint("one", 1), h.RequestEndpoint("two", 2)
    first.beat()
    second.beat()
    seen: dict[tuple[str, int], list[tuple[str, list[int]]]] = {}
    for _ in range(6):
        ready.advance(5_000)
        for member in (first, second):
            member.beat()
            for row in member.endpoints or ():
                active = sorted((part.topic, part.partitions) for part in row.active_partitions)
                seen[row.user_endpoint.host, row.user_endpoint.port] = active
    assert set(seen) == {("one", 1), ("two", 2)}
    both = sorted(part for rows in seen.values() for part in rows)
    assert [name for name, _ in both] == ["in", "in", "words", "words"]
    assert sorted(index for name, indexes in both if name == "in" for index in indexes) == [0, 1]
    first.beat()
    assert first.endpoints is None, "unchanged since the last heartbeat"


JOIN = {"member_epoch": 0}


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST, "Static membership is not yet supported."),
        ({"task_offsets": []}, ErrorCode.INVALID_REQUEST, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, ErrorCode.INVALID_REQUEST, "TaskEndOffsets are not supported yet."),
        (
            {"warmup_tasks": [h.RequestTaskIds("0", [0])]},
            ErrorCode.INVALID_REQUEST,
            "WarmupTasks are not supported yet.",
        ),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first"),
        ({"topology": None}, ErrorCode.INVALID_REQUEST, "Topology must be non-null when (re-)joining."),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST, "ActiveTasks must be empty when (re-)joining."),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is -3, but must be greater than or equal to"),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        ({"member_epoch": 3}, ErrorCode.INVALID_REQUEST, "Topology can only be provided when (re-)joining."),
        ({"member_epoch": 3, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found."),
        ({"member_epoch": -1, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (
            {"topology": h.Topology(subtopologies=[h.Subtopology(source_topics=["in"], source_topic_regex=["a.*"])])},
            ErrorCode.INVALID_REQUEST,
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            {"topology": h.Topology(subtopologies=[h.Subtopology(subtopology_id="0")])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "No source topics found for subtopology 0",
        ),
        (
            {"topology": h.Topology(epoch=-1)},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Topology epoch must be non-negative.",
        ),
        (
            {
                "topology": h.Topology(
                    subtopologies=[
                        h.Subtopology(source_topics=["in"], state_changelog_topics=[h.TopicInfo("c", partitions=3)])
                    ]
                )
            },
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Changelog topic c must have an undefined partition count, but it is set to 3.",
        ),
    ],
)
def test_invalid_requests_are_refused_and_write_nothing(
    driver: GroupDriver, fields: dict[str, Any], error: ErrorCode, message: str
) -> None:
    member = StreamsMember(driver, "m")
    answer = member.send(member.request(**fields))
    assert answer.error_code == error
    assert (answer.error_message or "").startswith(message)
    assert driver.log == []


def test_tasks_that_the_topology_does_not_have_are_refused(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    for rows, message in (
        ([h.RequestTaskIds("9", [0])], "Subtopology 9 does not exist in the topology."),
        ([h.RequestTaskIds("0", [2])], "Task 2 for subtopology 0 is invalid."),
    ):
        answer = member.send(member.request(active_tasks=rows))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert (answer.error_message or "").startswith(message)


def test_group_has_room_for_its_most_members(ready: GroupDriver) -> None:
    joined(ready, "a", "b", "c")
    more = StreamsMember(ready, "d")
    assert more.beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert StreamsMember(ready, "c").beat() is ErrorCode.NONE, "it returns"


def test_restart_replays_to_the_same_state(ready: GroupDriver) -> None:
    joined(ready, "a", "b")
    before = ready.shard.streams_groups["g"]
    after = ready.replayed().streams_groups["g"]
    assert after.members == before.members
    assert after.targets == before.targets
    assert (after.epoch, after.target.epoch, after.validated_epoch) == (before.epoch, before.target.epoch, 0)
    assert (after.assignment_settings, after.active_owners) == (before.assignment_settings, before.active_owners)
    assert after.topology is not None
    assert before.topology is not None
    assert after.topology.is_same(before.topology)


def test_restart_during_the_initial_delay_assigns_with_the_next_heartbeat(ready: GroupDriver) -> None:
    member = StreamsMember(ready, "a")
    member.beat()
    ready.restart()
    ready.advance(1_000)
    member.beat()
    settle(member)
    assert member.tasks == "0_0 0_1 1_0 1_1"


def test_commits_are_accepted_from_the_epoch_at_which_the_task_was_assigned(ready: GroupDriver) -> None:
    (first,) = joined(ready, "a")
    old = first.epoch
    second = StreamsMember(ready, "b")
    second.beat()
    settle(first, second)
    kept, lost = sorted(first.active["0"]), sorted(second.active["0"])
    assert first.epoch > old
    (topic,) = (each for each in ready.image.topics_by_name.values() if each.name == "in")

    def commit_as(member: str, epoch: int, partition: int, version: int = 9) -> ErrorCode:
        from ottla.protocol.messages.offset_commit import (
            OffsetCommitRequest,
            OffsetCommitRequestPartition,
            OffsetCommitRequestTopic,
        )

        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
        rows = [OffsetCommitRequestTopic(name="in", topic_id=topic.topic_id, partitions=[row])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member, topics=rows)
        return ErrorCode(ready.ask(request, version).topics[0].partitions[0].error_code)

    assert commit_as("a", first.epoch, kept[0]) is ErrorCode.NONE
    assert commit_as("a", old, kept[0]) is ErrorCode.NONE
    assert commit_as("a", old, lost[0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as("a", first.epoch + 1, kept[0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as("x", first.epoch, kept[0]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as("a", first.epoch, kept[0], version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit_as("", -1, kept[0]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_are_fetched_with_the_epoch_of_the_member(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
        return ErrorCode(ready.ask(FetchOffsets(group)).error_code)

    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("a", member.epoch) is ErrorCode.NONE
    assert fetch("a", member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("x", member.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_with_members_is_not_deleted_and_an_empty_one_is(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    assert ready.ask(DeleteGroup("g")).error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert commit(ready) is ErrorCode.NONE
    assert ready.ask(DeleteGroup("g")).error_code == ErrorCode.NONE
    assert not ready.shard.streams_groups
    assert not ready.shard.groups
    alive = {name for name, value in dict(ready.log).items() if value is not None}
    assert alive == set()
    kinds = [int.from_bytes(name[:2], "big") for name, value in ready.log[-4:]]
    assert kinds == [1, 20, 17, 23], "the order that Kafka can replay"


def test_offsets_expire_and_the_empty_group_with_them(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    member.leave()
    assert commit(ready) is ErrorCode.NONE
    ready.advance(6 * DAY_MS)
    assert state(ready) == "Empty"
    ready.advance(2 * DAY_MS)
    assert not ready.shard.streams_groups


def test_classic_member_converts_an_empty_group_and_finds_its_offsets(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    joiner = Joiner(ready)
    assert ready.answers[joiner.join()].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert joiner.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    ready.log.append(raw_commit(5, 4))
    ready.restart()
    short = Joiner(ready, session_timeout_ms=1)
    assert ready.answers[short.join()].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert set(ready.shard.streams_groups) == {"g"}, "a rejected join does not convert the group"
    ready.append_error = ErrorCode.NOT_COORDINATOR
    assert ready.answers[Joiner(ready).join()].error_code == ErrorCode.NOT_COORDINATOR
    ready.append_error = ErrorCode.NONE
    joiner = Joiner(ready)
    call = joiner.join()
    ready.advance(GroupConfig().initial_rebalance_delay_ms)
    assert joiner.joined(call).error_code == ErrorCode.NONE
    assert not ready.shard.streams_groups
    assert set(ready.shard.groups) == {"g"}
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert ready.ask(FetchOffsets(group)).topics[0].partitions[0].committed_offset == 5


def test_streams_member_converts_an_empty_classic_group_only(ready: GroupDriver) -> None:
    assert commit(ready) is ErrorCode.NONE
    assert set(ready.shard.groups) == {"g"}
    member = StreamsMember(ready, "a")
    offsets = ready.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None)))
    assert offsets.topics, "as a mirror commits them before the first member joins"
    assert member.beat() is ErrorCode.NONE
    assert not ready.shard.groups
    for _ in range(2):
        assert ready.ask(FetchOffsets(OffsetFetchRequestGroup(group_id="g", topics=None))) == offsets
        ready.restart()
    member.leave()
    ready.ask(DeleteGroup("g"))
    ConsumerMember(ready, "c", "in").beat()
    answer = member.send(member.request())
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a streams group.",
    )


def test_members_of_other_types_do_not_join_a_streams_group(ready: GroupDriver) -> None:
    (member,) = joined(ready, "a")
    for _ in range(2):
        assert ConsumerMember(ready, "c", "in").beat() is ErrorCode.GROUP_ID_NOT_FOUND
        share = ShareGroupHeartbeatRequest(group_id="g", member_id="s", member_epoch=0, subscribed_topic_names=["in"])
        assert ready.ask(share, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        if member.epoch:
            member.leave()
    assert set(ready.shard.streams_groups) == {"g"}


def test_group_is_described_with_its_topology_and_tasks(ready: GroupDriver) -> None:
    unknown = ready.ask(DescribeStreamsGroup("g"))
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    joined(ready, "a")
    row = ready.ask(DescribeStreamsGroup("g"))
    assert (row.group_state, row.group_epoch, row.assignment_epoch) == ("Stable", 2, 2)
    first, second = row.topology.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == (["in"], ["words"])
    assert [(topic.name, topic.partitions) for topic in second.repartition_source_topics] == [("words", 2)]
    (changelog,) = second.state_changelog_topics
    assert (changelog.name, changelog.partitions, changelog.topic_configs[0].value) == ("counts", 2, "compact")
    (member,) = row.members
    assert (member.member_id, member.process_id, member.topology_epoch) == ("a", "a", 0)
    tasks = [(each.subtopology_id, each.partitions) for each in member.assignment.active_tasks]
    assert tasks == [("0", [0, 1]), ("1", [0, 1])]
    assert member.target_assignment == member.assignment
    classic = ready.ask(DescribeGroup("g"), 6)
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    assert len(ready.ask(ListGroups(states=frozenset({"stable"})))) == 1


def test_states_of_members_have_the_values_of_kafka() -> None:
    assert {state.name: state.value for state in MemberState} == {
        "STABLE": 1,
        "UNREVOKED_TASKS": 2,
        "UNRELEASED_TASKS": 3,
        "UNKNOWN": 127,
    }
    assert MemberState.of(9) is MemberState.UNKNOWN
