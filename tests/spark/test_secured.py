"""Spark and pipelines on a broker with SASL_SSL: the options reach driver and executors, and show nowhere.

One program reads, writes, streams and runs a pipeline of `ottla.streams`, with Spark's UI and its event log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.testing import Ottla

SECRET = "Xq7-never-shown"
PROGRAM = """
    import json, os, pathlib, sys, urllib.request
    from pyspark.errors import PySparkException
    import ottla.spark
    from ottla.spark.session import QUICK_JAVA
    from ottla.streams import pipeline, run, stream, to

    given = json.load(sys.stdin)
    client, wrong, home = given["client"], given["wrong"], pathlib.Path(given["home"])
    spark = ottla.spark.session("secured", "local[2]", **{
        "spark.ui.enabled": True, "spark.ui.port": "0", "spark.driver.memory": "1g",
        "spark.eventLog.enabled": True, "spark.eventLog.compress": False, "spark.eventLog.dir": str(home / "events"),
        "spark.driver.extraJavaOptions": QUICK_JAVA, "spark.log.level": "INFO",
    })
    options = {f"kafka.{name}": value for name, value in client.items()}
    shown = {}

    read = spark.read.format("ottla").options(**options).option("subscribe", "orders").load()
    assert sorted(row.value for row in read.collect()) == [b"a", b"b", b"c"]
    shown["plan"] = read._jdf.queryExecution().toString() + repr(read)
    read.select("value").write.format("ottla").options(**options).option("topic", "copy").mode("append").save()
    streamed = spark.readStream.format("ottla").options(**options).option("subscribe", "orders")
    query = (
        streamed.option("startingOffsets", "earliest").load().select("value").writeStream.format("ottla")
        .options(**options).option("topic", "copy").option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True).start()
    )
    assert query.awaitTermination(60)
    shown["query"] = query._jsq.explainInternal(True) + "".join(str(each) for each in query.recentProgress)

    @pipeline()
    def upper(lines=stream("orders", value="text", start="earliest")):
        return to("upper", lines.selectExpr("upper(value) AS value"))

    statuses = run(upper, bootstrap=client["bootstrap.servers"], client=client, once=True,
                   checkpoints=str(home / "pipelines"))
    shown["statuses"] = repr(statuses)

    for name, value in (("kafka.sasl.password", wrong), ("kafka.sasl.passwort", wrong)):
        try:
            changed = {**options, name: value, "subscribe": "orders"}
            spark.read.format("ottla").options(**changed).load().collect()
        except PySparkException as error:
            shown[name] = f"{error} {error!r}"
    assert "Invalid username or password" in shown["kafka.sasl.password"], shown["kafka.sasl.password"]

    api = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    for path in (f"{api}/sql?details=true&planDescription=true&length=100", f"{api}/environment", f"{api}/stages"):
        shown[path] = urllib.request.urlopen(path, timeout=30).read().decode()
    spark.stop()
    events = [path for path in (home / "events").rglob("*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in path.read_text(errors="replace") for path in events)
    for path in home.rglob("*"):
        if path.is_file():
            shown[str(path)] = path.read_text(errors="replace")
    print(json.dumps(shown))
"""


@pytest.mark.long
@pytest.mark.timeout(240)
def test_pipeline_runs_on_a_secured_broker_and_shows_no_secret(
    ottla_broker: Callable[..., Ottla], tmp_path: Path
) -> None:
    kafka = ottla_broker(security="SASL_SSL", users=["ann"])
    for topic in ("orders", "copy", "upper"):
        kafka.topic(topic, partitions=1)
    kafka.produce("orders", "a", "b", "c")
    (tmp_path / "events").mkdir()
    client = kafka.settings()
    given = {"client": client, "wrong": SECRET, "home": str(tmp_path)}
    (tmp_path.parent / "program.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(tmp_path.parent / "program.py")],
        input=json.dumps(given), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    assert len(kafka.consume("copy", n=6)) == 6
    assert sorted(record.value or b"" for record in kafka.consume("upper", n=3)) == [
        b'{"value":"%s"}' % letter for letter in (b"A", b"B", b"C")
    ]
    shown = json.loads(done.stdout.splitlines()[-1])
    shown |= {"standard error": done.stderr, "standard output": "\n".join(done.stdout.splitlines()[:-1])}
    assert len(shown) > 10
    for secret in (client["sasl.password"], SECRET):
        assert [name for name, text in shown.items() if secret in text] == []
