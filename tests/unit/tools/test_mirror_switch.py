"""The checks of `ottla mirror switch` before it ends a copy, and its observations of the source meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.clients.admin import Admin, EpochEnd, GroupListing, GroupState, GroupType, OffsetAt, PartialFailure
from ottla.clients.errors import NotAuthorized
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.mirror_switch import (
    OK,
    PROBLEM,
    QUIET_S,
    WARNING,
    Check,
    active_groups,
    check_copy,
    check_groups,
    check_schemas,
    late_records,
    wait_for_producers,
)
from ottla.tools.admin.mirrors import MirrorReport

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def row(partition: TopicPartition, **changed: Any) -> dict[str, Any]:
    known = {"topic": partition.topic, "partition": partition.partition, "state": "MIRRORING", "lag": 0, "age_ms": 5}
    return {**known, "problem": "", **changed}


def report(*rows: Mapping[str, Any], **changed: Any) -> MirrorReport:
    status = {"problem": "", "topics": {}, "groups_age_ms": 400, "partitions": list(rows), **changed}
    return MirrorReport.of({1: status})


def results(checks: Iterable[Check]) -> dict[str, str]:
    return {each.check: each.result for each in checks}


def test_copy_with_all_records_is_ready() -> None:
    found = results(check_copy(report(row(A), row(B, state="STOPPING", age_ms=-1)), [A, B], 10))
    assert found == {"source": OK, "topics": OK, "lag": OK}


@pytest.mark.parametrize(
    ("rows", "check"),
    [
        ([row(A)], "partitions"),
        ([row(A), row(B, state="PAUSED")], "partitions"),
        ([row(A), row(B, problem="The partition has no leader in the source")], "partitions"),
        ([row(A), row(B, age_ms=31_000)], "partitions"),
        ([row(A), row(B, age_ms=-1)], "partitions"),
        ([row(A), row(B, lag=11)], "lag"),
    ],
)
def test_copy_that_makes_no_progress_is_a_problem(rows: list[dict[str, Any]], check: str) -> None:
    assert results(check_copy(report(*rows), [A, B], 10))[check] == PROBLEM


def test_source_and_topics_with_problems_are_named_and_losses_are_warnings() -> None:
    found = check_copy(report(row(A, truncated=3), problem="refused", topics={"payments": "gone"}), [A], 10)
    assert results(found) == {"source": PROBLEM, "topics": PROBLEM, "lag": OK, "truncated": WARNING}
    assert "payments: gone" in [each.text for each in found]


def validating(
    topics: Mapping[str, Mapping[str, str]], registries: Mapping[int, str], others: Mapping[str, str]
) -> Any:
    """A cluster: the settings of topics, the registry of each broker, and the states of other topics."""
    states = {name: {"ottla.mirror": "dr", "ottla.mirror.state": state} for name, state in others.items()}
    known: dict[str, Mapping[str, str]] = {**states, **topics}
    known |= {str(node): {"confluent.schema.registry.url": url} for node, url in registries.items()}

    def describe(resources: Iterable[Any], names: Iterable[str]) -> dict[Any, dict[str, Any]]:
        return {each: {name: SimpleNamespace(value=known[each.name].get(name)) for name in names} for each in resources}

    return SimpleNamespace(
        describe_configs=describe,
        describe_cluster=lambda: SimpleNamespace(brokers=[SimpleNamespace(node_id=node) for node in registries]),
        list_topics=lambda: [SimpleNamespace(name=name) for name in (*topics, *others)],
    )


CHECKED = {"confluent.value.schema.validation": "true"}
DLQ = {**CHECKED, "ottla.schema.validation.mode": "dlq", "ottla.schema.validation.dlq.topic": "bad"}


@pytest.mark.parametrize(
    ("settings", "registries", "others", "result", "text"),
    [
        ({}, {1: ""}, {}, None, ""),
        (CHECKED, {1: "http://r"}, {}, OK, "orders"),
        (CHECKED, {1: "http://r", 2: ""}, {}, PROBLEM, "on 2, which would refuse all records of orders"),
        ({**CHECKED, "ottla.schema.validation.mode": "warn"}, {1: ""}, {}, None, ""),
        (DLQ, {1: "http://r"}, {}, WARNING, "bad"),
        (DLQ, {1: "http://r"}, {"bad": "MIRRORING"}, WARNING, "bad"),
        (DLQ, {1: "http://r"}, {"bad": "STOPPED"}, OK, "orders"),
        (DLQ, {1: "http://r"}, {"bad": ""}, OK, "orders"),
    ],
)
def test_target_must_be_able_to_check_the_schemas_of_its_topics(
    settings: Mapping[str, str], registries: Mapping[int, str], others: Mapping[str, str], result: str | None, text: str
) -> None:
    found = check_schemas(validating({"orders": settings}, registries, others), ["orders"])
    assert [each.result for each in found] == ([] if result is None else [result])
    assert all(text in each.text for each in found)


def test_registry_of_brokers_that_the_user_may_not_see_is_a_warning() -> None:
    cluster = validating({"orders": CHECKED}, {1: "http://r"}, {})
    described = cluster.describe_configs

    def describe(resources: list[Any], names: list[str]) -> dict[Any, dict[str, Any]]:
        if resources[0].name == "1":
            raise PartialFailure.of({resources[0]: NotAuthorized("not authorized")}, {})
        return cast("dict[Any, dict[str, Any]]", described(resources, names))

    cluster.describe_configs = describe
    assert results(check_schemas(cluster, ["orders"])) == {"schemas": WARNING}


def test_topic_for_dead_letters_may_be_promoted_together() -> None:
    topics = {"orders": DLQ, "bad": {"ottla.mirror": "dr", "ottla.mirror.state": "MIRRORING"}}
    assert results(check_schemas(validating(topics, {1: "http://r"}, {}), ["bad", "orders"])) == {"schemas": OK}


def test_number_of_copied_groups_is_named_and_none_is_a_warning() -> None:
    [found] = check_groups(report(row(A), groups_found=3), ".*", [])
    assert (found.result, "of groups (3) were copied" in found.text) == (OK, True)
    [none] = check_groups(report(row(A), groups_found=0), ".*", [])
    assert (none.result, "DESCRIBE" in none.text) == (WARNING, True)


def test_groups_that_still_have_members_at_the_source_are_named() -> None:
    groups = [
        GroupListing("billing", "consumer", GroupState.STABLE, GroupType.CLASSIC),
        GroupListing("idle", "consumer", GroupState.EMPTY, GroupType.CLASSIC),
        GroupListing("other", "consumer", GroupState.STABLE, GroupType.CLASSIC),
    ]
    found = check_groups(report(), "billing|idle", groups)
    assert [(each.result, "billing" in each.text, "other" in each.text) for each in found] == [
        (OK, False, False),
        (WARNING, True, False),
    ]
    assert results(check_groups(report(groups_age_ms=-1), ".*", []))["groups"] == PROBLEM
    assert results(check_groups(report(), "", groups)) == {"groups": WARNING}
    assert (active_groups("billing|idle", groups), active_groups("idle", groups)) == ("billing", "")


class Source:
    """A source whose high watermark and last stable offset depend on the time."""

    def __init__(self, end: Callable[[float], int], stable: Callable[[float], int] | None = None) -> None:
        self.now_s = 0.0
        self._end, self._stable = end, stable or end

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def list_offsets(self, specs: Iterable[TopicPartition], *, read_committed: bool = False) -> Any:
        offset = (self._stable if read_committed else self._end)(self.now_s)
        return {key: OffsetAt(offset, -1, 0) for key in specs}

    def wait(self, wait_s: float) -> float:
        clock = lambda: self.now_s  # noqa: E731
        return wait_for_producers(cast("Admin", self), [A], wait_s, clock=clock, sleep=self.sleep)


def test_producers_have_stopped_when_no_end_offset_moves() -> None:
    source = Source(lambda now_s: min(int(now_s), 5))
    moved_s = source.wait(30)
    assert 5 <= moved_s < 5.5
    assert source.now_s >= moved_s + QUIET_S


def test_producers_that_go_on_and_open_transactions_end_the_wait() -> None:
    with pytest.raises(Failure, match="still grow: orders-0"):
        Source(lambda now_s: int(now_s * 10)).wait(10)
    with pytest.raises(Failure, match="open transactions: orders-0"):
        Source(lambda _: 5, lambda _: 4).wait(10)
    source = Source(lambda _: 5, lambda now_s: 4 if now_s < 6 else 5)
    source.wait(10)
    assert source.now_s >= 6


def test_records_that_arrive_at_the_source_after_the_copy_are_counted() -> None:
    empty = TopicPartition("empty", 0)
    theirs = {A: OffsetAt(12, -1, 3), B: OffsetAt(7, -1, 3), empty: OffsetAt(0, -1, -1)}
    keys = {TopicPartition(f"us.{each.topic}", each.partition): each for each in theirs}
    copied = dict(zip(keys, (EpochEnd(3, 10), EpochEnd(2, 7)), strict=False))
    source = SimpleNamespace(list_offsets=lambda asked: {key: theirs[key] for key in asked})
    target = SimpleNamespace(ends_of_epochs=lambda asked: {key: copied[key] for key in asked})
    found = late_records(cast("Admin", source), cast("Admin", target), keys)
    assert found == {TopicPartition("us.orders", 0): 2}
