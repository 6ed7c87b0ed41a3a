"""The adapter to private API of Spark: the only place that uses py4j, Java objects, and private names of pyspark.

Each function says which private API it uses, and in which pyspark versions that exists: ottla supports 4.2 and 4.3.
`tests/spark/test_internals.py` calls each of them in a real session; `make spark-versions` does so with each supported
version. Everything else in `ottla.spark` and `ottla.streams` uses public API only (`tests/unit/test_tidy.py`).

1. names: Spark's modules, classes and messages that its documentation does not mention; imports nothing.
2. exceptions, errors: which exceptions Spark calls raise, and their texts.
3. java: the Java process of the driver: its start, end, signals and log.
4. sessions: the active session, known formats, reports about micro-batches.
5. files: files of a checkpoint, by Hadoop's file systems.
6. plans: the analyzed plan of a DataFrame.
7. stages: the tasks of a running stage.
"""
