"""Commands of `group_*.txt`: one group `g`, its coordinator's core, and clients with one-letter names.

    join NAME [instance=I] [protocols=P,Q] [version=N] [session=MS] [rebalance=MS]    send JoinGroup; options persist
    sync NAME [assign=MEMBER:TEXT,...]      send SyncGroup, as leader with an assignment
    heartbeat NAME                          send Heartbeat
    leave NAME                              send LeaveGroup
    commit NAME TOPIC-PARTITION=OFFSET [generation=N]    send OffsetCommit
    offsets                                 send OffsetFetch for all offsets of the group
    forget NAME                             the client restarts: it loses its member id and generation
    advance MS                              let time pass; timers elapse
    appends ERROR                           appends fail with this error from now on; NONE: they succeed
    restart                                 the coordinator restarts and loads its log
    describe                                print the group's state

Each effect is a line: `append` with the record's content, `reply` with the client's name, `log` with the log line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import Append, Call, Effects, FetchOffsets, LogLine, Reply
from ottla.protocol.group_records import (
    RECORD_TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.drivers.groups import GroupDriver, Joiner

GROUP = "g"
MEMBER_ID = re.compile(r"(\w+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class RecordingDriver(GroupDriver):
    """Keeps the effects since the last look, in their order."""

    def __init__(self) -> None:
        self.effects: list[Append | Reply | LogLine | ErrorCode] = []
        super().__init__()

    def _obey(self, effects: Effects) -> None:
        for effect in effects:
            if not isinstance(effect, Append):
                self.effects.append(effect)
            super()._obey([effect])

    def _append(self, append: Append) -> Effects:
        self.effects += [append] if self.append_error is ErrorCode.NONE else [append, self.append_error]
        following = super()._append(append)
        self._obey(following)
        return []


class ShortIds:
    """Short names of the member ids that the coordinator makes: `a.1` is the first one of client `a`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.full: dict[str, str] = {}
        """The member id of each short name."""

    def shorten(self, line: str) -> str:
        """Replace the member ids in a line of output."""
        return MEMBER_ID.sub(lambda match: self._name(match[0], match[1]), line)

    def _name(self, member_id: str, prefix: str) -> str:
        if member_id not in self._names:
            count = 1 + sum(name.startswith(f"{prefix}.") for name in self._names.values())
            self._names[member_id] = f"{prefix}.{count}"
            self.full[f"{prefix}.{count}"] = member_id
        return self._names[member_id]


class GroupScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self._driver = RecordingDriver()
        self._clients: dict[str, Joiner] = {}
        self._ids = ShortIds()
        self._senders: dict[Call, str] = {}

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        self._driver.effects.clear()
        match verb:
            case "advance":
                self._driver.advance(int(arguments[0]))
            case "appends":
                self._driver.append_error = ErrorCode[arguments[0]]
            case "restart":
                self._driver.restart()
            case "describe":
                return self._describe()
            case "offsets":
                question = FetchOffsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None))
                self._senders[self._driver.send(question)] = "admin"
            case _:
                self._request(verb, arguments[0], options)
        return [self._ids.shorten(line) for effect in self._driver.effects for line in self._lines(effect)]

    def _request(self, verb: str, name: str, options: Mapping[str, str]) -> None:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Joiner(self._driver, GROUP, client_id=name)
        if verb == "forget":
            client.member_id, client.generation = "", -1
            return
        request, version = self._make_request(verb, client, options)
        call = self._driver.send(request, version, name)
        self._senders[call] = name

    def _make_request(self, verb: str, client: Joiner, options: Mapping[str, str]) -> tuple[object, int]:
        member_id, instance_id = client.member_id, client.instance_id
        match verb:
            case "join":
                self._configure(client, options)
                return client.join_request(), client.version
            case "sync":
                rows = [row.split(":") for row in options.get("assign", "").split(",") if row]
                assignments = [
                    SyncGroupRequestAssignment(member_id=self._ids.full[member], assignment=text.encode())
                    for member, text in rows
                ]
                return SyncGroupRequest(GROUP, client.generation, member_id, instance_id, assignments=assignments), 5
            case "heartbeat":
                return HeartbeatRequest(GROUP, client.generation, member_id, instance_id), 4
            case "leave":
                members = [MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
                return LeaveGroupRequest(group_id=GROUP, members=members), 5
            case "commit":
                topics = []
                for name, offset in options.items():
                    if name == "generation":
                        continue
                    topic, _, index = name.rpartition("-")
                    row = OffsetCommitRequestPartition(partition_index=int(index), committed_offset=int(offset))
                    topics.append(OffsetCommitRequestTopic(name=topic, partitions=[row]))
                request = OffsetCommitRequest(
                    group_id=GROUP,
                    generation_id_or_member_epoch=int(options.get("generation", client.generation)),
                    member_id=member_id,
                    group_instance_id=instance_id,
                    topics=topics,
                )
                return request, 9
        raise ValueError(f"unknown command {verb}")

    @staticmethod
    def _configure(client: Joiner, options: Mapping[str, str]) -> None:
        client.instance_id = options.get("instance", client.instance_id)
        client.version = int(options.get("version", client.version))
        client.session_timeout_ms = int(options.get("session", client.session_timeout_ms))
        client.rebalance_timeout_ms = int(options.get("rebalance", client.rebalance_timeout_ms))
        if "protocols" in options:
            client.protocols = tuple((name, b"") for name in options["protocols"].split(","))

    # -- output ----------------------------------------------------------------------------------------------------

    def _lines(self, effect: Append | Reply | LogLine | ErrorCode) -> list[str]:
        if isinstance(effect, LogLine):
            return [f"log: {effect.message % effect.arguments}"]
        if isinstance(effect, Append):
            return [f"append: {_record(key, value)}" for key, value in effect.records]
        if isinstance(effect, ErrorCode):
            return [f"append failed: {effect.name}"]
        return [f"reply {self._sender(effect.call)}: {self._reply(effect)}"]

    def _sender(self, call: Call) -> str:
        return self._senders.get(call) or call.client_id

    def _reply(self, reply: Reply) -> str:
        response: Any = reply.response
        kind = type(response).__name__.removesuffix("Response").removesuffix("ResponseGroup")
        error = ErrorCode(getattr(response, "error_code", 0)).name
        client = self._clients.get(reply.call.client_id)
        match kind:
            case "JoinGroup":
                if client is not None and response.member_id:
                    client.member_id = response.member_id
                if response.error_code:
                    return f"JoinGroup {error}" + (f" member={response.member_id}" if response.member_id else "")
                assert client is not None
                client.generation = response.generation_id
                members = ",".join(row.member_id for row in response.members)
                return (
                    f"JoinGroup NONE generation={response.generation_id} protocol={response.protocol_name}"
                    f" member={response.member_id} leader={response.leader}"
                    + (f" members={members}" if members else "")
                    + (" skip_assignment" if response.skip_assignment else "")
                )
            case "SyncGroup":
                return f"SyncGroup {error}" + (f" assignment={response.assignment.decode()}" if error == "NONE" else "")
            case "LeaveGroup":
                rows = [ErrorCode(row.error_code).name for row in response.members]
                return f"LeaveGroup {error} members={','.join(rows)}"
            case "OffsetCommit":
                errors = [ErrorCode(row.error_code).name for topic in response.topics for row in topic.partitions]
                return f"OffsetCommit {','.join(errors)}"
            case "OffsetFetch":
                offsets = [
                    f"{t.name}-{p.partition_index}={p.committed_offset}" for t in response.topics for p in t.partitions
                ]
                return f"OffsetFetch {error} {' '.join(offsets)}".rstrip()
        return f"{kind} {error}"

    def _describe(self) -> list[str]:
        group = self._driver.shard.groups.get(GROUP)
        if group is None:
            return ["no group"]
        lines = [f"{group.state.value} generation={group.generation} leader={group.leader or 'none'}"]
        for member in group.members.values():
            parked = [name for name, call in (("joining", member.joining), ("syncing", member.syncing)) if call]
            lines.append(" ".join([f"  {member.member_id}", f"assignment={member.assignment.decode()}", *parked]))
        return [self._ids.shorten(line) for line in lines]


def _record(key: bytes, value: bytes | None) -> str:
    match decode_keyed(RECORD_TYPES, key, value):
        case GroupMetadataKey() as name, None:
            return f"tombstone of group {name.group}"
        case GroupMetadataKey() as name, GroupMetadataValue() as row:
            members = ",".join(f"{member.member_id}:{member.assignment.decode()}" for member in row.members)
            leader = row.leader or "none"
            return f"group {name.group} generation={row.generation} leader={leader} members={members or 'none'}"
        case OffsetCommitKey() as name, None:
            return f"tombstone of offset {name.topic}-{name.partition}"
        case OffsetCommitKey() as name, OffsetCommitValue() as committed:
            return f"offset {name.topic}-{name.partition}={committed.offset}"
    return "unknown record"
