"""ConsumerGroupHeartbeat (KIP-848): join, stay in the group, acknowledge partitions, leave.

One heartbeat does three things, as far as necessary:

1. It adds or updates the member. A new subscription, or a change of the subscribed topics, starts a new group epoch.
2. It computes the target assignment of the group's epoch, at most once per assignment interval.
3. It brings the member closer to its target, by the rules of `reconciliation`.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply, log_line
from ottla.coordinators.group.consumer.change import Change, owned_partitions
from ottla.coordinators.group.consumer.fencing import CONSUMER, check_static, expect_heartbeat, leave
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.matching import maybe_start, update_expression
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.consumer.migration import upgrade_records
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.follow_ups import JoinUpgradedGroup
from ottla.coordinators.group.modern.epochs import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from ottla.coordinators.group.modern.requests import known_member, problem_of_ids
from ottla.coordinators.group.rebalance import fail_joins, fail_syncs
from ottla.coordinators.group.records import group_tombstone
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

# Since this version the client creates the member id (KIP-1082).
CLIENT_MAKES_MEMBER_ID_SINCE = 1


def heartbeat(
    core: Core, call: Call[ConsumerGroupHeartbeatRequest], request: ConsumerGroupHeartbeatRequest, now: Moment
) -> Effects:
    """Answer one ConsumerGroupHeartbeat."""
    try:
        _validate(core, call, request)
        if request.member_epoch < JOIN_EPOCH:
            return leave(core, call, request, existing_group(core, request.group_id, "Group"), now)
        return _stay(core, call, request, now)
    except KafkaError as error:
        return [Reply(call, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message))]


def existing_group(core: Core, group_id: str, noun: str | None = None) -> ConsumerGroup:
    """Return the consumer group; raises GROUP_ID_NOT_FOUND. `noun` begins Kafka's message, which differs by request."""
    return CONSUMER.existing(core, core.consumer_groups, group_id, noun)


def _validate(core: Core, call: Call[ConsumerGroupHeartbeatRequest], request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    needs_id = call.api_version >= CLIENT_MAKES_MEMBER_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    problem = problem_of_ids(request, needs_member_id=needs_id)
    if problem is not None:
        pass
    elif request.instance_id is not None and not request.instance_id.strip():
        problem = "InstanceId can't be empty."
    elif epoch == JOIN_EPOCH:
        problem = _problem_of_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    assignors = core.config.consumer.assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{message}{', '.join(assignors)}.")


def _problem_of_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _stay(
    core: Core, call: Call[ConsumerGroupHeartbeatRequest], request: ConsumerGroupHeartbeatRequest, now: Moment
) -> Effects:
    """Handle the heartbeat of a member that joins or stays."""
    joins = request.member_epoch == JOIN_EPOCH
    if joins:
        classic = core.groups.get(request.group_id)
        # As in Kafka, a group whose members have only asked for their ids is empty: they join the consumer group.
        if classic is not None and not classic.is_empty:
            records = upgrade_records(core, classic)
            return [core.append(records, JoinUpgradedGroup(call, request, classic))]
        group, records = _group_to_join(core, request.group_id)
    else:
        group, records = existing_group(core, request.group_id), []
    CONSUMER.check_room(group, request.member_id, core.config.consumer.max_size)
    change = Change(core, group, now)
    change.records += records
    owned = None
    if request.topic_partitions is not None:
        owned = owned_partitions((row.topic_id, row.partitions) for row in request.topic_partitions)
    before = _member(change, request, owned)
    after = _described(call, request, before)
    names_changed = change.update_member(before, after)
    regex_changed, is_resolved = update_expression(change, before, after)
    lines = maybe_start(change, before, after, call.may_describe)
    # A new group must leave epoch 0, also if it has no topics yet.
    is_new_epoch = names_changed or is_resolved or group.epoch == 0
    if is_new_epoch or group.state.must_compare_topics(now):
        change.next_epoch(group.topics_after(before, after), only_if_topics_changed=not is_new_epoch)
    moved = change.advance(before, after, owned, has_new_subscription=names_changed or regex_changed)
    expect_heartbeat(core, group.group_id, moved, now)
    response = _response(core, request, before, moved)
    return [*change.lines, *lines, *core.reply_after_append(call, change.records, response)]


def _group_to_join(core: Core, group_id: str) -> tuple[ConsumerGroup, list[RecordBytes]]:
    """Return the group, and the record that deletes an empty classic group; raises GROUP_ID_NOT_FOUND."""
    group = core.consumer_groups.get(group_id)
    if group is not None:
        return group, []
    if group_id not in core.groups and core.has_group(group_id):
        existing_group(core, group_id)
    return ConsumerGroup(group_id), [group_tombstone(group_id)] if group_id in core.groups else []


def upgrade_appended(core: Core, follow_up: JoinUpgradedGroup, error: ErrorCode, now: Moment) -> Effects:
    """Let the consumer member join the group that was converted; its classic members learn of it by a rebalance."""
    call, request, former = follow_up
    if error is not ErrorCode.NONE:
        return [Reply(call, ConsumerGroupHeartbeatResponse(error_code=error))]
    effects = fail_joins(former, ErrorCode.REBALANCE_IN_PROGRESS)
    effects += fail_syncs(core, former, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group = core.consumer_groups[request.group_id]
    for member in group.members.values():
        expect_heartbeat(core, group.group_id, member, now)
    line = log_line("[GroupId %s] Converted the classic group to a consumer group.", group.group_id)
    return [line, *effects, *heartbeat(core, call, request, now)]


def _member(
    change: Change, request: ConsumerGroupHeartbeatRequest, owned: dict[bytes, frozenset[int]] | None
) -> ConsumerMember:
    """Return the member as it was; a new member that joins, or a static one that returns, has its new id."""
    group, instance_id = change.group, request.instance_id
    member_id = request.member_id or change.core.new_uuid()
    if request.member_epoch != JOIN_EPOCH:
        member = known_member(group, member_id) if instance_id is None else check_static(group, member_id, instance_id)
        _check_epoch(member, request.member_epoch, owned)
        return member
    existing = group.static_member(instance_id)
    if instance_id is None or existing is None:
        change.log("Member %s joins the consumer group using the consumer protocol.", member_id)
        return group.members.get(member_id) or ConsumerMember(member_id)
    if existing.member_id == member_id and existing.classic is None and not existing.has_left_for_now:
        return existing  # fenced, and joins again under its id
    if existing.classic is None and not existing.has_left_for_now:
        message = f"Static member {member_id} with instance id {instance_id} cannot join the group because the"
        owner = f"instance id is owned by {existing.member_id} member."
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, f"{message} {owner}")
    return return_static_member(change, existing, member_id)


def return_static_member(change: Change, existing: ConsumerMember, member_id: str) -> ConsumerMember:
    """Write the static member under its new id; it begins at epoch 0."""
    returned = replace(existing, member_id=member_id, epoch=0, previous_epoch=0)
    change.replace_member(existing, returned)
    change.log(
        "Static member with instance id %s re-joins the consumer group. Created a new member %s to replace the existing"
        " member %s.",
        existing.instance_id, member_id, existing.member_id,
    )  # fmt: skip
    return returned


def _check_epoch(member: ConsumerMember, received: int, owned: dict[bytes, frozenset[int]] | None) -> None:
    nothing: dict[int, int] = {}
    is_consistent = owned is not None and all(
        partitions <= member.assigned.get(topic, nothing).keys() for topic, partitions in owned.items()
    )
    CONSUMER.check_epoch(member, received, is_consistent=is_consistent)


def _described(
    call: Call[ConsumerGroupHeartbeatRequest], request: ConsumerGroupHeartbeatRequest, before: ConsumerMember
) -> ConsumerMember:
    """The member as the request describes it; null and -1 mean "as before"."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        topic_names=before.topic_names if names is None else frozenset(names),
        topic_regex=before.topic_regex if regex is None else regex,
        client_id=call.client_id,
        client_host=call.client_host,
        classic=None,
    )


def _response(
    core: Core, request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, after: ConsumerMember
) -> ConsumerGroupHeartbeatResponse:
    """The member's epoch; its partitions only if it joins, sent a full request, or they changed."""
    default_ms = core.config.consumer.heartbeat_interval_ms
    response = ConsumerGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=CONSUMER.heartbeat_interval_ms(core, request.group_id, default_ms),
    )
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    if request.member_epoch == JOIN_EPOCH or is_full or before.assigned != after.assigned:
        response.assignment = Assignment(
            topic_partitions=[
                ResponseTopicPartitions(topic_id=topic, partitions=sorted(after.assigned[topic]))
                for topic in sorted(after.assigned)
            ]
        )
    return response
