"""Sits between the network and the dispatcher: counts requests, and applies rules to them.

A request without a matching rule goes to the dispatcher. The first matching rule decides; a delayed request goes
through the remaining rules afterwards. Runs on the broker's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.unread import joined
from ottla.protocol import frames, registry
from ottla.protocol.wire import DecodeError
from ottla.records import iter_batches
from ottla.testing import error_responses
from ottla.testing.listeners import CLIENT_ID, Listeners
from ottla.testing.rules import Hit, Kind, Rule

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Dispatcher
    from ottla.network.connection import Connection, Frames

NO_ACKS = 0
METADATA_ERROR_SINCE = 13
# These errors belong to the whole fetch session, not to a partition.
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Interceptor:
    """The rules and counts of one broker, across its restarts."""

    def __init__(self, listeners: Listeners) -> None:
        self.listeners = listeners
        self.rules: dict[int, Rule] = {}
        self.began_s: dict[int, float] = {}
        self.requests: Counter[tuple[str, str | None]] = Counter()
        self._withheld: dict[int, list[Connection]] = {}
        self._dispatch: Callable[[Connection, memoryview], Frames | Completion[Frames]]
        self._broker: Callable[[], Broker]

    def attach(self, dispatcher: Dispatcher, broker: Callable[[], Broker]) -> Interceptor:
        """Set the dispatcher that receives the requests."""
        self._dispatch, self._broker = dispatcher, broker
        return self

    def add(self, number: int, rule: Rule) -> None:
        """Start to apply a rule."""
        self.rules[number] = rule
        self.began_s[number] = time.monotonic()

    def remove(self, number: int) -> None:
        """Stop to apply a rule; close connections that wait for a swallowed response."""
        self.rules.pop(number, None)
        self.began_s.pop(number, None)
        for connection in self._withheld.pop(number, ()):
            connection.abort()

    # -- one request -------------------------------------------------------------------------------------------

    def __call__(self, connection: Connection, frame: memoryview) -> Frames | Completion[Frames]:
        """Handle one frame; the network calls this instead of the dispatcher."""
        header, _ = frames.decode_request_header(frame)
        info = registry.API.get(header.api_key)
        if info is None:
            return self._dispatch(connection, frame)
        connection.state[CLIENT_ID] = header.client_id
        self.requests[info.name, header.client_id] += 1
        if info.name in {"JoinGroup", "SyncGroup"}:
            return self._membership(_Request(connection, header, info.name, frame))
        if not self.rules:
            return self._dispatch(connection, frame)
        return self._act(_Request(connection, header, info.name, frame), list(self.rules))

    def _membership(self, request: _Request) -> Frames | Completion[Frames]:
        """Handle a JoinGroup or SyncGroup, and record the listener of the member."""
        try:
            message = request.message
        except DecodeError:
            return self._dispatch(request.connection, request.frame)  # which reports the error
        listeners, listener = self.listeners, request.connection.listener
        group_id, member_id = message.group_id, message.member_id
        listeners.joining(listener, group_id, member_id)

        def note(response: Any) -> Any:
            if request.api == "JoinGroup":
                listeners.joining(listener, group_id, response.member_id)
            elif response.error_code == ErrorCode.NONE:
                listeners.joined(listener, group_id, member_id)
            return response

        answer: Frames | Completion[Frames] = request.changed(self._act(request, list(self.rules)), note)
        return answer

    def _act(self, request: _Request, numbers: list[int]) -> Frames | Completion[Frames]:
        for position, number in enumerate(numbers):
            rule = self.rules.get(number)
            if rule is None or not rule.matches(request.api, request.header.client_id):
                continue
            try:
                if rule.kind is Kind.DELAY:
                    about = self._about(request, rule)
                    if about is not None:
                        self._hit(number, request, about)
                        return self._delayed(request, rule.seconds, numbers[position + 1 :])
                    continue
                answer: Frames | Completion[Frames] = _ACTIONS[rule.kind](self, number, rule, request)
            except DecodeError:
                break  # the dispatcher reports the error
            if answer is not _NOT_MEANT:
                return answer
        return self._dispatch(request.connection, request.frame)

    def _hit(self, number: int, request: _Request, about: str) -> None:
        after_s = time.monotonic() - self.began_s[number]
        self.rules[number].hit(Hit(after_s, request.api, request.header.client_id, about))

    def _about(self, request: _Request, rule: Rule) -> str | None:
        """Describe the part of the request that the rule means, in words; None if there is no such part."""
        if rule.topic is None and rule.partition is None:
            return ""
        parts = [
            str(name) if index is None else f"{name}-{index}"
            for name, index in self._parts(request)
            if rule.wants(name, index)
        ]
        return ", ".join(parts) if parts else None

    def _parts(self, request: _Request) -> list[tuple[str | None, int | None]]:
        """Topics and partitions that a request is about; None for all topics."""
        message: Any = request.message
        if request.api == "Fetch":
            return [(self._topic(topic), index) for topic, index in self._fetched(request)]
        if request.api in {"Metadata", "DescribeTopicPartitions"}:
            if message.topics is None:
                return [(name, None) for name in self._broker().metadata.image.topics_by_name]
            return [
                (topic.name or self._topic_of_id(getattr(topic, "topic_id", b"")), None) for topic in message.topics
            ]
        found: list[tuple[str | None, int | None]] = []

        def note(name: str | None, index: int | None) -> bool:
            found.append((name, index))
            return False

        error_responses.failed(message, request.version, ErrorCode.NONE, note, self._topic_of_id)
        return found

    def _topic_of_id(self, topic_id: bytes) -> str | None:
        return self._broker().partitions.topic_name(topic_id)

    def _topic(self, topic: str | bytes) -> str | None:
        return topic if isinstance(topic, str) else self._topic_of_id(topic)

    # -- what may happen ---------------------------------------------------------------------------------------

    def _delayed(self, request: _Request, seconds: float, others: list[int]) -> Completion[Frames]:
        later: Completion[Frames] = Completion()
        copied = request.copied()

        def go_on() -> None:
            if request.connection.closed:
                return
            started: Completion[Frames | Completion[Frames]] = Completion()
            started.complete_with(self._act, copied, others)
            if started.error is not None:
                later.fail(started.error)
            elif isinstance(answer := started.result(), Completion):
                later.follow(answer)
            else:
                later.complete(answer)

        asyncio.get_running_loop().call_later(seconds, go_on)
        return later

    def _disconnect(self, number: int, rule: Rule, request: _Request) -> Any:
        about = self._about(request, rule)
        if about is None:
            return _NOT_MEANT
        self._hit(number, request, about)
        request.connection.abort()
        return None

    def _swallow(self, number: int, rule: Rule, request: _Request) -> Any:
        about = self._about(request, rule)
        if about is None:
            return _NOT_MEANT
        self._hit(number, request, about)
        answer = self._dispatch(request.connection, request.frame)
        if not rule.close:
            self._withheld.setdefault(number, []).append(request.connection)
            return Completion()  # never done; `remove` ends it

        if not isinstance(answer, Completion):
            request.connection.abort()
            return None
        answer.on_done(lambda _: request.connection.abort())
        return answer  # its response finds the connection closed

    def _fail(self, number: int, rule: Rule, request: _Request) -> Any:
        if request.api == "Fetch":
            return self._fail_fetch(number, rule, request)
        if request.api in {"Metadata", "DescribeTopicPartitions"}:
            return self._fail_metadata(number, rule, request)
        message: Any = request.message
        answer, rest, about = error_responses.failed(
            message, request.version, rule.error, rule.wants, self._topic_of_id
        )
        if answer is None:
            return _NOT_MEANT
        self._hit(number, request, ", ".join(about))
        unanswered = request.api == "Produce" and message.acks == NO_ACKS
        if unanswered:
            request.connection.close()  # acks=0 has no other way to report an error
        if rest is None:
            return None if unanswered else request.encode(answer)
        of_rest = self._dispatch(request.connection, request.frame_of(rest))
        if unanswered:
            return None
        return request.changed(of_rest, lambda told: error_responses.merged(request.api, request.version, answer, told))

    def _fail_metadata(self, number: int, rule: Rule, request: _Request) -> Any:
        about = self._about(request, rule)
        message: Any = request.message
        top_level = request.api == "Metadata" and not message.topics and request.version >= METADATA_ERROR_SINCE
        if about is None or (not message.topics and message.topics is not None and not top_level):
            return _NOT_MEANT
        self._hit(number, request, about)

        def change(told: Any) -> Any:
            if top_level and rule.topic is None and not told.topics:
                told.error_code = rule.error
            for topic in told.topics:
                name = topic.name or self._topic_of_id(topic.topic_id)
                if rule.partition is None and rule.wants(name, None):
                    topic.error_code, topic.partitions = rule.error, []
                for part in topic.partitions:
                    if rule.wants(name, part.partition_index):
                        part.error_code, part.leader_id = rule.error, -1
            return told

        return request.changed(self._dispatch(request.connection, request.frame), change)

    # -- fetching ----------------------------------------------------------------------------------------------

    def _fetched(self, request: _Request) -> list[tuple[str | bytes, int]]:
        """The partitions of a Fetch: in the request and in its session."""
        message: Any = request.message
        session = self._broker().fetch_sessions.peek(message.session_id)
        keys: dict[tuple[str | bytes, int], None] = dict.fromkeys(session.partitions if session is not None else ())
        for topic in message.topics:
            for part in topic.partitions:
                keys[topic.topic or topic.topic_id, part.partition] = None
        return list(keys)

    def _fail_fetch(self, number: int, rule: Rule, request: _Request) -> Any:
        if rule.error in SESSION_ERRORS:
            self._hit(number, request, "the session")
            answer: Any = registry.response_class(request.header.api_key)()
            answer.error_code = int(rule.error)
            return request.encode(answer)
        failing = [key for key in self._fetched(request) if rule.wants(self._topic(key[0]), key[1])]
        if not failing:
            return _NOT_MEANT
        self._hit(number, request, ", ".join(f"{self._topic(topic)}-{index}" for topic, index in failing))
        message: Any = request.message
        message.max_wait_ms = 0

        def change(told: Any) -> Any:
            for topic, index in failing:
                row = _row_of_fetch(told, topic)
                row.partitions = [part for part in row.partitions if part.partition_index != index]
                part_class = error_responses.element_class(type(row), "partitions")
                row.partitions.append(
                    part_class(partition_index=index, error_code=int(rule.error), high_watermark=-1, records=b"")
                )
            return told

        return request.changed(self._dispatch(request.connection, request.frame_of(message)), change)

    def _corrupt(self, number: int, rule: Rule, request: _Request) -> Any:
        """The response to a Fetch, with a changed byte in the matching batch."""

        def change(told: Any) -> Any:
            for topic in told.responses:
                name = self._topic(topic.topic or topic.topic_id)
                for part in topic.partitions:
                    if rule.spent or not part.records or not rule.wants(name, part.partition_index):
                        continue
                    changed, base_offset = corrupted(part.records, rule.offset)
                    if base_offset is not None:
                        part.records = changed
                        self._hit(number, request, f"{name}-{part.partition_index} at offset {base_offset}")
            return told

        return request.changed(self._dispatch(request.connection, request.frame), change)


def corrupted(records: Any, offset: int | None) -> tuple[bytes, int | None]:
    """Change the last byte of the batch with `offset` (default: the first); returns the batches and its base offset."""
    data = bytearray(records)
    try:
        for position, header in iter_batches(data):
            if offset is None or header.base_offset <= offset < header.next_offset:
                data[position + header.size - 1] ^= 0xFF
                return bytes(data), header.base_offset
    except KafkaError:
        pass  # a response may end with an incomplete batch
    return bytes(data), None


def _row_of_fetch(told: Any, topic: str | bytes) -> Any:
    for row in told.responses:
        if topic in (row.topic, row.topic_id):
            return row
    row_class = error_responses.element_class(type(told), "responses")
    row = row_class(topic=topic) if isinstance(topic, str) else row_class(topic_id=topic)
    told.responses.append(row)
    return row


class _Request:
    """One request, decoded at the first access to its message."""

    def __init__(self, connection: Connection, header: frames.RequestHeader, api: str, frame: memoryview) -> None:
        self.connection = connection
        self.header = header
        self.api = api
        self.frame = frame
        self._message: Any = None

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def message(self) -> Any:
        """The body. Raises DecodeError, also for unknown versions."""
        if self._message is None:
            if not registry.API[self.header.api_key].supports(self.version):
                raise DecodeError(f"{self.api} has no version {self.version}")
            _, position = frames.decode_request_header(self.frame)
            self._message, _ = registry.request_class(self.header.api_key).decode_from(
                self.frame, position, self.version
            )
        return self._message

    def copied(self) -> _Request:
        """A copy that outlives the network's buffer."""
        return _Request(self.connection, self.header, self.api, memoryview(bytearray(self.frame)))

    def frame_of(self, message: Any) -> memoryview:
        """The frame of this message with the request's header."""
        _, version, correlation_id, client_id = self.header
        return memoryview(bytearray(b"".join(frames.encode_request(message, version, correlation_id, client_id))))[4:]

    def encode(self, answer: Any) -> list[Any]:
        """The frame of a response."""
        return frames.encode_response(self.header, answer)

    def changed(self, answer: Frames | Completion[Frames], change: Callable[[Any], Any]) -> Any:
        """The broker's response after `change`, immediately or when it is complete."""

        def apply(sent: Sequence[Any] | None) -> Any:
            if sent is None:
                return None
            whole = joined(sent)
            _, position = frames.decode_response_header(whole, self.header.api_key, self.version, 4)
            told, _ = registry.response_class(self.header.api_key).decode_from(whole, position, self.version)
            return self.encode(change(told))

        return answer.then(apply) if isinstance(answer, Completion) else apply(answer)


_NOT_MEANT: Any = object()
_ACTIONS: dict[Kind, Callable[[Interceptor, int, Rule, _Request], Any]] = {
    Kind.FAIL: Interceptor._fail,  # noqa: SLF001
    Kind.SWALLOW: Interceptor._swallow,  # noqa: SLF001
    Kind.DISCONNECT: Interceptor._disconnect,  # noqa: SLF001
    Kind.CORRUPT: Interceptor._corrupt,  # noqa: SLF001
}
