"""Descriptions of streams groups: the partitions that the active tasks of a member read."""

from __future__ import annotations

from ottla.clients.admin import GroupDescription, streams_groups
from ottla.clients.errors import GroupNotFound
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages import streams_group_describe as d


def test_members_have_the_partitions_of_all_topics_that_their_tasks_read() -> None:
    topology = d.Topology(
        subtopologies=[
            d.Subtopology("0", source_topics=["a", "b"]),
            d.Subtopology("1", repartition_source_topics=[d.TopicInfo("words")]),
        ]
    )
    current = d.Assignment(active_tasks=[d.TaskIds("0", [1])], standby_tasks=[d.TaskIds("1", [0])])
    target = d.Assignment(active_tasks=[d.TaskIds("1", [1]), d.TaskIds("gone", [0])])
    member = d.Member("m", 7, client_id="c", assignment=current, target_assignment=target)
    row = d.DescribedGroup(group_id="g", group_state="Stable", group_epoch=8, topology=topology, members=[member])
    missing = d.DescribedGroup(group_id="x", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    (_, found), (_, error) = streams_groups.read(d.StreamsGroupDescribeResponse(groups=[row, missing]), ())
    assert isinstance(found, GroupDescription)
    assert (found.type.value, found.state.value, found.assignor, found.epoch) == ("streams", "Stable", "sticky", 8)
    (described,) = found.members
    assert described.topics == ("a", "b", "words")
    assert described.assignment == (TopicPartition("a", 1), TopicPartition("b", 1))
    assert described.target == (TopicPartition("words", 1),)
    assert isinstance(error, GroupNotFound)
