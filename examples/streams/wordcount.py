"""The word count of Kafka Streams' documentation.

ottla topic create streams-plaintext-input streams-wordcount-output
ottla stream run examples/streams/wordcount.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, run, stream, to


@pipeline(exactly_once=True)
def wordcount(lines: Any = stream("streams-plaintext-input", value="text")) -> Output:
    words = lines.select(F.explode(F.split(F.lower("value"), r"\W+")).alias("word")).where("word != ''")
    return to("streams-wordcount-output", words.groupBy("word").count(), key="word", mode="updates")


if __name__ == "__main__":
    run()
