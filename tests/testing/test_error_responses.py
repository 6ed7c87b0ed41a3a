"""An injected error in every API and version that is served: in the bytes of the answer, where clients look for it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.served import SERVED
from ottla.common.errors import ErrorCode
from ottla.protocol import registry
from ottla.testing.error_responses import element_class, failed, merged, rows_of

NAMES = {key: registry.API[key].name for key in SERVED}
# These are answered by changing the broker's own answer.
CHANGED = {"Fetch", "Metadata", "DescribeTopicPartitions"}
CASES = [
    (key, version)
    for key, (first, last) in SERVED.items()
    for version in range(first, last + 1)
    if NAMES[key] not in CHANGED
]
# Kafka has no place for an error of the whole request in these old versions.
NO_PLACE = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2), ("ElectLeaders", 0)}


def request_for(key: int, version: int) -> Any:
    """One that asks about one thing, where it lists things."""
    request: Any = registry.request_class(key)()
    rows = rows_of(NAMES[key], version)
    if NAMES[key] == "WriteTxnMarkers":
        marker = element_class(type(request), "markers")()
        marker.topics = [element_class(type(marker), "topics")("one", [0])]
        request.markers = [marker]
    if NAMES[key] == "AlterReplicaLogDirs":
        directory = element_class(type(request), "dirs")()
        directory.topics = [element_class(type(directory), "topics")("one", [0])]
        request.dirs = [directory]
    if NAMES[key] in ("CreateAcls", "DeleteAcls"):
        rules = "creations" if NAMES[key] == "CreateAcls" else "filters"
        setattr(request, rules, [element_class(type(request), rules)()])
    if NAMES[key] == "AlterClientQuotas":
        request.entries = [element_class(type(request), "entries")()]
    if NAMES[key] == "AlterUserScramCredentials":
        request.deletions = [element_class(type(request), "deletions")("ann")]
    if rows is None:
        return request
    if not rows.key:
        setattr(request, rows.request, ["one"])
        return request
    row = element_class(type(request), rows.request)()
    setattr(row, rows.key, bytes(range(16)) if rows.key == "topic_id" else "one")
    if rows.parts:
        setattr(row, rows.parts, [element_class(type(row), rows.parts)()] if rows.part else [0])
    setattr(request, rows.request, [row])
    return request


def errors_in(message: Any) -> list[int]:
    found = [getattr(message, name) for name in ("error_code", "partition_error_code") if name in message.FIELDS]
    for name in message.FIELDS:
        value = getattr(message, name)
        if isinstance(value, list):
            for each in value:
                if hasattr(each, "FIELDS"):
                    found += errors_in(each)
    return found


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{NAMES[key]}-{version}" for key, version in CASES])
def test_the_error_is_in_the_bytes(key: int, version: int) -> None:
    if NAMES[key] == "OffsetFetch" and version < 2:
        request = registry.request_class(key)()
        topic = element_class(type(request), "topics")(name="one", partition_indexes=[0])
        request.topics = [topic]
    else:
        request = request_for(key, version)
    answer, rest, _ = failed(request, version, ErrorCode.NOT_CONTROLLER, lambda *_: True, lambda _: None)
    assert rest is None
    told, _ = registry.response_class(key).decode_from(answer.encode(version), 0, version)
    expected = set() if (NAMES[key], version) in NO_PLACE else {ErrorCode.NOT_CONTROLLER}
    assert set(errors_in(told)) - {0} == expected


def test_rows_of_one_topic_come_together_again() -> None:
    request: Any = registry.request_class(0)()
    topic_class = element_class(type(request), "topic_data")
    part_class = element_class(topic_class, "partition_data")
    request.topic_data = [
        topic_class(name=name, partition_data=[part_class(index=index) for index in range(3)]) for name in ("a", "b")
    ]
    answer, rest, about = failed(
        request, 9, ErrorCode.NOT_CONTROLLER, lambda name, index: name == "a" and index == 1, lambda _: None
    )
    assert about == ["a-1"]
    assert [(t.name, [p.index for p in t.partition_data]) for t in rest.topic_data] == [("a", [0, 2]), ("b", [0, 1, 2])]
    assert len(request.topic_data[0].partition_data) == 3, "the request itself stays as it is"
    of_rest: Any = registry.response_class(0)()
    row_class = element_class(type(of_rest), "responses")
    outcome = element_class(row_class, "partition_responses")
    of_rest.responses = [
        row_class(name="a", partition_responses=[outcome(index=0), outcome(index=2)]),
        row_class(name="b", partition_responses=[outcome(index=index) for index in range(3)]),
    ]
    whole = merged("Produce", 9, answer, of_rest)
    rows = {(t.name, p.index): p.error_code for t in whole.responses for p in t.partition_responses}
    assert {place for place, code in rows.items() if code} == {("a", 1)}
    assert len(rows) == 6
    assert len(whole.responses) == 2
