"""Commands of `streams_*.txt`: one streams group `g` whose members run a word count (KIP-1071).

Subtopology 0 reads `in` and writes the repartition topic `words`. Subtopology 1 reads `words` and has the changelog
`counts`. A task is written as `subtopology_partition`.

    topics NAME=COUNT...                    create topics, or change their numbers of partitions; 0 deletes one
    set NAME=VALUE...                       the settings of the group
    beat NAME [process=P] [epoch=N] [shutdown=yes]
                                            send StreamsGroupHeartbeat. A member gives up tasks with the heartbeat after
                                            the response
    keep NAME                               the member keeps the tasks that it should give up, until `give NAME`
    leave NAME                              send StreamsGroupHeartbeat to leave
    advance MS                              let time pass; timers elapse
    appends ERROR                           appends fail with this error from now on; NONE: they succeed
    restart                                 the coordinator restarts and loads its log
    describe                                print the group

Each effect is a line: `append` with the record's content, `reply` with the member's name, `log` with the log line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import Append, LogLine, Reply
from ottla.coordinators.group.streams.member import MemberState
from ottla.coordinators.group.streams.tasks import OwnedTasks, task_ids
from ottla.coordinators.group.streams.topics import Status
from ottla.metadata.image import GROUP as GROUP_SETTINGS
from ottla.protocol import streams_group_records as s
from ottla.protocol.group_records import decode_record
from tests.drivers.streams_members import StreamsMember
from tests.scenarios.group import GROUP, RecordingDriver


class StreamsScenario:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self._driver = RecordingDriver()
        self._members: dict[str, StreamsMember] = {}

    def close(self) -> None:
        """Nothing to close."""

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        self._driver.effects.clear()
        match verb:
            case "topics":
                self._driver.change_topics(**{name: int(count) for name, count in options.items()})
            case "set":
                configs = {**self._driver.image.configs, (GROUP_SETTINGS, GROUP): dict(options)}
                self._driver.image = replace(self._driver.image, configs=configs)
                self._driver.shard.metadata_changed(self._driver.image, has_new_topics=False)
            case "advance":
                self._driver.advance(int(arguments[0]))
            case "appends":
                self._driver.append_error = ErrorCode[arguments[0]]
            case "restart":
                self._driver.restart()
            case "describe":
                return list(self._describe())
            case _:
                self._run_member(verb, arguments[0], options)
        return [line for effect in self._driver.effects for line in self._lines(effect)]

    def _run_member(self, verb: str, name: str, options: Mapping[str, str]) -> None:
        member = self._members.setdefault(name, StreamsMember(self._driver, name))
        match verb:
            case "beat":
                member.process = options.get("process", member.process)
                fields = {"member_epoch": int(options["epoch"])} if "epoch" in options else {}
                member.beat(**fields, shutdown_application="shutdown" in options)
            case "keep" | "give":
                member.clings = verb == "keep"
            case "leave":
                member.leave()
            case _:
                raise ValueError(f"unknown command {verb}")

    # -- output --------------------------------------------------------------------------------------------------

    def _lines(self, effect: Append | Reply | LogLine | ErrorCode) -> list[str]:
        if isinstance(effect, LogLine):
            return [f"log: {effect.message % effect.arguments}"]
        if isinstance(effect, Append):
            return [f"append: {_record(key, value)}" for key, value in effect.records]
        if isinstance(effect, ErrorCode):
            return [f"append failed: {effect.name}"]
        response: Any = effect.response
        beat, error = response.response, ErrorCode(response.response.error_code)
        words = [f"reply {effect.call.client_id}: {error.name}"]
        if error is not ErrorCode.NONE:
            return [words[0] + (f": {beat.error_message}" if beat.error_message else "")]
        words.append(f"epoch={beat.member_epoch}")
        if beat.member_epoch >= 0:
            words.append(f"active={'unchanged' if beat.active_tasks is None else _tasks(beat.active_tasks)}")
        if beat.standby_tasks:
            words.append(f"standby={_tasks(beat.standby_tasks)}")
        statuses = [f"  {Status(row.status_code).name}: {row.status_detail}" for row in beat.status or ()]
        topics = [f"  create {topic.name} partitions={topic.partitions}" for topic in response.missing]
        return [" ".join(words), *statuses, *topics]

    def _describe(self) -> Iterable[str]:
        group = self._driver.shard.streams_groups.get(GROUP)
        if group is None:
            yield "no group"
            return
        yield f"{group.state_name} epoch={group.epoch} target={group.target.epoch}"
        for member in group.members.values():
            words = [f"  {member.member_id} process={member.process_id} epoch={member.epoch} {member.state.name}"]
            words += _owned(member.owned, "")
            words += _owned(member.revoking, "revoking ")
            yield " ".join(words)


def _owned(tasks: OwnedTasks, prefix: str) -> list[str]:
    roles = (("active", tasks.active), ("standby", tasks.standby))
    named = [(role, [f"{name}_{index}" for name, index in sorted(task_ids(some))]) for role, some in roles]
    return [f"{prefix}{role}={','.join(names)}" for role, names in named if names]


def _tasks(rows: Iterable[Any]) -> str:
    return ",".join(f"{row.subtopology_id}_{index}" for row in rows for index in row.partitions) or "none"


def _record(key: bytes, value: bytes | None) -> str:
    name, row = decode_record(key, value) or (None, None)
    kinds: dict[type, str] = {
        s.StreamsGroupMetadataKey: "group",
        s.StreamsGroupTopologyKey: "topology",
        s.StreamsGroupTargetAssignmentMetadataKey: "target",
        s.StreamsGroupMemberMetadataKey: "member",
        s.StreamsGroupTargetAssignmentMemberKey: "target of",
        s.StreamsGroupCurrentMemberAssignmentKey: "current assignment of",
    }
    kind = " ".join((kinds[type(name)], *([name.member_id] if hasattr(name, "member_id") else [])))
    match row:
        case s.StreamsGroupMetadataValue():
            settings = ",".join(f"{each.key}={each.value}" for each in row.last_assignment_configs or ())
            return f"{kind} epoch={row.epoch} validated topology={row.validated_topology_epoch} {settings}"
        case s.StreamsGroupTopologyValue():
            return f"{kind} epoch={row.epoch} subtopologies={len(row.subtopologies)}"
        case s.StreamsGroupTargetAssignmentMetadataValue():
            return f"{kind} epoch={row.assignment_epoch}"
        case s.StreamsGroupMemberMetadataValue():
            return f"{kind} process={row.process_id}"
        case s.StreamsGroupTargetAssignmentMemberValue():
            return f"{kind}: active={_tasks(row.active_tasks)} standby={_tasks(row.standby_tasks)}"
        case s.StreamsGroupCurrentMemberAssignmentValue():
            state = MemberState.of(row.state).name
            revoking = _tasks(row.active_tasks_pending_revocation)
            text = f"{kind}: epoch={row.member_epoch} {state} active={_tasks(row.active_tasks)}"
            text += f" standby={_tasks(row.standby_tasks)}" if row.standby_tasks else ""
            return text + ("" if revoking == "none" else f" revoking={revoking}")
    return f"tombstone of {kind}"
