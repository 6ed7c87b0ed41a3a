"""What the core asks of the sender, and the outcome of a sent batch.

The sender executes effects in their order, after it has released the lock of the core. An effect that expects an answer
says which method of the core takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.clients.producer.batch import Batch
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.message import Message

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
    """What a broker answered about one batch; `record_errors` by index in the batch (KIP-467).

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
# The broker expects another sequence number than that of the batch. KIP-98.
SEQUENCE_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
