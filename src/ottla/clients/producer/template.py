"""Frames of requests that differ in their records only, and of the answers that all is well, without a codec.

Both are what the codec makes of a message, cut around what changes from one request to the next. An answer that looks
different (an error, a throttled client) is not for this.
"""

from __future__ import annotations

from struct import Struct

from ottla.protocol.frames import RequestHeader, encode_request, encode_response
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_MARK = 0x7E3D_9A51_C0B7_2F68  # stands for each of the three numbers of an answer
_MARKS = 3 * _MARK.to_bytes(8, "big")
_NUMBERS = Struct(">qqq")
_ID = Struct(">i")
_ID_AT, _AFTER_ID = 4, 8  # in an answer
_REQUEST_ID_AT, _AFTER_REQUEST_ID = 8, 12


class Template:
    """For one batch of one length for one partition."""

    __slots__ = (
        "_after_records", "_answer_end", "_answer_start", "_before_id", "_before_records", "_numbers_at", "_size",
        "topic_id", "version",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest, version: int, client_id: str) -> None:
        (topic,) = request.topic_data
        (row,) = topic.partition_data
        self.topic_id = topic.topic_id
        self.version = version
        whole = b"".join(encode_request(request, version, 0, client_id))
        start, _, self._after_records = whole.rpartition(bytes(row.records or b""))
        self._before_id = start[:_REQUEST_ID_AT]
        self._before_records = start[_AFTER_REQUEST_ID:]
        good = PartitionProduceResponse(
            index=row.index, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
        )
        response = ProduceResponse(responses=[TopicProduceResponse(topic.name, topic.topic_id, [good])])
        answer = b"".join(encode_response(RequestHeader(ProduceRequest.API_KEY, version, 0, client_id), response))
        self._answer_start, found, self._answer_end = answer[_AFTER_ID:].partition(_MARKS)
        self._numbers_at = _AFTER_ID + len(self._answer_start)
        self._size = len(answer) if found else 0  # old versions have no more than two of the numbers

    def frame(self, correlation_id: int, records: bytes | bytearray) -> bytes:
        """The request, with other records of the same length."""
        return b"".join((self._before_id, _ID.pack(correlation_id), self._before_records, records, self._after_records))

    def numbers(self, correlation_id: int, data: bytes) -> tuple[int, int] | None:
        """Base offset and log append time if the frame `data` answers that request and all is well; None otherwise."""
        if (
            len(data) != self._size
            or _ID.unpack_from(data, _ID_AT)[0] != correlation_id
            or not data.startswith(self._answer_start, _AFTER_ID)
            or not data.endswith(self._answer_end)
        ):
            return None
        base_offset, log_append_time_ms, _ = _NUMBERS.unpack_from(data, self._numbers_at)
        return base_offset, log_append_time_ms
