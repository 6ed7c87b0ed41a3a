"""Delays of flights, by airline and hour and with the weather: streams of two topics, tables from two others, on Spark.

    python examples/flights_spark.py --bootstrap HOST:PORT                            in this process, until stopped
    python examples/flights_spark.py --bootstrap HOST:PORT --master spark://HOST:PORT the same on a cluster
    python examples/flights_spark.py --bootstrap HOST:PORT --once                     what is there now, then ends

Topics: `flights` and `weather` are events, `airlines` and `planes` compacted tables. Results go to `delays`, one record
for each airline and hour, and flights that left three hours late or more to `alerts`. `make run` brings it all along.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StreamingQuery

import ottla.spark

FLIGHT = "hour TIMESTAMP, carrier STRING, flight INT, tail STRING, origin STRING, dest STRING, dep_delay INT"
WEATHER = "hour TIMESTAMP, origin STRING, wind_speed DOUBLE, visib DOUBLE"
AIRLINE = "name STRING"
PLANE = "year INT, manufacturer STRING, model STRING, seats INT"
EXTREME_DELAY_MINUTES = 180


class Pipeline:
    """The queries, on the topics of one cluster."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoints: str, once: bool = False) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.checkpoints = checkpoints
        self.trigger = {"availableNow": True} if once else {"processingTime": "500 milliseconds"}

    def start(self) -> list[StreamingQuery]:
        """Both queries, running."""
        airlines, planes = self.table("airlines", AIRLINE), self.table("planes", PLANE)
        return [
            self.write("delays", self.delays(airlines, planes)),
            self.write("alerts", self.alerts(airlines, planes)),
        ]

    def events(self, topic: str, schema: str, reader: str) -> DataFrame:
        """A topic of JSON events as a stream. `reader` is the consumer group whose lag shows how far it is."""
        return (
            self.spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("commitGroup", reader)
            .option("value.format", "json")
            .option("value.schema", schema)
            .option("mode", "PERMISSIVE")
            .load()
            .where("value IS NOT NULL")  # what is not JSON, or does not fit
            .select("value.*")
        )

    def table(self, topic: str, schema: str) -> DataFrame:
        """A compacted topic as a table: the last value of each key, kept in memory."""
        return (
            self.spark.read.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("value.format", "json")
            .option("value.schema", schema)
            .load()
            .groupBy(F.col("key").cast("string").alias("key"))
            .agg(F.max_by("value", "offset").alias("value"))
            .where("value IS NOT NULL")  # deleted
            .select("key", "value.*")
            .cache()
        )

    def flights(self, reader: str) -> DataFrame:
        """Flights as they come; some lack the aircraft's tail number. One may be late by a day, later ones are lost."""
        flights = self.events("flights", FLIGHT, reader).withWatermark("hour", "1 day")
        return flights.withColumn("tail", F.coalesce(F.upper(F.trim("tail")), F.lit("UNKNOWN")))

    def delays(self, airlines: DataFrame, planes: DataFrame) -> DataFrame:
        """Delays by airline and hour, with the weather where and when the flights left, and the seats in the planes."""
        weather = self.events("weather", WEATHER, "spark-delays").withWatermark("hour", "1 day")
        met = (
            self.flights("spark-delays")
            .alias("f")
            .join(weather.alias("w"), F.expr("f.origin = w.origin AND f.hour = w.hour"), "leftOuter")
        )
        return (
            met.join(F.broadcast(planes.select(F.col("key").alias("tail"), "seats")), "tail", "left")
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
            .join(F.broadcast(airlines.withColumnRenamed("key", "carrier")), "carrier", "left")
            .select(F.col("carrier").alias("key"), F.col("window.start").alias("hour"), "carrier", *RESULTS)
        )

    def alerts(self, airlines: DataFrame, planes: DataFrame) -> DataFrame:
        """Flights that left very late, with the names of airline and aircraft."""
        late = self.flights("spark-alerts").where(F.col("dep_delay") >= EXTREME_DELAY_MINUTES)
        return (
            late.join(F.broadcast(airlines.withColumnRenamed("key", "carrier")), "carrier", "left")
            .join(F.broadcast(planes.withColumnRenamed("key", "tail")), "tail", "left")
            .withColumn("key", F.col("tail"))
        )

    def write(self, topic: str, rows: DataFrame) -> StreamingQuery:
        """Rows into a topic: the column `key` is the key, the others are the value."""
        return (
            rows.writeStream.format("ottla")
            .queryName(topic)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", topic)
            .option("value.format", "json")
            .option("checkpointLocation", f"{self.checkpoints}/{topic}")
            .trigger(**self.trigger)
            .start()
        )


RESULTS = ("name", "flights", "departed", "delay_minutes", "longest", "seat_minutes_lost", "with_weather", "wind_speed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--master", help="Spark's master URL; default: this process (local[*])")
    parser.add_argument(
        "--checkpoints", default="out/checkpoints", help="a directory that all of the cluster can reach"
    )
    parser.add_argument(
        "--partitions", type=int, default=4, help="parts that joins and sums are split into (default 4)"
    )
    parser.add_argument("--once", action="store_true", help="process what is there now, and end")
    options = parser.parse_args()
    # Spark's own number is 200, and each micro-batch pays for each.
    spark = ottla.spark.session("flights", options.master, **{"spark.sql.shuffle.partitions": options.partitions})
    for query in Pipeline(spark, options.bootstrap, options.checkpoints, options.once).start():
        query.awaitTermination()


if __name__ == "__main__":
    main()
