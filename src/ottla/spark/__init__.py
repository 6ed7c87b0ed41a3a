"""Ottla for Spark: `format("ottla")` reads and writes topics of Ottla or any Kafka, without a jar.

Nothing to register: Spark finds it by the package `pyspark_ottla`. Options and columns are those of Spark's own Kafka
source (docs/spark.md). Names here are imported on first use, since pyspark takes a second.

Reading order: the pure parts `options` (what may be asked for, by the `names` there are) and `offsets` (positions,
ranges); then `source`, what Spark calls on the driver, with `cluster`, its questions to the brokers; `reading` and
`sink`, what the tasks do, in processes that `workers` makes quick; `formats`, typed columns; `session`, a SparkSession
with the settings that make it quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.lazy import lazy_names

# Not on first use like the rest: once imported, the module of this name would hide the function. It imports no pyspark.
from ottla.spark.session import JavaMissing, session, settings

if TYPE_CHECKING:
    from ottla.spark.avro_values import avro_schema
    from ottla.spark.options import OptionError
    from ottla.spark.source import OttlaDataSource

_MODULES = {
    "OptionError": "ottla.spark.options",
    "OttlaDataSource": "ottla.spark.source",
    "avro_schema": "ottla.spark.avro_values",
}

__all__ = [
    "JavaMissing",
    "OptionError",
    "OttlaDataSource",
    "avro_schema",
    "session",
    "settings",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
