"""StreamsGroupHeartbeat (KIP-1071): join with a topology, stay in the group, give up tasks.

One heartbeat adds or updates the member, compares the topology with the topics, starts a new group epoch if members,
topics or settings changed, computes the target assignment of that epoch, and brings the member closer to its target.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern.epochs import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from ottla.coordinators.group.modern.requests import known_member, problem_of_ids
from ottla.coordinators.group.modern.settings import group_setting
from ottla.coordinators.group.records import group_tombstone
from ottla.coordinators.group.streams import records as encode
from ottla.coordinators.group.streams.change import NOT_VALIDATED, Change
from ottla.coordinators.group.streams.endpoints import endpoints
from ottla.coordinators.group.streams.events import StreamsHeartbeat, StreamsOutcome
from ottla.coordinators.group.streams.fencing import STREAMS, existing_group, expect_heartbeat, leave
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import StreamsMember
from ottla.coordinators.group.streams.tasks import Tasks, TaskSets, task_ids, task_sets
from ottla.coordinators.group.streams.topics import ConfiguredTopology, Status
from ottla.coordinators.group.streams.topology import StreamsTopology
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages import streams_group_heartbeat as h

INITIAL_DELAY = "streams.initial.rebalance.delay.ms"


def heartbeat(core: Core, call: Call[StreamsHeartbeat], event: StreamsHeartbeat, now: Moment) -> Effects:
    """Answer one StreamsGroupHeartbeat."""
    request = event.request
    try:
        problem = _unsupported(request) or _problem(request)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
        if request.member_epoch < JOIN_EPOCH:
            return leave(core, call, request, now)
        return _stay(core, call, request, now)
    except KafkaError as error:
        response = h.StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        return [Reply(call, StreamsOutcome(response))]


def _unsupported(request: h.StreamsGroupHeartbeatRequest) -> str | None:
    """Return what Kafka 4.3 does not support either, in its words."""
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        return "WarmupTasks are not supported yet."
    if request.topology is not None and any(row.source_topic_regex for row in request.topology.subtopologies):
        return "Regular expressions for source topics are not supported yet."
    return None


def _problem(request: h.StreamsGroupHeartbeatRequest) -> str | None:
    """Return what is wrong with a request. Raises STREAMS_INVALID_TOPOLOGY."""
    problem = problem_of_ids(request)
    if problem is not None:
        return problem
    if request.member_epoch == JOIN_EPOCH:
        problem = _problem_of_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        problem = "InstanceId can't be null."
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        problem = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    if problem is not None:
        return problem
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(rows is not None for rows in tasks) and any(rows is None for rows in tasks):
        return "If one task-type is non-null, all must be non-null."
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def _problem_of_join(request: h.StreamsGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for name, rows in (("Active", request.active_tasks), ("Standby", request.standby_tasks)):
        if rows is None or rows:
            return f"{name}Tasks must be empty when (re-)joining."
    if request.warmup_tasks is None:
        return "WarmupTasks must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    for row in request.topology.subtopologies:
        for topic in row.state_changelog_topics:
            if topic.partitions:
                message = f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"{message} {topic.partitions}.")
    return None


def _stay(core: Core, call: Call[StreamsHeartbeat], request: h.StreamsGroupHeartbeatRequest, now: Moment) -> Effects:
    """Handle the heartbeat of a member that joins or stays."""
    group, records = _group_of(core, request)
    change = Change(core, group, now)
    change.records += records
    reported = _reported(request)
    before = _member(change, request, reported)
    after = _described(call, request, before)
    is_changed = change.update_member(before, after)
    topology = _topology(change, request)
    if group.topology is not None and after.topology_epoch < group.topology.epoch:
        text = f"The member's topology epoch {after.topology_epoch} is behind the group's topology epoch"
        change.add_status(Status.STALE_TOPOLOGY, f"{text} {group.topology.epoch}.")
    configured, topics_hash, has_new_topics = change.configured(topology)
    _check_tasks(configured, reported)
    validated = topology.epoch if configured.is_ready else NOT_VALIDATED
    settings = change.settings()
    is_new_epoch = is_changed or has_new_topics or validated != group.validated_epoch
    if is_new_epoch or settings != group.assignment_settings:
        change.next_epoch(topics_hash, validated, settings)
    if change.has_compared:
        group.state.compared_topics(now, change.epoch)
    _delay_first_assignment(core, group, now)
    moved = change.advance(after, reported, configured, settings)
    expect_heartbeat(core, group.group_id, moved.member_id, now)
    if request.shutdown_application and group.shutdown_member is None:
        group.shutdown_member = moved.member_id
    # A member whose response was lost reports fewer tasks than it has.
    has_new_tasks = before.owned != moved.owned or (reported is not None and reported != moved.owned.tasks)
    outcome = _outcome(change, request, moved, configured, with_tasks=has_new_tasks)
    return [*change.lines, *core.reply_after_append(call, change.records, outcome)]


def _group_of(core: Core, request: h.StreamsGroupHeartbeatRequest) -> tuple[StreamsGroup, list[RecordBytes]]:
    """Return the group, and the record that deletes an empty classic group that a member converts."""
    group_id = request.group_id
    if request.member_epoch != JOIN_EPOCH:
        return existing_group(core, group_id), []
    group = core.streams_groups.get(group_id)
    classic = core.groups.get(group_id)
    if group is not None:
        STREAMS.check_room(group, request.member_id, core.config.streams.max_size)
        return group, []
    if core.has_group(group_id) and (classic is None or not classic.is_empty):
        existing_group(core, group_id)
    return StreamsGroup(group_id), [] if classic is None else [group_tombstone(group_id)]


def _reported(request: h.StreamsGroupHeartbeatRequest) -> Tasks | None:
    rows = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return None if rows[0] is None else Tasks(*(task_sets(each or ()) for each in rows))


def _member(change: Change, request: h.StreamsGroupHeartbeatRequest, reported: Tasks | None) -> StreamsMember:
    group, member_id = change.group, request.member_id
    if request.member_epoch == JOIN_EPOCH:
        change.log("Member %s joins the streams group.", member_id)
        return group.members.get(member_id) or StreamsMember(member_id)
    member = known_member(group, member_id)
    is_consistent = reported is not None and member.owned.includes(reported)
    STREAMS.check_epoch(member, request.member_epoch, is_consistent=is_consistent)
    return member


def _described(
    call: Call[StreamsHeartbeat], request: h.StreamsGroupHeartbeatRequest, before: StreamsMember
) -> StreamsMember:
    """The member as the request describes it; null and -1 mean "as before"."""
    endpoint, tags, timeout_ms = request.user_endpoint, request.client_tags, request.rebalance_timeout_ms
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=call.client_id,
        client_host=call.client_host,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=before.endpoint if endpoint is None else (endpoint.host, endpoint.port),
        tags=before.tags if tags is None else tuple(sorted({row.key: row.value for row in tags}.items())),
    )


def _topology(change: Change, request: h.StreamsGroupHeartbeatRequest) -> StreamsTopology:
    """Return the group's topology; the first member brings it."""
    group = change.group
    if request.topology is None:
        if group.topology is None:
            message = "The topology is null and the group topology is also null."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        return group.topology
    sent = StreamsTopology.of_request(request.topology)
    if group.topology is None:
        change.records.append(encode.topology_record(group.group_id, sent))
        change.log("Member %s initialized the topology with epoch %d.", request.member_id, sent.epoch)
        return sent
    if group.topology.epoch <= sent.epoch and not group.topology.is_same(sent):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology


def _check_tasks(configured: ConfiguredTopology, reported: Tasks | None) -> None:
    """Raise INVALID_REQUEST for tasks that the topology does not have."""
    if not configured.is_ready or configured.subtopologies is None or reported is None:
        return
    for tasks in reported:
        for name, partition in task_ids(tasks):
            row = configured.subtopologies.get(name)
            if row is None:
                message = f"Subtopology {name} does not exist in the topology."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            if not 0 <= partition < row.tasks:
                message = f"Task {partition} for subtopology {name} is invalid. Number of tasks for this subtopology:"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message} {row.tasks}")


def _delay_first_assignment(core: Core, group: StreamsGroup, now: Moment) -> None:
    """Let an empty group wait for more members before it gets its first assignment."""
    default_ms = core.config.streams.initial_rebalance_delay_ms
    delay_ms = group_setting(core.overrides(group.group_id), INITIAL_DELAY, default_ms)
    key = (Kind.ASSIGNMENT, group.group_id, "")
    if group.is_empty and delay_ms > 0 and core.timers.deadline(key) is None:
        core.timers.set(key, now.monotonic_ms + delay_ms)


def _outcome(
    change: Change,
    request: h.StreamsGroupHeartbeatRequest,
    after: StreamsMember,
    configured: ConfiguredTopology,
    *,
    with_tasks: bool,
) -> StreamsOutcome:
    """The member's epoch; its tasks only if it joins or they are new to it; and what keeps the group from working."""
    core, group = change.core, change.group
    interval_ms = STREAMS.heartbeat_interval_ms(core, group.group_id, core.config.streams.heartbeat_interval_ms)
    response = h.StreamsGroupHeartbeatResponse(
        member_id=after.member_id, member_epoch=after.epoch, heartbeat_interval_ms=interval_ms
    )
    if request.member_epoch == JOIN_EPOCH or with_tasks:
        tasks = after.owned.tasks
        response.active_tasks = _rows(tasks.active)
        response.standby_tasks = _rows(tasks.standby)
        response.warmup_tasks = _rows(tasks.warmup)
        if after.endpoint is not None:
            group.endpoint_epoch += 1
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = endpoints(group, after, core.topics)
    if group.group_id in core.streams_groups:
        response.endpoint_information_epoch = group.endpoint_epoch
    if configured.problem is not None:
        change.add_status(*configured.problem)
    if group.shutdown_member is not None:
        text = f"Streams group member {group.shutdown_member} encountered a fatal error and requested a shutdown for"
        change.add_status(Status.SHUTDOWN_APPLICATION, f"{text} the entire application.")
    response.status = change.statuses
    return StreamsOutcome(response, configured.missing, interval_ms)


def _rows(tasks: TaskSets) -> list[h.ResponseTaskIds]:
    return [h.ResponseTaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]
