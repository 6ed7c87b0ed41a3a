"""The temperature demo of Kafka Streams: windows of five seconds whose highest temperature is above 20 degrees.

ottla topic create iot-temperature iot-temperature-max
ottla stream run examples/streams/temperature.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, run, stream, to


@pipeline(exactly_once=True)
def temperature(
    readings: Any = stream(
        "iot-temperature", "json", schema="sensor STRING, degrees INT, at TIMESTAMP", time="at", late="5 seconds"
    ),
) -> Output:
    highest = readings.groupBy(F.window("at", "5 seconds"), "sensor").agg(F.max("degrees").alias("degrees"))
    warm = highest.where("degrees > 20")
    shown = warm.select("sensor", F.col("window.start").cast("long").alias("second"), "degrees")
    return to("iot-temperature-max", shown, key="sensor", mode="final")


if __name__ == "__main__":
    run()
