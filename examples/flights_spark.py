"""Delays of flights, by airline and hour and with the weather: pipelines of `ottla.streams` between topics, on Spark.

    ottla stream explain examples/flights_spark.py                                    what they read, keep and write
    ottla stream run examples/flights_spark.py -b HOST:PORT                           on this machine, until Ctrl-C
    ottla stream run examples/flights_spark.py -b HOST:PORT --master spark://HOST:PORT the same on a cluster
    ottla stream run examples/flights_spark.py -b HOST:PORT --once                    what is there now, then ends

Topics: `flights` and `weather` are events, `airlines` and `planes` compacted tables. Results go to `delays`, one record
for each airline and hour, and flights that left three hours late or more to `alerts`. `make run` brings it all along.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

import ottla.streams
from ottla.streams import Output, pipeline, stream, table, to

FLIGHT = "hour TIMESTAMP, carrier STRING, flight INT, tail STRING, origin STRING, dest STRING, dep_delay INT"
WEATHER = "hour TIMESTAMP, origin STRING, wind_speed DOUBLE, visib DOUBLE"
AIRLINES = table("airlines", key="carrier", schema="name STRING")
PLANES = table("planes", key="tail", schema="year INT, manufacturer STRING, model STRING, seats INT")
# An event may be late by a day; later ones are dropped, and so is what is not JSON or does not fit.
FLIGHTS = stream("flights", "json", schema=FLIGHT, time="hour", late="1 day", bad="skip")
EXTREME_DELAY_MINUTES = 180


def with_tail(flights: DataFrame) -> DataFrame:
    """Flights with the aircraft's tail number; some lack it."""
    return flights.withColumn("tail", F.coalesce(F.upper(F.trim("tail")), F.lit("UNKNOWN")))


@pipeline(exactly_once=True)
def delays(
    flights: DataFrame = FLIGHTS,
    weather: DataFrame = stream("weather", "json", schema=WEATHER, time="hour", late="1 day", bad="skip"),
    airlines: DataFrame = AIRLINES,
    planes: DataFrame = PLANES,
) -> Output:
    """Delays by airline and hour, with the weather where and when the flights left, and the seats in the planes."""
    there = F.expr("f.origin = w.origin AND f.hour = w.hour")
    met = with_tail(flights).alias("f").join(weather.alias("w"), there, "leftOuter")
    hours = (
        met.join(planes.select("tail", "seats"), "tail", "left")
        .groupBy(F.window("f.hour", "1 hour"), "carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.sum("dep_delay").alias("delay_minutes"),
            F.max("dep_delay").alias("longest"),
            F.sum(F.expr("seats * IF(dep_delay < 0, 0, dep_delay)")).alias("seat_minutes_lost"),
            F.count("w.hour").alias("with_weather"),
            F.avg("wind_speed").alias("wind_speed"),
        )
        .join(airlines, "carrier", "left")
    )
    return to("delays", hours.withColumn("hour", F.col("window.start")).drop("window"), key="carrier", mode="final")


@pipeline(exactly_once=True)
def alerts(flights: DataFrame = FLIGHTS, airlines: DataFrame = AIRLINES, planes: DataFrame = PLANES) -> Output:
    """Flights that left very late, with the names of airline and aircraft."""
    late = with_tail(flights).where(F.col("dep_delay") >= EXTREME_DELAY_MINUTES)
    return to("alerts", late.join(airlines, "carrier", "left").join(planes, "tail", "left"), key="tail")


if __name__ == "__main__":
    ottla.streams.run()
