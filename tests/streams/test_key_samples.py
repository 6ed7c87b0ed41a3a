"""Which key most rows of a slow task have, for each kind of key; and that Spark gives this key to that task."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StatefulProcessor

from ottla.spark.protobuf_messages import message_class
from ottla.streams import pipeline, stream, table, to
from ottla.streams.declarations import Pipeline
from ottla.streams.key_samples import sample_keys
from ottla.streams.planning import Plan
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings
from ottla.streams.status import Input, Partition, Run, SlowTask, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

CLICK = "id STRING, user STRING, at TIMESTAMP"
CLICKS: Any = stream("clicks", "json", schema=CLICK, time="at", late="1 hour")
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "user", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
}


def descriptors() -> str:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="c.proto", package="c", syntax="proto3")
    click = file.message_type.add(name="Click")
    click.field.add(name="user", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    found = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(found.SerializeToString()).decode()


DESCRIPTORS = descriptors()
Click = message_class("c.Click", DESCRIPTORS)


class Nothing(StatefulProcessor):
    """A processor that stores its key."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "user STRING")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's
        self.seen.update((str(key[0]),))
        yield from ()

    def close(self) -> None:
        pass


@pipeline
def renamed(rows: Any = CLICKS) -> Any:
    found = rows.withColumnRenamed("user", "who").select("who", F.col("id").alias("user"))
    return to("out", found.dropDuplicates(["who"]))


@pipeline
def misleading(rows: Any = CLICKS) -> Any:
    """The column `user` is not the field `user`."""
    return to("out", rows.withColumn("user", F.concat(F.lit("x-"), F.length("user"))).dropDuplicates(["user"]))


@pipeline
def computed(rows: Any = CLICKS) -> Any:
    counted = rows.groupBy(F.upper("user"), F.window("at", "1 hour")).agg(F.collect_list("id").alias("ids"))
    return to("out", counted.select("ids"), mode="final")


@pipeline
def exploded(rows: Any = stream("lines", "text")) -> Any:
    words = rows.select(F.explode(F.split("value", " ")).alias("word"))
    return to("out", words.groupBy("word").agg(F.collect_list("word").alias("all")), key="word", mode="updates")


@pipeline
def sessions(rows: Any = CLICKS) -> Any:
    return to("out", rows.groupBy("user", F.session_window("at", "1 minute")).count(), mode="final")


@pipeline
def distinct(rows: Any = stream("clicks", "json", schema=CLICK, key="text", time="at", late="1 hour")) -> Any:
    return to("out", rows.dropDuplicatesWithinWatermark(["key", "user"]))


@pipeline
def joined(
    rows: Any = CLICKS,
    ads: Any = stream("ads", "json", schema="ad STRING, shown TIMESTAMP", time="shown", late="1 hour"),
) -> Any:
    pairs = rows.join(ads, F.expr("user = ad AND at BETWEEN shown AND shown + INTERVAL 1 MINUTE"))
    return to("out", pairs.select("id", "ad"))


@pipeline
def processed(rows: Any = CLICKS) -> Any:
    found = rows.withColumnRenamed("user", "who").groupBy("who")
    found = found.transformWithState(Nothing(), "user STRING", "append", "none")
    return to("out", found)


@pipeline
def processed_in_pandas(rows: Any = CLICKS) -> Any:
    found = rows.groupBy("user").applyInPandasWithState(
        lambda *_: iter(()), "user STRING", "n INT", "append", "NoTimeout"
    )
    return to("out", found)


@pipeline
def avro(rows: Any = stream("avro", "avro", schema=AVRO)) -> Any:
    return to("out", rows.dropDuplicates(["user"]))


@pipeline
def protobuf(rows: Any = stream("protobuf", "protobuf", schema=Click)) -> Any:
    return to("out", rows.dropDuplicates(["user"]))


@pipeline
def enriched(rows: Any = CLICKS, names: Any = table("names", key="user", schema="name STRING")) -> Any:
    return to("out", rows.join(names, "user").dropDuplicates(["name"]))


@pipeline
def chained(rows: Any = CLICKS) -> Any:
    once = rows.dropDuplicatesWithinWatermark(["id"])
    return to("out", once.groupBy("user", F.window("at", "1 hour")).count(), mode="final")


@pipeline
def bad_ones(rows: Any = stream("bad", "json", schema="user STRING", bad="skip", key="text")) -> Any:
    return to("out", rows.dropDuplicates(["user"]))


def encoded_in_avro(user: str) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"user": user, "n": None})
    return out.getvalue()


def produce(ottla: Ottla) -> None:
    """Write 200 records to each topic, of which 120 have the user `hot`; the others have 20 users."""
    users = ["hot" if number % 5 < 3 else f"user{number % 20}" for number in range(200)]
    time = "2026-01-01T00:00:00Z"
    clicks = [json.dumps({"user": user, "id": f"i{number}", "at": time}) for number, user in enumerate(users)]
    values: dict[str, list[Any]] = {
        "clicks": clicks,
        "ads": [json.dumps({"ad": user, "shown": time}) for user in users],
        "lines": [f"{user} {user}" for user in users],
        "avro": [encoded_in_avro(user) for user in users],
        "protobuf": [Click(user=user).SerializeToString() for user in users],
        "bad": ["no JSON", *(json.dumps({"user": user}) for user in users)],
    }
    for topic, found in values.items():
        ottla.topic(topic, 2)
        for partition in (0, 1):
            ottla.produce(topic, *found[partition::2], key="k", partition=partition)
    ottla.topic("out")
    ottla.topic("names")
    for user in set(users):
        ottla.produce("names", json.dumps({"name": f"name of {user}"}), key=user)


def planned(spark: SparkSession, declared: Pipeline, settings: Settings) -> tuple[Runner, Plan]:
    """Return a runner that has planned the pipeline, with two shuffle partitions."""
    runner = Runner(spark, [declared], settings)
    topics = {each.topic: 2 for each in declared.inputs.values()}
    return runner, runner._plan(declared, topics).plan


def at_the_beginning(declared: Pipeline) -> Status:
    topics = [each.topic for each in declared.streams.values()]
    return Status(Run("p", "p"), inputs=[Input.of(topic, [Partition(n, 0, 0) for n in (0, 1)]) for topic in topics])


@pytest.mark.long
@pytest.mark.parametrize(
    ("declared", "operator", "columns", "value", "options"),
    [
        (renamed, "deduplicate by who", ["who"], '"hot"', None),
        (misleading, "deduplicate by user", ["user"], '"x-3"', None),
        (computed, "aggregate by upper(user), window", ["upper(user)", "window"], '"HOT"', {}),
        (exploded, "aggregate by word", ["word"], '"hot"', {}),
        (sessions, "aggregate by user, session_window", ["user"], '"hot"', {}),
        (distinct, "deduplicate by key, user", ["key", "user"], '"hot"', {}),
        (joined, "inner join of streams", ["user"], '"hot"', {"joinSide": "left"}),
        (processed, "processor", ["who"], '"hot"', {"stateVarName": "seen"}),
        (processed_in_pandas, "function with state", ["user"], '"hot"', None),
        (avro, "deduplicate by user", ["user"], '"hot"', None),
        (protobuf, "deduplicate by user", ["user"], '"hot"', None),
        (enriched, "deduplicate by name", ["name"], '"name of hot"', None),
        (bad_ones, "deduplicate by user", ["user"], '"hot"', None),
    ],
    ids=lambda each: each.name if isinstance(each, Pipeline) else "",
)
def test_most_frequent_key_is_reported_for_the_task_that_has_it_in_spark(
    ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path, declared: Pipeline, operator: str, columns: list[str],
    value: str, options: dict[str, str] | None,
) -> None:  # fmt: skip
    produce(ottla)
    settings = Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path))
    runner, plan = planned(ottla_spark, declared, settings)
    found = {}
    for task in (0, 1):
        slow = SlowTask(1, 0, task, 2, 9_000, 1_000)
        found[task] = sample_keys(plan.queries[0], declared, settings, at_the_beginning(declared), slow)
        assert found[task].keys, found[task].unknown
    with_hot = [task for task in (0, 1) if value in found[task].keys[0].values]
    (task,) = with_hot
    key = found[task].keys[0]
    assert (key.operator, list(key.columns)) == (operator, columns)
    assert key.rows == (400 if declared is exploded else 200)
    assert key.count >= 0.6 * key.rows
    assert key.task_rows >= key.count
    runner.stop()
    if options is None:
        return
    # Which partition of the state of the real query has this key.
    real = Runner(ottla_spark, [declared], settings)
    real.start()
    real.process_available()
    real.stop()
    path = str(tmp_path / declared.name / declared.name)
    state = ottla_spark.read.format("statestore").options(**options).load(path)
    of_key = {row["partition_id"] for row in state.collect() if _has(row["key"], json.loads(value))}
    assert of_key == {task}


def _has(key: Any, value: str) -> bool:
    return value in [str(each) for each in key]


def test_keys_behind_another_operator_are_not_known(ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    produce(ottla)
    settings = Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path))
    runner, plan = planned(ottla_spark, chained, settings)
    slow = SlowTask(1, 0, 1, 2, 9_000, 1_000)
    found = sample_keys(plan.queries[0], chained, settings, at_the_beginning(chained), slow)
    assert (found.keys, found.unknown) == ((), "an operator with state follows another one")
    other = SlowTask(1, 0, 1, 4, 9_000, 1_000)
    unknown = sample_keys(plan.queries[0], chained, settings, at_the_beginning(chained), other).unknown
    assert unknown == "the tasks of the stage have the rows of several operators"
    runner.stop()
