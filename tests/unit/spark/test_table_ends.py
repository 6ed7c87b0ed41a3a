"""The ends that a micro-batch has chosen for a table, as they are committed to its group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.admin import GroupOffset
from ottla.common.ids import TopicPartition
from ottla.spark.exactly_once import BATCH_ID, QUERY_ID
from ottla.spark.table_ends import MicroBatch, TableError, TablePlace, chosen_ends, metadata

PRICES = (TopicPartition("prices", 0), TopicPartition("prices", 1))


def committed(*texts: str) -> dict[TopicPartition, GroupOffset]:
    return {tp: GroupOffset(10 + tp.partition, metadata=text) for tp, text in zip(PRICES, texts, strict=False)}


@settings(max_examples=20)
@given(st.integers(0, 2**40))
def test_ends_of_a_batch_are_found_again(number: int) -> None:
    rows = committed(metadata(number), metadata(number))
    assert chosen_ends(rows, number) == {PRICES[0]: 10, PRICES[1]: 11}
    assert chosen_ends(rows, number + 1) is None


def test_batch_without_commits_has_no_ends() -> None:
    assert chosen_ends({}, 0) is None


@pytest.mark.parametrize("text", ["", "x", "1", "[]", "null", "{}", '{"batch": null}', '{"batch": "x"}'])
def test_commits_of_another_program_are_not_ends(text: str) -> None:
    assert chosen_ends(committed(text), 0) is None
    assert chosen_ends(committed(text, metadata(3)), 3) == {PRICES[1]: 11}


def test_batch_before_the_batch_that_chose_is_refused() -> None:
    """The checkpoint is older than the commits: other records would be read than the first time."""
    with pytest.raises(TableError, match="Micro-batch 4 reads the table 'prices', which micro-batch 5 of the query"):
        chosen_ends(committed(metadata(4), metadata(5)), 4)


@pytest.mark.parametrize(
    ("properties", "batch"),
    [
        ({QUERY_ID: "q", BATCH_ID: "12"}, MicroBatch("q", 12)),
        ({QUERY_ID: "q"}, None),
        ({BATCH_ID: "12"}, None),
        ({}, None),
    ],
)
def test_task_outside_of_a_query_has_no_batch(properties: dict[str, str], batch: MicroBatch | None) -> None:
    assert MicroBatch.of_task(properties.get) == batch


def test_queries_do_not_share_a_group() -> None:
    place = TablePlace("prices", {}, "read_committed", "ottla-table-")
    assert place.group(MicroBatch("q", 1)) == place.group(MicroBatch("q", 2))
    assert place.group(MicroBatch("q", 1)) != place.group(MicroBatch("r", 1))
