"""The responses to requests that are refused as a whole: each API's form of an error, as in Kafka.

Most responses have one error code. Others have a row for each resource of the request, each with the error: `_ROWS`
says how a request becomes such rows, and `refusal` is then a generator, since a request may have many rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from ottla.broker.authorization_table import MESSAGES
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.message import Message
from ottla.protocol.registry import response_class

_WITHOUT_MESSAGE = frozenset({48, 50, 68, 76, 78, 79, 88})
"""APIs whose responses have a message, which is null here."""


class _Rows(NamedTuple):
    """How the elements of a request's list become rows of the response."""

    source: str
    """The list of the request; with a dot, a list in each element of a list."""
    target: str
    row: str
    """The class of a row."""
    fields: tuple[tuple[str, str], ...] = ()
    """(field of the row, field of the element); "" is the element itself."""
    inner: _Rows | None = None


def _share_state(row: str) -> _Rows:
    inner = _Rows("partitions", "partitions", "PartitionResult", (("partition", "partition"),))
    return _Rows("topics", "results", row, (("topic_id", "topic_id"),), inner)


_INDEX = (("partition_index", "partition_index"),)
_NUMBER = (("partition_index", ""),)
_NAME = (("name", "name"),)
_ROWS: dict[int, _Rows] = {
    8: _Rows(
        "topics",
        "topics",
        "OffsetCommitResponseTopic",
        (*_NAME, ("topic_id", "topic_id")),
        _Rows("partitions", "partitions", "OffsetCommitResponsePartition", _INDEX),
    ),
    27: _Rows(
        "markers",
        "markers",
        "WritableTxnMarkerResult",
        (("producer_id", "producer_id"),),
        _Rows(
            "topics",
            "topics",
            "WritableTxnMarkerTopicResult",
            _NAME,
            _Rows("partition_indexes", "partitions", "WritableTxnMarkerPartitionResult", _NUMBER),
        ),
    ),
    28: _Rows(
        "topics",
        "topics",
        "TxnOffsetCommitResponseTopic",
        _NAME,
        _Rows("partitions", "partitions", "TxnOffsetCommitResponsePartition", _INDEX),
    ),
    30: _Rows("creations", "results", "AclCreationResult"),
    31: _Rows("filters", "filter_results", "DeleteAclsFilterResult"),
    34: _Rows(
        "dirs.topics",
        "results",
        "AlterReplicaLogDirTopicResult",
        (("topic_name", "name"),),
        _Rows("partitions", "partitions", "AlterReplicaLogDirPartitionResult", _NUMBER),
    ),
    43: _Rows(
        "topic_partitions",
        "replica_election_results",
        "ReplicaElectionResult",
        (("topic", "topic"),),
        _Rows("partitions", "partition_result", "PartitionResult", (("partition_id", ""),)),
    ),
    45: _Rows(
        "topics",
        "responses",
        "ReassignableTopicResponse",
        _NAME,
        _Rows("partitions", "partitions", "ReassignablePartitionResponse", _INDEX),
    ),
    46: _Rows(
        "topics",
        "topics",
        "OngoingTopicReassignment",
        _NAME,
        _Rows("partition_indexes", "partitions", "OngoingPartitionReassignment", _NUMBER),
    ),
    49: _Rows(
        "entries",
        "entries",
        "ResponseEntryData",
        (),
        _Rows(
            "entity",
            "entity",
            "ResponseEntityData",
            (("entity_type", "entity_type"), ("entity_name", "entity_name")),
        ),
    ),
    50: _Rows("users", "results", "DescribeUserScramCredentialsResult"),
    83: _share_state("InitializeStateResult"),
    84: _share_state("ReadStateResult"),
    85: _share_state("WriteStateResult"),
    86: _share_state("DeleteStateResult"),
    87: _share_state("ReadStateSummaryResult"),
}


def refusal(request: Message, version: int, error: ErrorCode) -> Any:
    """The response to a refused request, or a generator of it."""
    key = request.API_KEY
    if key == 51:
        return _refused_users(request, error)
    message = None if key in _WITHOUT_MESSAGE else MESSAGES[error]
    response = _with_error(response_class(key)(), error, message)
    if key == 48:
        response.entries = None
    if key == 22:
        response.producer_epoch = -1
    if key == 11 and version < 7:
        response.protocol_name = ""
    if key == 11 and version >= 7:
        response.protocol_name = None
    rows = _ROWS.get(key)
    return response if rows is None else _with_rows(response, rows, request, error, message)


def _with_error(row: Any, error: ErrorCode, message: str | None) -> Any:
    if hasattr(row, "error_code"):
        row.error_code = error
    if hasattr(row, "error_message"):
        row.error_message = message
    return row


def _with_rows(response: Any, rows: _Rows, source: Any, error: ErrorCode, message: str | None) -> Slices[Any]:
    """Add a row for each element of the source."""
    row_class = getattr(sys.modules[type(response).__module__], rows.row)
    found = getattr(response, rows.target)
    for element in _elements(source, rows.source):
        row = _with_error(row_class(), error, message)
        for field, name in rows.fields:
            setattr(row, field, getattr(element, name) if name else element)
        if rows.inner is not None:
            yield from _with_rows(row, rows.inner, element, error, message)
        found.append(row)
        yield
    return response


def _elements(source: Any, path: str) -> Iterable[Any]:
    outer, _, inner = path.partition(".")
    elements = getattr(source, outer) or ()
    return chain.from_iterable(getattr(element, inner) for element in elements) if inner else elements


def _refused_users(request: Any, error: ErrorCode) -> Slices[Any]:
    """AlterUserScramCredentials: each user once, in the order of their names."""
    response: Any = response_class(request.API_KEY)()
    row_class = sys.modules[type(response).__module__].AlterUserScramCredentialsResult
    names = set()
    for change in chain(request.deletions, request.upsertions):
        names.add(change.name)
        yield
    for name in sorted(names):
        response.results.append(row_class(name, error, MESSAGES[error]))
        yield
    return response
