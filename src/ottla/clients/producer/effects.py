"""The core's effects for the sender, the outcome of a sent batch, and the requests without a response.

The sender executes effects in their order, after it has released the lock of the core. An effect that expects an answer
says which method of the core takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.clients.producer.batch import Batch
from ottla.clients.producer.metadata import FOREVER_MS
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.message import Message

NO_ID = -1
# Plain classes: dataclasses would take a tenth of the import time of a producer.


class Send:
    """Send these batches, one per partition, to a broker. Answer once, with `responded` or `lost` and this id."""

    __slots__ = ("batches", "node_id", "request_id", "topic_ids")

    def __init__(self, request_id: int, node_id: int, batches: list[Batch]) -> None:
        self.request_id = request_id
        self.node_id = node_id
        self.batches = batches
        self.topic_ids: Mapping[str, Uuid] = _NO_IDS  # set by the sender: the ids of the topics in the request


_NO_IDS: Mapping[str, Uuid] = {}


class RequestMetadata:
    """Request the metadata of these topics. Answer with `metadata_changed` or `metadata_failed`.

    `failures` is the number of failed requests in a row before this one.
    """

    __slots__ = ("failures", "topics")

    def __init__(self, topics: tuple[str, ...], failures: int) -> None:
        self.topics = topics
        self.failures = failures


class RequestProducerId:
    """Request a producer id from any broker. Answer with `producer_id_given` or `producer_id_failed`."""

    __slots__ = ()


class AskCoordinator:
    """Send a request to the coordinator of `key`. Answer with `coordinator_answered` or `coordinator_lost`.

    `oldest` and `newest` limit the version. `forget`: look up the coordinator again first. The other fields are for the
    core: what the request registers with the transaction, or commits in it.
    """

    __slots__ = (
        "forget", "group_id", "is_registration", "key", "key_type", "newest", "offsets", "oldest", "partitions",
        "request",
    )  # fmt: skip

    def __init__(self, request: Message, key: str, key_type: int, oldest: int, newest: int | None) -> None:
        self.request = request
        self.key = key
        self.key_type = key_type
        self.oldest = oldest
        self.newest = newest
        self.forget = False
        self.is_registration = False
        self.partitions: frozenset[tuple[str, int]] = frozenset()
        self.group_id = ""
        self.offsets: object = None


class Finished:
    """Call `announce` on these batches."""

    __slots__ = ("batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches


class Wake:
    """Call these functions: senders that waited for memory or metadata try again."""

    __slots__ = ("wakers",)

    def __init__(self, wakers: list[Callable[[], object]]) -> None:
        self.wakers = wakers


Effect = Send | RequestMetadata | RequestProducerId | AskCoordinator | Finished | Wake


class Outcome(NamedTuple):
    """A broker's answer about one batch; `record_errors` by index in the batch (KIP-467).

    `has_moved`: the broker also named a new leader of the partition, and the view has it (KIP-951).
    """

    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    has_moved: bool = False


# The leader may have changed: request metadata before the next attempt.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
# The broker expects another sequence number than the batch's. KIP-98.
SEQUENCE_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class InFlight:
    """At most `limit` requests to each broker, and none while a broker throttles the producer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent: dict[int, Send] = {}
        self._counts: dict[int, int] = {}
        self._throttled_until_ms: dict[int, int] = {}  # empty until a broker throttles
        self._next_id = 0

    def send(self, node: int, batches: list[Batch]) -> Send:
        send = Send(self._next_id, node, batches)
        self._next_id += 1
        self._sent[send.request_id] = send
        self._counts[node] = self._counts.get(node, 0) + 1
        return send

    def take(self, request_id: int) -> Send:
        send = self._sent.pop(request_id)
        self._counts[send.node_id] -= 1
        return send

    def is_empty(self) -> bool:
        return not self._sent

    def throttle(self, node: int, until_ms: int) -> None:
        self._throttled_until_ms[node] = max(until_ms, self._throttled_until_ms.get(node, 0))

    def free_at_ms(self, node: int, now_ms: int) -> int | None:
        """When the broker can take a request: `now_ms` or later; None until the next response."""
        if self._counts.get(node, 0) >= self._limit:
            return None
        return max(now_ms, self._throttled_until_ms.get(node, 0)) if self._throttled_until_ms else now_ms

    def validate(self) -> None:
        flying = [batch for send in self._sent.values() for batch in send.batches]
        assert len(flying) == len(set(flying)), "a batch is in two requests"
        for node, count in self._counts.items():
            assert 0 <= count <= self._limit, f"{count} requests in flight to node {node}"


class ProducerId:
    """The id and epoch of the producer. At most one request is in flight; a failed one is retried after a backoff."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = NO_ID
        self.failures = 0  # in a row
        self.is_refused = False  # by the broker, before any record needed the id: retry when a record does
        self._is_requesting = False
        self._not_before_ms = 0

    def next_ms(self) -> int:
        return FOREVER_MS if self._is_requesting else self._not_before_ms

    def sent(self) -> None:
        self._is_requesting = True

    def received(self, producer_id: int, epoch: int) -> None:
        self._is_requesting = False
        self.failures = 0
        self.producer_id, self.epoch = producer_id, epoch

    def failed(self, retry_at_ms: int) -> None:
        self._is_requesting = False
        self._not_before_ms = retry_at_ms
        self.failures += 1
