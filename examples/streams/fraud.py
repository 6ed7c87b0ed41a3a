"""Sessions of payments with a card: one with at least three payments and 1,000 in all is suspicious.

ottla topic create payments suspicious
ottla stream run examples/streams/fraud.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, run, stream, to


@pipeline(exactly_once=True)
def fraud(
    payments: Any = stream(
        "payments", "json", schema="card STRING, amount INT, at TIMESTAMP", time="at", late="1 minute"
    ),
) -> Output:
    sessions = payments.groupBy("card", F.session_window("at", "5 minutes")).agg(
        F.count("*").alias("payments"), F.sum("amount").alias("amount")
    )
    suspicious = sessions.where("payments >= 3 AND amount >= 1000")
    start, end = (F.col(f"session_window.{name}").cast("long").alias(name) for name in ("start", "end"))
    return to("suspicious", suspicious.select("card", start, end, "payments", "amount"), key="card", mode="final")


if __name__ == "__main__":
    run()
