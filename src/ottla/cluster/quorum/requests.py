"""Requests of other nodes to this replica, and their responses, with records and snapshots from the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.metadata import snapshots
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.raft import messages as m
from ottla.raft import wire_requests, wire_responses
from ottla.raft.events import Event, Received, Respond, UpgradeRequested
from ottla.raft.wire_requests import WrongPartitionError

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.protocol.message import Message

# The most bytes of one response, whatever the request allows.
MAX_RESPONSE_BYTES = 8 << 20


@value
class _Asked:
    """A request without a response; `request` is None for an upgrade of kraft.version."""

    request: m.Request | None
    listener: str
    answer: Completion[Any]


class QuorumRequests:
    """The requests that wait for the core's responses. The core limits how many fetches wait."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._asked: dict[int, _Asked] = {}
        self._last_token = 0

    def received(self, message: Message, listener: str) -> tuple[Event | None, Completion[Message]]:
        """The event of a request, and the completion of its response. No event: the request is answered already."""
        answer: Completion[Message] = Completion()
        try:
            request = wire_requests.decode(message)
        except WrongPartitionError:
            answer.complete(wire_responses.encode_error(message, ErrorCode.INVALID_REQUEST))
            return None, answer
        token = self._add(_Asked(request, listener, answer))
        return Received(token, request), answer

    def upgrade(self, level: int, *, validate_only: bool) -> tuple[Event, Completion[m.VoterChangeResponse]]:
        """The event of an upgrade of kraft.version, and the completion of its result."""
        answer: Completion[m.VoterChangeResponse] = Completion()
        return UpgradeRequested(self._add(_Asked(None, "", answer)), level, validate_only), answer

    def _add(self, asked: _Asked) -> int:
        self._last_token += 1
        self._asked[self._last_token] = asked
        return self._last_token

    def respond(self, effect: Respond) -> None:
        """Execute the effect. An error of the disk fails the request; its connection is closed then."""
        assert isinstance(effect.token, int)
        asked = self._asked.pop(effect.token)
        if asked.request is None:
            asked.answer.complete(effect.response)
        else:
            asked.answer.complete_with(self._encode, asked.request, effect.response, asked.listener)

    def fail_all(self, error: KafkaError) -> None:
        """Fail the requests that wait."""
        waiting, self._asked = self._asked, {}
        for asked in waiting.values():
            asked.answer.fail(error)

    def _encode(self, request: m.Request, response: m.Response, listener: str) -> Message:
        return wire_responses.encode(request, response, listener, self._data(request, response))

    def _data(self, request: m.Request, response: m.Response) -> bytes:
        """The records or the part of a snapshot that the response announces. Raises KafkaError and OSError."""
        if isinstance(request, m.FetchRequest) and isinstance(response, m.FetchResponse) and response.has_records:
            most = min(max(0, request.max_bytes), MAX_RESPONSE_BYTES)
            return bytes(self._log.read(request.end.offset, most, self._log.log_end_offset))
        if isinstance(response, m.FetchSnapshotResponse) and response.length > 0:
            return self._read_snapshot(response)
        return b""

    def _read_snapshot(self, response: m.FetchSnapshotResponse) -> bytes:
        files = self._log.files
        name = snapshots.SnapshotId(*response.snapshot).file_name
        fd = files.open(f"{self._log.directory}/{name}", read_only=True)
        try:
            return files.pread(fd, min(response.length, MAX_RESPONSE_BYTES), response.position)
        finally:
            files.close(fd)
