"""Ottla for Spark: `format("ottla")` reads and writes topics of Ottla or any Kafka, without a jar.

It needs no registration: Spark finds it by the package `pyspark_ottla`. Options and columns have the names of Spark's
Kafka source (docs/spark.md). Names here are imported on first use, because importing pyspark takes a second.

Reading order:

1. Pure functions: options (with the tables in names) and offsets (positions, ranges).
2. On the driver: source, readers, cluster (requests to the brokers), sink.
3. In the tasks: range_reader, batch_writer, client_pool, workers.
4. Typed columns: formats (reads), writing_formats and write_encodings (writes), json_columns, avro_values,
   protobuf_values; registry, registry_types, registry_writing and derived_schemas for schemas in a registry. Their part
   without pyspark and pyarrow, which lookups of tables use, too: ddl, json_schema, avro_options, protobuf_messages,
   format_errors.
5. session: a SparkSession with fast settings. java_start, class_archive and forked_workers (with worker_server and
   worker_launcher) make its start faster.
6. internals: the adapter to private API of Spark, which nothing else uses.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
