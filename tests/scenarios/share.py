"""Commands of `share_*.txt`: members of the share group `g` on a broker without a network, with a manual clock.

topic NAME [partitions=N]                 create a topic, which new members subscribe to
produce TOPIC-PARTITION VALUE...          append one batch
set NAME=VALUE...                         change settings of the group
join MEMBER                               send ShareGroupHeartbeat until the member has its partitions
beat MEMBER                               send ShareGroupHeartbeat
leave MEMBER                              send ShareGroupHeartbeat with epoch -1
fetch MEMBER [records=N] [accept=RANGES]  send ShareFetch for all partitions of all topics; print the acquired records
accept|release|reject|renew MEMBER RANGES send ShareAcknowledge with ranges like t-0@3..5,t-1@0
close MEMBER                              send ShareAcknowledge with epoch -1
disconnect MEMBER                         the member's connection is lost
advance MS                                let time pass
restart                                   kill the broker and start it again; all connections are lost
offsets                                   print the stored start offset of each partition
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.coordinators.share.events import ReadSummary, ShareKey
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.unit.broker.harness import BrokerHarness, Connection, open_harness

GROUP = "g"
GROUP_CONFIG = 32
TYPES = {"accept": 1, "release": 2, "reject": 3, "renew": 4}
LEAVE_EPOCH = FINAL_EPOCH = -1


class Member:
    """A client: its epochs and its connection."""

    def __init__(self) -> None:
        self.epoch = self.session_epoch = 0
        self.assigned: list[str] = []
        self.connection = Connection()


class Range(NamedTuple):
    """Offsets of a partition, both ends included."""

    topic: str
    partition: int
    first: int
    last: int


class ShareScenario:
    """Runs the commands of one scenario."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._topics: dict[str, bytes] = {}
        self._partitions: dict[str, int] = {}
        self._members: dict[str, Member] = {}
        self._stack = ExitStack()
        self._broker = self._start()

    def _start(self) -> BrokerHarness:
        return self._stack.enter_context(open_harness(self._directory))

    def close(self) -> None:
        self._stack.close()

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        match verb:
            case "topic":
                count = int(options.get("partitions", "1"))
                self._topics[arguments[0]] = self._broker.create(arguments[0], count)
                self._partitions[arguments[0]] = count
                return []
            case "produce":
                topic, _, index = arguments[0].rpartition("-")
                self._broker.append(topic, *(value.encode() for value in arguments[1:]), index=int(index))
                return []
            case "set":
                return [self._set(options)]
            case "advance":
                self._broker.loop.advance(int(arguments[0]))
                return []
            case "restart":
                self._restart()
                return []
            case "offsets":
                return self._offsets()
            case _:
                return self._run_member(verb, arguments, options)

    def _run_member(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        name = arguments[0]
        member = self._members.setdefault(name, Member())
        match verb:
            case "join":
                return self._join(name, member)
            case "beat":
                return [self._beat(name, member, member.epoch)]
            case "leave":
                return [self._beat(name, member, LEAVE_EPOCH)]
            case "fetch":
                return self._fetch(name, member, options)
            case "close":
                return self._acknowledge(name, member, [], 0, FINAL_EPOCH)
            case "disconnect":
                member.connection.drop()
                self._broker.loop.run()
                member.connection, member.session_epoch = Connection(), 0
                return []
            case _:
                return self._acknowledge(name, member, _ranges(arguments[1]), TYPES[verb], member.session_epoch)

    def _ask(self, request: Any, connection: Connection | None = None) -> Any:
        answer = self._broker.start(request, client=connection)
        self._broker.loop.run()
        if isinstance(answer, Completion):
            for _ in range(100):
                if answer.done:
                    break
                self._broker.loop.advance(100)
            return answer.result()
        return answer

    def _set(self, options: Mapping[str, str]) -> str:
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in options.items()]
        resource = AlterConfigsResource(resource_type=GROUP_CONFIG, resource_name=GROUP, configs=configs)
        row = self._ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
        return ErrorCode(row.error_code).name

    def _restart(self) -> None:
        now_ms = self._broker.loop.now_ms
        self._stack.close()
        self._broker = self._start()
        self._broker.loop.now_ms = now_ms
        self._broker.broker.coordinators.start()
        self._broker.loop.advance(100)
        for member in self._members.values():
            member.connection, member.session_epoch = Connection(), 0

    # -- the group -------------------------------------------------------------------------------------------------

    def _join(self, name: str, member: Member) -> list[str]:
        self._ask(FindCoordinatorRequest(coordinator_keys=[GROUP]))
        line = self._beat(name, member, 0)
        for _ in range(2):
            self._broker.loop.advance(1_000)
            line = self._beat(name, member, member.epoch)
        return [line]

    def _beat(self, name: str, member: Member, epoch: int) -> str:
        request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=name, member_epoch=epoch)
        if epoch == 0:
            request.subscribed_topic_names = list(self._topics)
        response = self._ask(request)
        if response.error_code:
            return f"{ErrorCode(response.error_code).name}: {response.error_message}"
        member.epoch = response.member_epoch
        if response.assignment is not None:
            names = {topic_id: topic for topic, topic_id in self._topics.items()}
            rows = response.assignment.topic_partitions
            member.assigned = [f"{names[row.topic_id]}-{index}" for row in rows for index in row.partitions]
        return f"epoch={member.epoch} assigned={','.join(member.assigned) or 'none'}"

    def _offsets(self) -> list[str]:
        lines = []
        for topic, topic_id in self._topics.items():
            for index in range(self._partitions[topic]):
                done = self._broker.broker.shares.coordinator.submit(ReadSummary(ShareKey(GROUP, topic_id, index)))
                self._broker.loop.run()
                lines.append(f"{topic}-{index}: {done.result().start_offset}")
        return lines

    # -- records ---------------------------------------------------------------------------------------------------

    def _fetch(self, name: str, member: Member, options: Mapping[str, str]) -> list[str]:
        by_partition = {(row.topic, row.partition): [row] for row in _ranges(options.get("accept", ""))}
        topics = [
            share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    share_fetch.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_fetch.AcknowledgementBatch(row.first, row.last, [TYPES["accept"]])
                            for row in by_partition.get((topic, index), ())
                        ],
                    )
                    for index in range(self._partitions[topic])
                ],
            )
            for topic, topic_id in self._topics.items()
        ]
        request = ShareFetchRequest(
            group_id=GROUP, member_id=name, share_session_epoch=member.session_epoch, max_wait_ms=0,
            max_bytes=1 << 20, max_records=int(options.get("records", "500")), batch_size=500,
            share_acquire_mode=int("records" in options), topics=topics,
        )  # fmt: skip
        response = self._ask(request, member.connection)
        if response.error_code:
            return [f"{ErrorCode(response.error_code).name}: {response.error_message}"]
        member.session_epoch += 1
        return self._lines(response) or ["nothing"]

    def _lines(self, response: Any) -> list[str]:
        names = {topic_id: topic for topic, topic_id in self._topics.items()}
        lines = []
        for topic in response.responses:
            for row in topic.partitions:
                place = f"{names[topic.topic_id]}-{row.partition_index}"
                if row.error_code or row.acknowledge_error_code:
                    lines.append(f"{place}: {ErrorCode(row.error_code or row.acknowledge_error_code).name}")
                lines += [
                    f"{place}: {piece.first_offset}..{piece.last_offset} delivery {piece.delivery_count}"
                    for piece in row.acquired_records
                ]
        return sorted(lines)

    def _acknowledge(self, name: str, member: Member, ranges: Iterable[Range], type_: int, epoch: int) -> list[str]:
        topics: dict[str, dict[int, list[Range]]] = {}
        for row in ranges:
            topics.setdefault(row.topic, {}).setdefault(row.partition, []).append(row)
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=name,
            share_session_epoch=epoch,
            is_renew_ack=type_ == TYPES["renew"],
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self._topics[topic],
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(row.first, row.last, [type_]) for row in rows
                            ],
                        )
                        for index, rows in partitions.items()
                    ],
                )
                for topic, partitions in topics.items()
            ],
        )
        response = self._ask(request, member.connection)
        if response.error_code:
            return [f"{ErrorCode(response.error_code).name}: {response.error_message}"]
        member.session_epoch = 0 if epoch == FINAL_EPOCH else member.session_epoch + 1
        rows = [row for topic in response.responses for row in topic.partitions]
        return [" ".join([ErrorCode(row.error_code).name, row.error_message or ""]).strip() for row in rows]


def _ranges(text: str) -> list[Range]:
    """Parse ranges like t-0@3..5,t-1@0."""
    found = []
    for part in filter(None, text.split(",")):
        place, _, offsets = part.partition("@")
        topic, _, index = place.rpartition("-")
        first, _, last = offsets.partition("..")
        found.append(Range(topic, int(index), int(first), int(last or first)))
    return found
