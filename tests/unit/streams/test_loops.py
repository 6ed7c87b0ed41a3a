"""Pipelines that process their own results."""

from __future__ import annotations

import pytest

from ottla.streams.loops import Ends, loops


def ends(name: str, streams: str, writes: str, tables: str = "", *, may_loop: bool = False) -> Ends:
    return Ends(name, frozenset(streams.split()), frozenset(tables.split()), frozenset(writes.split()), may_loop)


def found(*pipelines: Ends) -> list[str]:
    return [f"{name}: {text.partition(';')[0]}" for name, text in loops(pipelines)]


def test_output_that_is_an_input_is_a_loop() -> None:
    assert found(ends("p", "a b", "c b")) == [
        "p: its output 'b' is its input, too: it would process its own results"
    ]  # fmt: skip


def test_output_that_is_a_table_is_read_again() -> None:
    assert found(ends("p", "a", "t", tables="t")) == [
        "p: its output 't' is its table, too: it would read its own results"
    ]  # fmt: skip


def test_loop_through_other_pipelines_is_found_once_with_its_way() -> None:
    first, second, third = ends("p", "a", "b"), ends("q", "b", "c d"), ends("r", "d", "a")
    way = "'q' reads 'b', 'r' reads 'd', 'p' reads 'a'"
    assert found(first, second, third) == [f"p: its results come back to it: {way}"]
    assert found(first, second) == []


@pytest.mark.parametrize("number", range(2))
def test_one_pipeline_that_may_loop_permits_the_loop(number: int) -> None:
    pipelines = [ends("p", "a", "b", may_loop=number == 0), ends("q", "b", "a", may_loop=number == 1)]
    assert found(*pipelines) == []
    assert found(ends("p", "a", "a", may_loop=True)) == []


def test_table_of_another_pipeline_starts_no_micro_batch() -> None:
    assert found(ends("p", "a", "b", tables="t"), ends("q", "b", "t")) == []
