"""The conversion of classic groups to consumer groups, and back, with their members (KIP-848).

A classic group becomes a consumer group when a consumer member joins. Its members stay, as classic members, with the
partitions that their leader assigned. A consumer group becomes a classic group when its last consumer member leaves
and classic members are left, or when a static member of the classic protocol replaces it.
`group.consumer.migration.policy` may forbid either.

A conversion is one batch that deletes the group of one type and writes the group of the other. The rest happens when
the batch was appended: the consumer member joins, or the classic members rebalance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.events import Append, Call, Effects, LogLine, Moment, RecordBytes, log_line
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.consumer import records as encode
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    NOTHING_OWNED,
    ClassicMember,
    ConsumerMember,
    MemberState,
    Owned,
)
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.errors import answer_appended
from ottla.coordinators.group.follow_ups import JoinDowngradedGroup, RebalanceDowngradedGroup
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.join import accept_returned
from ottla.coordinators.group.member import Member, Protocols
from ottla.coordinators.group.modern import Topics, metadata_hash
from ottla.coordinators.group.rebalance import prepare
from ottla.coordinators.group.records import group_record, group_tombstone
from ottla.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.wire import DecodeError


def encode_partitions(topics: Topics, owned: Mapping[Uuid, Iterable[int]], metadata: bytes) -> bytes:
    """A classic member's assignment, in the version of the metadata with which it joined."""
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topics.by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in owned.items()
        if topic_id in topics.by_id
    ]
    version = min(int.from_bytes(metadata[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), version)


# -- classic to consumer ---------------------------------------------------------------------------------------


# The leader computed the assignment, if there is one. The member that joins now must not wait for the next one: in a
# group without a generation its epoch would stay 0, which means that it joins.
NEVER_COMPUTED = 0
NO_TOPICS_HASH = 0


def upgrade_records(core: Core, classic: Group) -> list[RecordBytes]:
    """The records that convert a classic group with members; raises GROUP_ID_NOT_FOUND if it cannot be converted."""
    problem = None
    if not core.config.consumer.may_upgrade:
        problem = "online upgrade is disabled"
    elif not classic.is_consumer_group:
        problem = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > core.config.consumer.max_size:
        problem = "the group size exceeds the consumer group maximum size"
    if problem is None:
        try:
            group = _upgraded(core, classic)
        except (DecodeError, ValueError) as error:
            problem = f"the embedded consumer protocol is malformed: {error}"
    if problem is not None:
        message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {problem}."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    group_id, members = group.group_id, group.members.values()
    # The leader may not have noticed new partitions yet: another hash causes a new epoch, which assigns them.
    is_complete = _has_owners(core.topics, group)
    topics_hash = metadata_hash(group.state.topics, core.topics) if is_complete else NO_TOPICS_HASH
    return [
        group_tombstone(group_id),
        *(encode.member_record(group_id, member) for member in members),
        encode.epoch_record(group_id, classic.generation, topics_hash),
        *(encode.target_record(group_id, m.member_id, _partitions(m.assigned)) for m in members),
        encode.TYPES.target_epoch_record(group_id, classic.generation, NEVER_COMPUTED),
        *(encode.current_record(group_id, member) for member in members),
    ]


def _has_owners(topics: Topics, group: ConsumerGroup) -> bool:
    counts = topics.partition_counts(group.state.topics)
    return all(len(group.owners.get(topic_id, ())) >= count for topic_id, count in counts.items())


def _partitions(owned: Owned) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _upgraded(core: Core, classic: Group) -> ConsumerGroup:
    """The consumer group with the members of the classic group, in the epoch of its generation."""
    group = ConsumerGroup(classic.group_id)
    generation = classic.generation
    taken: set[tuple[Uuid, int]] = set()
    found: list[tuple[ConsumerMember, ConsumerProtocolSubscription]] = []
    for member in classic.members.values():
        name = classic.protocol_name or member.protocols[0][0]
        subscription = decode_subscription(member.metadata(name))
        assignment = decode_assignment(member.assignment) if member.assignment else ConsumerProtocolAssignment()
        if assignment.user_data:
            raise ValueError("userData from a custom assignor would be lost")
        upgraded = ConsumerMember(
            member.member_id,
            epoch=generation,
            previous_epoch=generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            # A faulty leader may have assigned a partition twice: one member keeps it.
            assigned=_take(core.topics, assignment.assigned_partitions, generation, taken),
            classic=ClassicMember(member.session_timeout_ms, member.protocols),
        )
        found.append((upgraded, subscription))
    for upgraded, subscription in found:
        # A cooperative member owns a partition that it lost until it joins again.
        revoking = _take(core.topics, subscription.owned_partitions, generation, taken)
        state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
        group.put(replace(upgraded, revoking=revoking, state=state))
    return group


def _take(
    topics: Topics,
    rows: Iterable[ConsumerProtocolAssignmentTopicPartition | ConsumerProtocolSubscriptionTopicPartition],
    generation: int,
    taken: set[tuple[Uuid, int]],
) -> dict[Uuid, dict[int, int]]:
    """Those partitions of existing topics that are not taken yet, with their epoch; takes them."""
    found: dict[Uuid, dict[int, int]] = {}
    for row in rows:
        topic = topics.by_name.get(row.topic)
        free = [] if topic is None else [p for p in row.partitions if (topic.topic_id, p) not in taken]
        if topic is not None and free:
            taken.update((topic.topic_id, partition) for partition in free)
            found.setdefault(topic.topic_id, {}).update(dict.fromkeys(free, generation))
    return found


# -- consumer to classic ---------------------------------------------------------------------------------------


def members_after_downgrade(
    core: Core, group: ConsumerGroup, leaving: Collection[str], joining: ConsumerMember | None = None
) -> list[ConsumerMember]:
    """The members of the classic group that the group becomes; empty if it stays a consumer group.

    It becomes a classic group if only classic members are left without those that leave, and the policy allows it.
    The first member is the leader: one that joins now learns that it must watch the topics.
    """
    members = [] if joining is None else [joining]
    members += [member for member_id, member in group.members.items() if member_id not in leaving]
    is_classic = all(member.classic is not None for member in members)
    has_room = len(members) <= core.config.max_size
    return members if is_classic and has_room and core.config.consumer.may_downgrade else []


def downgrade_records(
    core: Core, group: ConsumerGroup, members: Iterable[ConsumerMember], now: Moment, *, must_rebalance: bool = True
) -> list[RecordBytes]:
    """The records that convert the group to a classic group with these members, who keep their partitions.

    They have those that they own, not their target: a consumer member that joins before the members rebalance converts
    the group back, and takes these assignments as the owners. Two cooperative members would then own a partition that
    one of them has not given up yet.

    If the members must rebalance, the record names no leader, so that a coordinator that loads it starts the rebalance:
    otherwise no member would get the partitions of the member that left.
    """
    classic = Group(group.group_id, now.wall_ms)
    classic.generation = group.epoch
    owned = {}
    for member in members:
        if member.classic is not None:
            classic.add(_classic_member(member, member.classic), PROTOCOL_TYPE)
            owned[member.member_id] = _all_owned(member)
    name = classic.protocol_name = classic.select_protocol()
    assignments = {
        member.member_id: encode_partitions(core.topics, owned[member.member_id], member.metadata(name))
        for member in classic.members.values()
    }
    leader = None if must_rebalance else classic.leader
    record = group_record(classic, classic.members.values(), leader, assignments)
    return [*encode.group_tombstones(group), record]


def _all_owned(member: ConsumerMember) -> Partitions:
    """The partitions of a member, with those that it is giving up."""
    owned = dict(_partitions(member.assigned))
    for topic_id, partitions in _partitions(member.revoking).items():
        owned[topic_id] = owned.get(topic_id, frozenset()) | partitions
    return owned


def protocols_of(members: Iterable[ConsumerMember]) -> dict[str, Protocols]:
    """The protocols of classic members by member id. The record of a classic group does not have all of them."""
    return {member.member_id: member.classic.protocols for member in members if member.classic is not None}


def _classic_member(member: ConsumerMember, classic: ClassicMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
    )


def replace_last_consumer_member(
    core: Core, call: Call[JoinGroupRequest], group: ConsumerGroup, joining: ConsumerMember, epoch: int, now: Moment
) -> Append | None:
    """Convert the group if `joining`, a static classic member, replaces its last consumer member; otherwise None.

    As when a static member returns to a classic group, there is no rebalance if its subscription is the same. There is
    one if the target assignment has another epoch than `epoch`, or if the other members have not reached it: the
    classic protocol has no other way to give them partitions.
    """
    replaced = group.static_member(joining.instance_id)
    if replaced is None or replaced.classic is not None:
        return None
    members = members_after_downgrade(core, group, {replaced.member_id}, joining)
    if not members:
        return None
    target_epoch = group.target.epoch
    are_placed = all(member is joining or member.is_reconciled(target_epoch) for member in members)
    must_rebalance = epoch > target_epoch or not are_placed
    if not must_rebalance:
        # Without a rebalance it gets its target now. The others have theirs, so that no other member owns a part of it.
        target = {topic: dict.fromkeys(part, target_epoch) for topic, part in group.target_of(joining).items()}
        members[0] = replace(joining, assigned=target, revoking=NOTHING_OWNED)
    follow_up = JoinDowngradedGroup(
        call,
        group.group_id,
        joining.member_id,
        replaced.member_id,
        protocols_of(members),
        must_rebalance,
    )
    records = downgrade_records(core, group, members, now, must_rebalance=must_rebalance)
    return core.append(records, follow_up)


def downgrade_appended(core: Core, follow_up: RebalanceDowngradedGroup, error: ErrorCode, now: Moment) -> Effects:
    """Answer the request by which the last consumer member left, and let the classic members rebalance."""
    group_id, protocols, answer = follow_up
    effects: Effects = [] if answer is None else answer_appended(core, answer, error, now)
    group = core.groups.get(group_id)
    if error is not ErrorCode.NONE or group is None:
        return effects
    line = _take_over_members(core, group, protocols, now)
    reason = f"Downgrade group {group_id} from consumer to classic for member leaving."
    return [line, *prepare(core, group, now, reason), *effects]


def replacement_appended(core: Core, follow_up: JoinDowngradedGroup, error: ErrorCode, now: Moment) -> Effects:
    """Answer the member that replaced the last consumer member, or let it wait for the rebalance of the group."""
    call, group_id, member_id, replaced_id, protocols, must_rebalance = follow_up
    if error is not ErrorCode.NONE:
        return [refuse_join(call, error)]
    group = core.groups[group_id]
    line = _take_over_members(core, group, protocols, now)
    member = group.members[member_id]
    if not must_rebalance:
        return [line, accept_returned(call, group, member, replaced_id)]
    group.park_join(member, call)
    reason = f"Downgrade group {group_id} from consumer to classic for static member replacement"
    return [line, *prepare(core, group, now, f"{reason} with different subscription.")]


def _take_over_members(core: Core, group: Group, protocols: Mapping[str, Protocols], now: Moment) -> LogLine:
    """Restore what the record of the converted group does not have, and expect heartbeats of its members."""
    for member in group.members.values():
        group.update(member, protocols[member.member_id], member.rebalance_timeout_ms, member.session_timeout_ms)
        core.expect_heartbeat(group, member, now)
    return log_line("[GroupId %s] Converted the consumer group to a classic group.", group.group_id)
