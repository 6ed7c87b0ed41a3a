"""Error responses for requests, with the error in the field where each API has it.

`failed` splits a request into a response for the failing part and a request for the rest, which the broker executes.
`merged` joins both responses. One partition of a Produce can therefore fail while the others are appended.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID
from ottla.protocol import registry
from ottla.protocol.message import Message

Wants = Callable[[str | None, int | None], bool]


class Rows(NamedTuple):
    """The lists of a request and of its response whose elements correspond.

    `request` and `response` are the names of the lists. `key` is the field that identifies an element in both; it is ""
    if the request has a list of plain names. The last four fields are the same one level deeper; a `part` of "" means
    plain numbers.
    """

    request: str
    response: str
    key: str = "name"
    response_key: str = ""
    parts: str = ""
    part: str = ""
    response_parts: str = ""
    response_index: str = ""


_PARTITIONS = Rows("topics", "topics", "name", "", "partitions", "partition_index", "partitions", "partition_index")
_SHARE_STATE = Rows("topics", "results", "topic_id", "", "partitions", "partition", "partitions", "partition")
ROWS: dict[str, Rows] = {
    "Produce": Rows("topic_data", "responses", "name", "", "partition_data", "index", "partition_responses", "index"),
    "ListOffsets": _PARTITIONS,
    "OffsetCommit": _PARTITIONS,
    "TxnOffsetCommit": _PARTITIONS,
    "DeleteRecords": _PARTITIONS,
    "OffsetForLeaderEpoch": Rows("topics", "topics", "topic", "", "partitions", "partition", "partitions", "partition"),
    "DescribeProducers": Rows("topics", "topics", "name", "", "partition_indexes", "", "partitions", "partition_index"),
    "CreateTopics": Rows("topics", "topics"),
    "CreatePartitions": Rows("topics", "results"),
    "DescribeConfigs": Rows("resources", "results", "resource_name"),
    "AlterConfigs": Rows("resources", "responses", "resource_name"),
    "IncrementalAlterConfigs": Rows("resources", "responses", "resource_name"),
    "DescribeGroups": Rows("groups", "groups", "", "group_id"),
    "DeleteGroups": Rows("groups_names", "results", "", "group_id"),
    "ConsumerGroupDescribe": Rows("group_ids", "groups", "", "group_id"),
    "StreamsGroupDescribe": Rows("group_ids", "groups", "", "group_id"),
    "ShareGroupDescribe": Rows("group_ids", "groups", "", "group_id"),
    "InitializeShareGroupState": _SHARE_STATE,
    "ReadShareGroupState": _SHARE_STATE,
    "ReadShareGroupStateSummary": _SHARE_STATE,
    "WriteShareGroupState": _SHARE_STATE,
    "DeleteShareGroupState": _SHARE_STATE,
    "DescribeShareGroupOffsets": Rows("groups", "groups", "group_id"),
    "DescribeTransactions": Rows("transactional_ids", "transaction_states", "", "transactional_id"),
}
_ADDED_PARTITIONS = Rows(
    "v3_and_below_topics", "results_by_topic_v3_and_below", "name", "", "partitions", "", "results_by_partition",
    "partition_index",
)  # fmt: skip
# Versions below the number use the first rows, later ones the second.
VERSIONED: dict[str, tuple[int, Rows | None, Rows | None]] = {
    "AddPartitionsToTxn": (4, _ADDED_PARTITIONS, None),
    "DeleteTopics": (6, Rows("topic_names", "responses", "", "name"), Rows("topics", "responses")),
    "FindCoordinator": (4, None, Rows("coordinator_keys", "coordinators", "", "key")),
    "OffsetFetch": (8, None, Rows("groups", "groups", "group_id")),
}
# Zero is a valid value of these fields.
_NOTHING = {"base_offset": -1, "low_watermark": -1, "node_id": -1, "port": -1}


def rows_of(api: str, version: int) -> Rows | None:
    """The rows of this API; None if a request has a single outcome."""
    if api in VERSIONED:
        since, before, after = VERSIONED[api]
        return after if version >= since else before
    return ROWS.get(api)


def failed(
    request: Message, version: int, code: ErrorCode, wants: Wants, name_of: Callable[[bytes], str | None]
) -> tuple[Any, Any, list[str]]:
    """(response for the failing part or None, request for the rest or None, descriptions of the failing parts)."""
    info = registry.API[request.API_KEY]
    rows = rows_of(info.name, version)
    answer: Any = registry.response_class(request.API_KEY)()
    if info.name in _NESTED:
        return _NESTED[info.name](request, answer, code), None, []
    if rows is None:
        _put_error(answer, code)
        _old_offset_fetch(info.name, request, answer, version, code)
        return answer, None, []
    rest_rows, about = [], []
    row_class = element_class(type(answer), rows.response)
    for row in getattr(request, rows.request) or ():
        name = _name(row, rows.key, name_of)
        if rows.parts:
            failing = [part for part in getattr(row, rows.parts) if wants(name, _index(part, rows))]
            rest = [part for part in getattr(row, rows.parts) if not wants(name, _index(part, rows))]
        else:
            failing, rest = ([row], []) if wants(name, None) else ([], [row])
        if failing:
            getattr(answer, rows.response).append(_failed_row(row, row_class, rows, failing, code))
            about += [f"{name}-{_index(part, rows)}" for part in failing] if rows.parts else [str(name)]
        if rest:
            rest_rows.append(_with(row, rows.parts, rest) if rows.parts else row)
    if not about:
        return None, request, []
    return answer, (_with(request, rows.request, rest_rows) if rest_rows else None), about


def merged(api: str, version: int, answer: Any, of_rest: Any) -> Any:
    """The response to the rest of a request, with the rows of `answer` added."""
    rows = rows_of(api, version)
    assert rows is not None
    key = rows.response_key or rows.key
    there = {_identity(row, key): row for row in getattr(of_rest, rows.response)}
    for row in getattr(answer, rows.response):
        same = there.get(_identity(row, key))
        if same is not None and rows.response_parts:
            getattr(same, rows.response_parts).extend(getattr(row, rows.response_parts))
        else:
            getattr(of_rest, rows.response).append(row)
    return of_rest


def element_class(owner: type, attribute: str) -> Any:
    """The class of the elements of a list field."""
    annotation = owner.FIELDS[attribute][0]  # type: ignore[attr-defined]
    found = re.match(r"list\[(\w+)\]", annotation)
    assert found, f"{owner.__name__}.{attribute} is {annotation}"
    return getattr(sys.modules[owner.__module__], found[1])


def _failed_row(row: Any, row_class: Any, rows: Rows, failing: list[Any], code: ErrorCode) -> Any:
    made = row_class()
    if not rows.key:
        setattr(made, rows.response_key, row)
        _put_error(made, code)
        return made
    for name in ("name", "topic", "topic_id", "group_id", "resource_type", "resource_name"):
        if name in made.FIELDS and name in row.FIELDS:
            setattr(made, name, getattr(row, name))
    if not rows.parts:
        _put_error(made, code)
        return made
    part_class = element_class(row_class, rows.response_parts)
    for part in failing:
        made_part = part_class()
        setattr(made_part, rows.response_index, _index(part, rows))
        _put_error(made_part, code)
        getattr(made, rows.response_parts).append(made_part)
    return made


def _put_error(row: Any, code: ErrorCode) -> None:
    for name, value in _NOTHING.items():
        if name in row.FIELDS:
            setattr(row, name, value)
    setattr(row, "error_code" if "error_code" in row.FIELDS else "partition_error_code", int(code))
    if "error_message" in row.FIELDS:
        row.error_message = f"Injected by a test: {code.text}"


def _failed_markers(request: Any, answer: Any, code: ErrorCode) -> Any:
    """WriteTxnMarkers has the outcomes one level deeper than other APIs, and none for the whole request."""
    marker_class = element_class(type(answer), "markers")
    topic_class = element_class(marker_class, "topics")
    part_class = element_class(topic_class, "partitions")
    for marker in request.markers:
        topics = [
            topic_class(name=topic.name, partitions=[part_class(index, code) for index in topic.partition_indexes])
            for topic in marker.topics
        ]
        answer.markers.append(marker_class(marker.producer_id, topics))
    return answer


def _failed_moves(request: Any, answer: Any, code: ErrorCode) -> Any:
    """AlterReplicaLogDirs has replicas by directory in the request, and by topic in the response."""
    topic_class = element_class(type(answer), "results")
    part_class = element_class(topic_class, "partitions")
    for topic in (topic for directory in request.dirs for topic in directory.topics):
        answer.results.append(topic_class(topic.name, [part_class(index, code) for index in topic.partitions]))
    return answer


def _failed_rules(request: Any, answer: Any, code: ErrorCode) -> Any:
    """CreateAcls and DeleteAcls have a result for each rule or filter, in their order."""
    answers, asked = ("results", "creations") if "results" in answer.FIELDS else ("filter_results", "filters")
    row_class = element_class(type(answer), answers)
    setattr(answer, answers, [row_class(error_code=code) for _ in getattr(request, asked)])
    return answer


def _failed_quotas(request: Any, answer: Any, code: ErrorCode) -> Any:
    """AlterClientQuotas has a result for each entity, which has several parts."""
    row_class = element_class(type(answer), "entries")
    part_class = element_class(row_class, "entity")
    for entry in request.entries:
        entity = [part_class(each.entity_type, each.entity_name) for each in entry.entity]
        answer.entries.append(row_class(error_code=code, entity=entity))
    return answer


def _failed_users(request: Any, answer: Any, code: ErrorCode) -> Any:
    """AlterUserScramCredentials has one result for each user, who may be in both lists."""
    row_class = element_class(type(answer), "results")
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    answer.results = [row_class(user=name, error_code=code) for name in names]
    return answer


_NESTED: dict[str, Callable[[Any, Any, ErrorCode], Any]] = {
    "AlterClientQuotas": _failed_quotas,
    "AlterReplicaLogDirs": _failed_moves,
    "AlterUserScramCredentials": _failed_users,
    "CreateAcls": _failed_rules,
    "DeleteAcls": _failed_rules,
    "WriteTxnMarkers": _failed_markers,
}


def _old_offset_fetch(api: str, request: Any, answer: Any, version: int, code: ErrorCode) -> None:
    """OffsetFetch below version 2 has no error for the whole request, only one for each partition."""
    if api != "OffsetFetch" or version >= 2:
        return
    for row in request.topics or ():
        made = element_class(type(answer), "topics")(name=row.name)
        part_class = element_class(type(made), "partitions")
        for index in row.partition_indexes:
            made.partitions.append(part_class(partition_index=index, committed_offset=-1, metadata="", error_code=code))
        answer.topics.append(made)


def _name(row: Any, key: str, name_of: Callable[[bytes], str | None]) -> str | None:
    if not key:
        return str(row)
    topic_id = getattr(row, "topic_id", ZERO_UUID)
    if key == "topic_id":
        return name_of(topic_id)
    name = getattr(row, key)
    return name if name or topic_id == ZERO_UUID else name_of(topic_id)


def _identity(row: Any, key: str) -> object:
    return getattr(row, "topic_id", ZERO_UUID), getattr(row, key)


def _index(part: Any, rows: Rows) -> int:
    return int(getattr(part, rows.part)) if rows.part else int(part)


def _with(struct: Any, attribute: str, value: object) -> Any:
    changed = copy(struct)
    setattr(changed, attribute, value)
    return changed
