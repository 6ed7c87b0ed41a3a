"""Commands of `consumer_*.txt`: one group `g` with members of the consumer protocol (KIP-848) and of the classic one.

    topics NAME=COUNT...                    create topics, or change their numbers of partitions; 0 deletes one
    beat NAME [topics=T,U] [regex=R] [instance=I] [assignor=A] [epoch=N] [full=yes]
                                            send ConsumerGroupHeartbeat; all options but `epoch` and `full` persist.
                                            A member gives up partitions with the heartbeat after the response
    lose NAME                               send ConsumerGroupHeartbeat, whose response is lost
    keep NAME                               the member keeps the partitions that it should give up, until `give NAME`
    forget NAME                             the client restarts: it loses its epoch and partitions; a consumer keeps its
                                            member id
    leave NAME [epoch=-2]                   send ConsumerGroupHeartbeat to leave; a classic member sends LeaveGroup
    join NAME [topics=T,U] [instance=I]     send JoinGroup; from then on NAME is a classic member
    sync NAME [assign=MEMBER:T-0+T-1,...]   send SyncGroup, as leader with an assignment
    heartbeat NAME                          send Heartbeat
    commit NAME TOPIC-PARTITION=OFFSET [epoch=N]    send OffsetCommit
    advance MS                              let time pass; timers elapse
    appends ERROR                           appends fail with this error from now on; NONE: they succeed
    restart                                 the coordinator restarts and loads its log
    describe                                print the group

Each effect is a line: `append` with the record's content, `reply` with the client's name, `log` with the log line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import Append, Call, LogLine, Reply
from ottla.coordinators.group.consumer.member import MemberState
from ottla.protocol import group_records as g
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    decode_assignment,
    encode_assignment,
)
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.drivers.consumer_members import ClassicConsumer, Member
from tests.scenarios.group import GROUP, RecordingDriver, ShortIds


class ConsumerScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self._driver = RecordingDriver()
        self._members: dict[str, Member] = {}
        self._classic: dict[str, ClassicConsumer] = {}
        self._ids = ShortIds()

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        self._driver.effects.clear()
        match verb:
            case "topics":
                self._driver.change_topics(**{name: int(count) for name, count in options.items()})
            case "advance":
                self._driver.advance(int(arguments[0]))
            case "appends":
                self._driver.append_error = ErrorCode[arguments[0]]
            case "restart":
                self._driver.restart()
            case "describe":
                return [self._ids.shorten(line) for line in self._describe()]
            case "join" | "sync" | "heartbeat":
                self._run_classic(verb, arguments[0], options)
            case "leave" if arguments[0] in self._classic:
                client = self._classic[arguments[0]]
                row = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
                self._driver.send(LeaveGroupRequest(group_id=GROUP, members=[row]), 5, arguments[0])
            case "commit":
                self._commit(arguments[0], options)
            case _:
                self._run_consumer(verb, arguments[0], options)
        return [self._ids.shorten(line) for effect in self._driver.effects for line in self._lines(effect)]

    # -- members of the consumer protocol ------------------------------------------------------------------------

    def _run_consumer(self, verb: str, name: str, options: Mapping[str, str]) -> None:
        member = self._members.setdefault(name, Member(self._driver, name))
        self._classic.pop(name, None)
        match verb:
            case "beat":
                self._beat(member, options)
            case "lose":
                member.lose_response()
                # The reply is lost on its way.
                self._driver.effects = [each for each in self._driver.effects if not isinstance(each, Reply)]
            case "keep" | "give":
                member.clings = verb == "keep"
            case "forget":
                member.epoch, member.owned, member.assigned = 0, {}, {}
            case "leave":
                member.leave(int(options.get("epoch", "-1")))
                member.epoch, member.owned, member.assigned = 0, {}, {}
            case _:
                raise ValueError(f"unknown command {verb}")

    @staticmethod
    def _beat(member: Member, options: Mapping[str, str]) -> None:
        if "topics" in options:
            member.topics, member.regex = options["topics"].split(","), ""
        if "regex" in options:
            member.topics, member.regex = [], options["regex"]
        member.instance_id = options.get("instance", member.instance_id)
        member.assignor = options.get("assignor", member.assignor)
        is_new = "topics" in options or "regex" in options or "assignor" in options
        request = member.request(full=is_new or "full" in options)
        request.member_epoch = int(options.get("epoch", request.member_epoch))
        member.send(request)

    def _commit(self, name: str, options: Mapping[str, str]) -> None:
        client = self._classic.get(name)
        member = self._members.get(name)
        epoch = client.generation if client is not None else member.epoch if member is not None else -1
        topics = []
        for partition, offset in options.items():
            if partition != "epoch":
                topic, _, index = partition.rpartition("-")
                row = OffsetCommitRequestPartition(partition_index=int(index), committed_offset=int(offset))
                topics.append(OffsetCommitRequestTopic(name=topic, partitions=[row]))
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=int(options.get("epoch", epoch)),
            member_id=name if client is None else client.member_id,
            topics=topics,
        )
        self._driver.send(request, 9, name)

    # -- members of the classic protocol -------------------------------------------------------------------------

    def _run_classic(self, verb: str, name: str, options: Mapping[str, str]) -> None:
        client = self._classic.get(name)
        if client is None:
            client = self._classic[name] = ClassicConsumer(self._driver, client_id=name)
        match verb:
            case "join":
                client.topics = options["topics"].split(",") if "topics" in options else client.topics
                client.instance_id = options.get("instance", client.instance_id)
                client.protocols = (("range", client.metadata()),)
                self._driver.send(client.join_request(), client.version, name)
            case "sync":
                rows = [row.split(":") for row in options.get("assign", "").split(",") if row]
                assignments = {self._ids.full[member]: _assignment(text) for member, text in rows}
                answer = self._driver.answers.get(client.sync(assignments))
                if answer is not None and answer.error_code == ErrorCode.NONE:
                    client.owned = {row.topic: row.partitions for row in _assigned(answer.assignment)}
            case "heartbeat":
                client.heartbeat()

    # -- output --------------------------------------------------------------------------------------------------

    def _lines(self, effect: Append | Reply | LogLine | ErrorCode) -> list[str]:
        if isinstance(effect, LogLine):
            return [f"log: {effect.message % effect.arguments}"]
        if isinstance(effect, Append):
            return [f"append: {self._record(key, value)}" for key, value in effect.records]
        if isinstance(effect, ErrorCode):
            return [f"append failed: {effect.name}"]
        return [f"reply {self._sender(effect.call)}: {self._reply(effect)}"]

    def _sender(self, call: Call) -> str:
        """The client's name; SyncGroup and Heartbeat of a classic member have its member id."""
        ids = {client.member_id: name for name, client in self._classic.items()}
        return ids.get(getattr(call.request, "member_id", ""), call.client_id)

    def _reply(self, reply: Reply) -> str:
        response: Any = reply.response
        kind = type(response).__name__.removesuffix("Response")
        error = ErrorCode(getattr(response, "error_code", 0)).name
        match kind:
            case "ConsumerGroupHeartbeat":
                if response.error_code:
                    return f"{kind} {error}" + (f": {response.error_message}" if response.error_message else "")
                assignment = response.assignment
                if response.member_epoch < 0:
                    return f"{kind} NONE epoch={response.member_epoch}"
                got = "unchanged" if assignment is None else self._topics(assignment.topic_partitions)
                return f"{kind} NONE epoch={response.member_epoch} assignment={got}"
            case "JoinGroup":
                client = self._classic[reply.call.client_id]
                client.member_id = response.member_id or client.member_id
                if response.error_code:
                    return f"{kind} {error} member={response.member_id}"
                client.generation = response.generation_id
                members = ",".join(row.member_id for row in response.members)
                return (
                    f"{kind} NONE generation={response.generation_id} member={response.member_id}"
                    f" leader={response.leader or 'none'}"
                    + (f" members={members}" if members else "")
                    + (" skip_assignment" if response.skip_assignment else "")
                )
            case "SyncGroup":
                return f"{kind} {error}" + ("" if response.error_code else f" assignment={_text(response.assignment)}")
            case "LeaveGroup":
                return f"{kind} {','.join(ErrorCode(row.error_code).name for row in response.members)}"
            case "OffsetCommit":
                errors = [ErrorCode(row.error_code).name for topic in response.topics for row in topic.partitions]
                return f"{kind} {','.join(errors)}"
        return f"{kind} {error}"

    def _describe(self) -> list[str]:
        classic = self._driver.shard.groups.get(GROUP)
        if classic is not None:
            lines = [f"classic {classic.state.value} generation={classic.generation} leader={classic.leader or 'none'}"]
            members = classic.members.values()
            return lines + [f"  {member.member_id} assignment={_text(member.assignment)}" for member in members]
        group = self._driver.shard.consumer_groups.get(GROUP)
        if group is None:
            return ["no group"]
        lines = [f"consumer {group.state_name} epoch={group.epoch} target={group.target.epoch}"]
        for member in group.members.values():
            words = [f"  {member.member_id} epoch={member.epoch} {member.state.name}"]
            words += ["classic"] if member.classic is not None else []
            words += [f"instance={member.instance_id}"] if member.instance_id is not None else []
            words += [f"assigned={self._named(member.assigned)}"]
            words += [f"revoking={self._named(member.revoking)}"] if member.revoking else []
            lines.append(" ".join(words))
        return lines

    def _topics(self, rows: Iterable[Any]) -> str:
        return self._named({row.topic_id: row.partitions for row in rows})

    def _named(self, partitions: Mapping[bytes, Iterable[int]]) -> str:
        # The driver's topic ids are their names.
        names = [f"{topic.lstrip(bytes(1)).decode()}-{i}" for topic, some in partitions.items() for i in sorted(some)]
        return ",".join(sorted(names)) or "none"

    def _record(self, key: bytes, value: bytes | None) -> str:
        match decode_keyed(g.RECORD_TYPES, key, value):
            case g.GroupMetadataKey(), None:
                return "tombstone of the classic group"
            case g.GroupMetadataKey(), g.GroupMetadataValue() as row:
                members = " ".join(f"{member.member_id}:{_text(member.assignment)}" for member in row.members)
                return f"classic group generation={row.generation} leader={row.leader or 'none'} {members}".rstrip()
            case g.OffsetCommitKey() as name, g.OffsetCommitValue() as committed:
                return f"offset {name.topic}-{name.partition}={committed.offset}"
            case g.ConsumerGroupMetadataKey(), None:
                return "tombstone of the group"
            case g.ConsumerGroupMetadataKey(), g.ConsumerGroupMetadataValue() as row:
                return f"group epoch={row.epoch}"
            case g.ConsumerGroupTargetAssignmentMetadataKey(), None:
                return "tombstone of the target epoch"
            case g.ConsumerGroupTargetAssignmentMetadataKey(), g.ConsumerGroupTargetAssignmentMetadataValue() as row:
                return f"target epoch={row.assignment_epoch}"
            case g.ConsumerGroupPartitionMetadataKey(), None:
                return "tombstone of the topics"
            case g.ConsumerGroupRegularExpressionKey() as name, row:
                found = None if row is None else ",".join(row.topics) or "nothing"
                return f"expression {name.regular_expression} " + ("tombstone" if row is None else f"matches {found}")
            case name, row:
                return self._member_record(name, row)
            case _:
                return "unknown record"

    def _member_record(self, name: Any, value: Any) -> str:
        kind = {
            g.ConsumerGroupMemberMetadataKey: "member",
            g.ConsumerGroupTargetAssignmentMemberKey: "target of",
            g.ConsumerGroupCurrentMemberAssignmentKey: "current assignment of",
        }[type(name)]
        match value:
            case None:
                return f"tombstone of {kind.removesuffix(' of')} {name.member_id}"
            case g.ConsumerGroupMemberMetadataValue():
                words = [f"{kind} {name.member_id}", f"topics={','.join(value.subscribed_topic_names) or 'none'}"]
                words += [f"regex={value.subscribed_topic_regex}"] if value.subscribed_topic_regex else []
                words += [f"instance={value.instance_id}"] if value.instance_id is not None else []
                return " ".join(words + ["classic"] * (value.classic_member_metadata is not None))
            case g.ConsumerGroupTargetAssignmentMemberValue():
                return f"{kind} {name.member_id}: {self._topics(value.topic_partitions)}"
        revoking = self._topics(value.partitions_pending_revocation)
        return (
            f"{kind} {name.member_id}: epoch={value.member_epoch} {MemberState.of(value.state).name}"
            f" {self._topics(value.assigned_partitions)}" + ("" if revoking == "none" else f" revoking={revoking}")
        )


def _assignment(text: str) -> bytes:
    """The assignment `t-0+t-1`; `none` is an empty one."""
    topics: dict[str, list[int]] = {}
    for partition in [] if text == "none" else text.split("+"):
        topic, _, index = partition.rpartition("-")
        topics.setdefault(topic, []).append(int(index))
    rows = [ConsumerProtocolAssignmentTopicPartition(topic=t, partitions=p) for t, p in topics.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), 1)


def _assigned(assignment: bytes) -> list[ConsumerProtocolAssignmentTopicPartition]:
    return decode_assignment(assignment).assigned_partitions if assignment else []


def _text(assignment: bytes) -> str:
    names = [f"{row.topic}-{index}" for row in _assigned(assignment) for index in row.partitions]
    return ",".join(names) or "none"
