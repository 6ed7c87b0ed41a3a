"""Programs that are refused before their first micro-batch, with the pipeline's name and what to do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StatefulProcessor

from ottla.streams import Output, StreamsError, pipeline, stream, table, to
from ottla.streams.planning import check, make_plan
from ottla.streams.settings import Settings

from .conftest import Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

SETTINGS = Settings({"bootstrap.servers": "nowhere:9092"}, "checkpoints")
LINES = stream("lines", value="text")


def checked(spark: SparkSession, *pipelines: Any) -> None:
    check(*(make_plan(spark, each, SETTINGS) for each in pipelines))


class Locked(StatefulProcessor):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's
        yield from ()

    def close(self) -> None: ...


def with_udf(lines: Any = LINES) -> Output:
    used = threading.Lock()

    def shout(text):  # type: ignore[no-untyped-def]
        with used:
            return text.upper()

    return to("loud", lines.select(F.udf(shout, "STRING")("value").alias("value")), value="text")


def with_batches(lines: Any = LINES) -> Output:
    used = threading.Lock()

    def passed(batches):  # type: ignore[no-untyped-def]
        with used:
            yield from batches

    return to("loud", lines.mapInArrow(passed, "value STRING"), value="text")


def with_processor(lines: Any = LINES) -> Output:
    found = lines.groupBy("value").transformWithState(
        statefulProcessor=Locked(), outputStructType="value STRING", outputMode="append", timeMode="none"
    )
    return to("loud", found, value="text")


def with_session(lines: Any = LINES) -> Output:
    session = lines.sparkSession
    count = F.udf(lambda text: session.range(len(text)).count(), "INT")
    return to("loud", lines.select(count("value").alias("value")))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (with_udf, r"the function 'with_udf\.<locals>\.shout' \(test_refused\.py, line \d+\).* 'used' is of type lock"),
        (with_batches, r"the function 'with_batches\.<locals>\.passed' .* variable 'used' is of type lock"),
        (with_processor, r"cannot be sent to Spark's workers: its variable '.*lock' is of type lock"),
        (with_session, r"the function 'with_session\.<locals>\.<lambda>' .* variable 'session.* is of type"),
    ],
)
def test_function_that_cannot_be_pickled_is_named_with_its_pipeline(
    ottla_spark: SparkSession, capfd: pytest.CaptureFixture[str], function: Callable[..., Output], said: str
) -> None:
    with pytest.raises(StreamsError, match=said) as raised:
        checked(ottla_spark, pipeline(name="p")(function))
    assert str(raised.value).startswith("Pipeline 'p': ")
    assert "Create such an object in the function" in str(raised.value)
    assert "Traceback" not in capfd.readouterr().err


def copied(name: str, source: str, target: str, **more: Any) -> Any:
    return pipeline(name=name, **more)(lambda rows=stream(source, value="text"): to(target, rows, value="text"))


def test_output_that_is_an_input_is_refused_unless_the_pipeline_may_loop(ottla_spark: SparkSession) -> None:
    with pytest.raises(StreamsError, match=r"Pipeline 'p': its output 'lines' is its input, too: .*set loop=True"):
        checked(ottla_spark, copied("p", "lines", "lines"))
    with pytest.raises(StreamsError, match="Pipeline 'p': its results come back to it: 'q' reads 'b', 'p' reads 'a'"):
        checked(ottla_spark, copied("p", "a", "b"), copied("q", "b", "a"))
    checked(ottla_spark, copied("p", "lines", "lines", loop=True))
    checked(ottla_spark, copied("p", "a", "b"), copied("q", "b", "a", loop=True))


@pipeline(name="p")
def letters(rows: Any = stream("rows", "json", schema="x INT", bad="topic:rows")) -> Output:
    return to("good", rows)


@pipeline(name="p")
def of_itself(
    rows: Any = stream("rows", "json", schema="id STRING"), known: Any = table("known", key="id", schema="x INT")
) -> Output:
    return to("known", rows.join(known, "id", "left"), key="id")


def test_invalid_records_and_tables_are_outputs_and_inputs_too(ottla_spark: SparkSession) -> None:
    with pytest.raises(StreamsError, match="Pipeline 'p': its output 'rows' is its input, too"):
        checked(ottla_spark, letters)
    with pytest.raises(StreamsError, match="Pipeline 'p': its output 'known' is its table, too"):
        checked(ottla_spark, of_itself)


def test_loop_that_ends_by_itself_runs(ottla_streams: Start, ottla: Ottla) -> None:
    @pipeline(loop=True)
    def down(rows: Any = stream("numbers", "text")) -> Output:
        left = rows.selectExpr("cast(value AS INT) - 1 AS value").where("value >= 0")
        return to("numbers", left.selectExpr("cast(value AS STRING) AS value"), value="text")

    test = ottla_streams(down)
    test.send("rows", "3")
    for _ in range(4):
        test.process()
    assert [record.value for record in ottla.records("numbers")] == [b"3", b"2", b"1", b"0"]


@pipeline(name="p")
def wrong_output(rows: Any = stream("rows", "text")) -> Output:
    return to("b", rows, mode="update")  # type: ignore[arg-type]


@pipeline(name="p")
def wrong_input(rows: Any = stream("rows", "json", schema="x IN")) -> Output:
    return to("b", rows)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (wrong_output, r"^Pipeline 'p': to\('b'\): mode is 'update'; did you mean 'updates'"),
        (wrong_input, r"^Pipeline 'p': stream\('rows'\): "),
    ],
)
def test_error_of_an_input_or_output_names_its_pipeline(ottla_spark: SparkSession, program: Any, said: str) -> None:
    with pytest.raises(StreamsError, match=said):
        checked(ottla_spark, program)
