"""The options and identities of exactly-once writes, their markers, and the errors that prevent a second write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.exactly_once import (
    LAYOUT,
    SHARED_TASKS,
    ExactlyOnce,
    ExactlyOnceError,
    Marker,
    check_layout,
    check_rows,
    from_options,
    has_written,
    identify,
    may_continue,
    task_of,
)
from ottla.spark.names import OptionError
from ottla.spark.options import read_sink_options

BATCH_7 = {
    "sql.streaming.queryId": "q",
    "streaming.sql.batchId": "7",
    "spark.jobGroup.id": "run-1",
    "spark.sql.execution.id": "30",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
}
ONCE = ExactlyOnce("writer", name="out")
SINK = {"kafka.bootstrap.servers": "a:1", "topic": "out"}


def attempt_in(properties: Mapping[str, str], once: ExactlyOnce = ONCE):  # type: ignore[no-untyped-def]
    return identify(once, 2, properties.get)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"exactlyOnce": "yes"}, "exactlyOnce is 'yes'"),
        ({"exactlyOnceName": "x"}, "exactlyOnceName has no effect without exactlyOnce=true"),
        ({"exactlyOnce": "false", "exactlyOnceId": "x"}, "exactlyOnceId has no effect"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "exactlyOnce does not go with .*acks=all"),
        ({"exactlyOnce": "true", "transactionalIdPrefix": " "}, "transactionalIdPrefix is empty"),
        ({"exactlyOnce": "true", "kafka.transactional.id": "x"}, "set exactlyOnce=true; the ids begin with"),
    ],
)
def test_options_that_contradict_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_sink_options({**SINK, **given})


def test_a_sink_is_named_after_its_topic_unless_it_has_a_name() -> None:
    assert read_sink_options(SINK).exactly_once is None
    plain = read_sink_options({**SINK, "exactlyonce": "TRUE"}).exactly_once
    assert plain is not None
    assert (plain.name, plain.write_id, plain.prefix) == ("out", None, "ottla.sink.")
    named = from_options({"exactlyOnce": "true", "exactlyOnceName": "n", "exactlyOnceId": "i"}.get, "out")
    assert named is not None
    assert (named.name, named.write_id) == ("n", "i")


@pytest.mark.parametrize(
    ("properties", "once", "name", "batch", "run", "write"),
    [
        (BATCH_7, ONCE, "ottla.sink.q.out.2", 7, "run-1", "30"),
        (BATCH_7, ExactlyOnce("writer"), "ottla.sink.q.2", 7, "run-1", "30"),
        (BATCH_7, ExactlyOnce("writer", "mine", "out", "p-"), "p-mine.out.2", 7, "run-1", "30"),
        # No other run repeats it, so that its tasks cannot change.
        (
            {"spark.jobGroup.id": "notebook", "spark.sql.adaptive.enabled": "true"},
            ONCE,
            "ottla.sink.writer.out.2",
            0,
            "writer",
            "",
        ),
        (
            {"spark.sql.adaptive.enabled": "false"},
            ExactlyOnce("writer", "nightly"),
            "ottla.sink.nightly.2",
            0,
            "writer",
            "",
        ),
    ],
)
def test_identity_of_a_task(
    properties: dict[str, str], once: ExactlyOnce, name: str, batch: int, run: str, write: str
) -> None:
    attempt = attempt_in(properties, once)
    assert (attempt.transactional_id, attempt.batch, attempt.run, attempt.write) == (name, batch, run, write)
    assert attempt.is_lasting is ("writer" not in name)
    assert task_of(name, attempt.write_name) == 2
    assert task_of(name, attempt.write_name + ".x") is None


def test_speculative_tasks_are_refused() -> None:
    with pytest.raises(ExactlyOnceError, match=r"spark\.speculation=false"):
        attempt_in({**BATCH_7, "spark.speculation": "true"})


ALL, STREAMS = "spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled"


@pytest.mark.parametrize("value", [{}, {ALL: "true", STREAMS: "true"}])
def test_adaptive_execution_is_refused_with_the_setting_to_change(value: dict[str, str]) -> None:
    query = {name: text for name, text in BATCH_7.items() if name != ALL} | value
    stream = replace(ONCE, in_stream=True)
    attempt_in(query | {STREAMS: "false"}, stream)
    attempt_in(query | {ALL: "false"}, stream)
    with pytest.raises(ExactlyOnceError, match=f"set {STREAMS}=false"):
        attempt_in(query, stream)
    with pytest.raises(ExactlyOnceError, match=f"set {ALL}=false"):
        attempt_in(query | {STREAMS: "false"})
    with pytest.raises(ExactlyOnceError, match=f"set {ALL}=false"):
        attempt_in(value, ExactlyOnce("writer", "nightly"))


@pytest.mark.parametrize(
    ("marker", "written"),
    [
        (Marker(), False),
        (Marker(7, "run-0", "9"), False),
        (Marker(8, "run-1", "30"), True),
        (Marker(8, "run-0", "12"), True),
    ],
)
def test_a_task_writes_unless_its_marker_is_greater_than_the_batch(marker: Marker, written: bool) -> None:
    assert has_written(attempt_in(BATCH_7), marker) is written


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (Marker(8, "run-1", "29"), "set the option exactlyOnceName"),
        (Marker(9, "run-0", "12"), "the checkpoint is older than the output"),
    ],
)
def test_a_marker_of_another_write_is_refused(marker: Marker, message: str) -> None:
    with pytest.raises(ExactlyOnceError, match=message):
        has_written(attempt_in(BATCH_7), marker)


def test_changed_settings_are_refused_while_a_batch_is_half_written() -> None:
    attempt = attempt_in(BATCH_7)
    check_layout(attempt, [Marker(), Marker(7, "run-0", "9", 5, {"spark.sql.shuffle.partitions": "2"})])
    check_layout(attempt, [Marker(8, "run-0", "9", 5, {**attempt.layout}), Marker(8)])
    half_written = Marker(8, "run-0", "9", 5, {**attempt.layout, "spark.sql.shuffle.partitions": "2"})
    with pytest.raises(ExactlyOnceError, match=r"half written with spark\.sql\.shuffle\.partitions=2, and now it is 4"):
        check_layout(attempt, [Marker(), half_written])


def test_batch_that_a_version_with_other_tasks_has_half_written_is_refused() -> None:
    attempt = attempt_in(BATCH_7)
    before = {name: text for name, text in attempt.layout.items() if name in LAYOUT}
    check_layout(attempt, [Marker(7, "run-0", "9", 5, before)])
    with pytest.raises(ExactlyOnceError, match="half written by a version of Ottla that divides it into other tasks"):
        check_layout(attempt, [Marker(8, "run-0", "9", 5, before)])


def test_batch_that_a_version_with_shared_tasks_has_half_written_is_refused() -> None:
    attempt = attempt_in(BATCH_7)
    check_layout(attempt, [Marker(8, "run-0", "9", 5, {**attempt.layout, SHARED_TASKS: "false"})])
    with pytest.raises(ExactlyOnceError, match="half written by a version of Ottla that divides it into other tasks"):
        check_layout(attempt, [Marker(8, "run-0", "9", 5, {**attempt.layout, SHARED_TASKS: "true"})])


def test_another_write_with_a_used_id_is_refused() -> None:
    attempt = attempt_in({"spark.sql.adaptive.enabled": "false"}, replace(ONCE, write_id="mine"))
    with pytest.raises(ExactlyOnceError, match="has written 5 rows with this exactlyOnceId, and now gets 6"):
        check_rows(attempt, Marker(1, "run-0", "", 5, {}), 6)


def test_another_number_of_rows_is_refused() -> None:
    attempt = attempt_in(BATCH_7)
    check_rows(attempt, Marker(8, "run-0", "9", 5, {}), 5)
    with pytest.raises(ExactlyOnceError, match="wrote 5 rows of batch 7, and now gets 6"):
        check_rows(attempt, Marker(8, "run-0", "9", 5, {}), 6)


@given(st.text(), st.text(), st.integers(0, 2**40), st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_marker_survives_its_metadata(run: str, write: str, rows: int, layout: dict[str, str]) -> None:
    marker = Marker(3, run, write, rows, layout)
    assert Marker.read(3, marker.metadata) == marker


@given(st.one_of(st.none(), st.text(), st.just("{}"), st.just('{"run":1,"write":2,"rows":"x","layout":3}')))
def test_metadata_of_others_counts_as_no_metadata(text: str | None) -> None:
    assert Marker.read(3, text) == Marker(3)


def test_only_the_first_attempt_of_the_next_batch_of_a_run_continues_with_a_kept_producer() -> None:
    attempt = attempt_in(BATCH_7)
    kept = Marker(7, "run-1", "29", 3, {})
    assert may_continue(attempt, kept)
    assert not may_continue(replace(attempt, number=1), kept)
    assert not may_continue(attempt, replace(kept, run="run-0"))
    assert not any(may_continue(attempt, replace(kept, batches=batches)) for batches in (6, 8))
    assert not may_continue(attempt, Marker()), "nothing is known"
