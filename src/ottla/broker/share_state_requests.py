"""Common parts of the five requests to the share coordinator: ask for each share partition, and collect results.

As in Kafka, a request that names no group, no topic, or a topic without partitions gets an empty response. A partition
that is named twice is asked twice, in order, and has one result: the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.slices import Slices
from ottla.coordination.shares.coordinator import submit_all
from ottla.coordinators.share.events import Result, ShareKey

if TYPE_CHECKING:
    from ottla.common.completion import Completion
    from ottla.coordination.shares.coordinator import Request

# Errors with which the coordinator refuses any request.
UNAVAILABLE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Partition(Protocol):
    """One partition of a request."""

    partition: int


P = TypeVar("P", bound=Partition)
Results = dict[Uuid, dict[int, Result]]


class Topic(Protocol[P]):
    """One topic of a request."""

    topic_id: Uuid
    partitions: list[P]


def ask_each(
    submit: Callable[[Request], Completion[Result]],
    group_id: str,
    topics: Sequence[Topic[P]],
    question: Callable[[ShareKey, P], Request],
) -> Slices[Results]:
    """Submit `question(key, partition)` for each partition; returns the results by topic and partition."""
    by_topic: Results = {}
    if not group_id or not all(topic.partitions for topic in topics):
        return by_topic
    requests = (
        question(ShareKey(group_id, topic.topic_id, partition.partition), partition)
        for topic in topics
        for partition in topic.partitions
    )
    results = yield from submit_all(requests, submit)
    for key, result in results.items():
        by_topic.setdefault(key.topic_id, {})[key.partition] = result
        yield
    return by_topic


def error_fields(result: Result, verb: str) -> dict[str, Any]:
    """The error of a result as fields of its row; `verb` says what failed."""
    if result.error is ErrorCode.NONE:
        return {}
    if result.error in UNAVAILABLE:
        message = f"Unable to {verb}: {result.error.text}"
        return {"error_code": result.error, "error_message": message}
    return {"error_code": result.error, "error_message": result.message or result.error.text}
