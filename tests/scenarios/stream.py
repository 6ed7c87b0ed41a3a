"""Commands of `stream_*.txt`: the query `shop` of a pipeline, its status, and what `ottla stream why` says about it.

    run [streams=orders,weather] [time=yes] [once=yes] [mode=append] [state=OPERATOR] [at_least_once=yes]
                                    a driver starts the query on host `a`
    end TOPIC-PARTITION=OFFSET...   the logs end there, as the query can read them
    batch TOPIC-PARTITION=OFFSET... [ms=N] [write=N] [rows=N] [late=N] [watermark=TIME] [invalid=N]
                                    a micro-batch has read up to there; `write` of its `ms` are the checkpoint
    busy                            a micro-batch starts
    fail KIND [restart=S] WORD...   the query fails because of this
    restart                         the query starts again
    stop, done                      the run ends
    advance S                       time passes; the driver publishes heartbeats
    die                             the driver publishes no more
    open TOPIC-PARTITION=OFFSET [id=ID] [for=S]     a transaction is open from there on
    drop TOPIC                      the topic is deleted
    why                             print the findings; ! needs action

The status passes through the text of its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.common.ids import TopicPartition
from ottla.streams.batch_reports import after_batch
from ottla.streams.diagnosis import diagnose
from ottla.streams.facts import Facts, OpenTransaction
from ottla.streams.status import Problem, Run, Status, at_start

START_MS = 1_767_225_600_000  # 2026-01-01
SETTINGS = {"ms", "write", "rows", "late", "watermark", "invalid", "restart", "id", "for"}


class StreamScenario:
    """One query."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.status = Status(Run("shop", "shop"))
        self.is_dead = False
        self.ends: dict[TopicPartition, int] = {}
        self.transactions: list[OpenTransaction] = []
        self.missing: list[str] = []
        self.number = 0

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        lines: list[str] | None = getattr(self, f"do_{verb}")(arguments, options)
        return lines or []

    def close(self) -> None:
        """There is nothing to close."""

    def do_run(self, _: list[str], options: Mapping[str, str]) -> None:
        topics = options.get("streams", "orders").split(",")
        self.status = at_start(
            Run(
                "shop",
                "shop",
                host="a",
                pid=7,
                started_ms=self.now_ms,
                once="once" in options,
                exactly_once="at_least_once" not in options,
                mode=options.get("mode", "append"),
                streams={topic: topic for topic in topics},
                outputs=["invoices"],
                operators=[options["state"].replace("_", " ")] if "state" in options else [],
                has_event_time="time" in options,
            ),
            {t: {p.partition: (0, end) for p, end in self.ends.items() if p.topic == t} for t in topics},
        )

    def do_end(self, _: list[str], options: Mapping[str, str]) -> None:
        self.ends |= partitions(options)

    def do_batch(self, _: list[str], options: Mapping[str, str]) -> None:
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in partitions(options).items():
            offsets.setdefault(topic, {})[str(partition)] = offset
        latest = {
            t: {p: self.ends.get(TopicPartition(t, int(p)), o) for p, o in at.items()} for t, at in offsets.items()
        }
        before = {each.topic: {str(p.partition): p.offset for p in each.partitions} for each in self.status.inputs}
        duration_ms, write_ms = int(options.get("ms", 200)), int(options.get("write", 20))
        store = {"numRowsTotal": int(options.get("rows", 0)), "numRowsDroppedByWatermark": int(options.get("late", 0))}
        report: dict[str, Any] = {
            "batchId": self.number,
            "batchDuration": duration_ms,
            "durationMs": {"addBatch": duration_ms - write_ms, "walCommit": write_ms},
            "sources": [{"startOffset": before or None, "endOffset": offsets, "latestOffset": latest}],
            "stateOperators": [store] if self.status.run.operators else [],
            "observedMetrics": {"invalid.orders": {"count": int(options.get("invalid", 0))}},
        }
        if "watermark" in options:
            report["eventTime"] = {"watermark": options["watermark"]}
        self.number += 1
        self.now_ms += duration_ms
        self.status = after_batch(self.status, report, self.now_ms)

    def do_busy(self, _: list[str], __: Mapping[str, str]) -> None:
        self.status = replace(self.status, busy_since_ms=self.now_ms)

    def do_fail(self, arguments: list[str], options: Mapping[str, str]) -> None:
        kind, *words = arguments
        again_ms = self.now_ms + 1000 * int(options["restart"]) if "restart" in options else None
        problem = Problem(self.now_ms, kind, " ".join(words), 2, again_ms)
        self.status = replace(
            self.status, phase="failed" if again_ms is None else "restarting", at_ms=self.now_ms, problem=problem
        )

    def do_restart(self, _: list[str], __: Mapping[str, str]) -> None:
        self.status = replace(self.status, phase="running", at_ms=self.now_ms)

    def do_stop(self, _: list[str], __: Mapping[str, str]) -> None:
        self.status = replace(self.status, phase="stopped", at_ms=self.now_ms)

    def do_done(self, _: list[str], __: Mapping[str, str]) -> None:
        self.status = replace(self.status, phase="done", at_ms=self.now_ms)

    def do_advance(self, arguments: list[str], _: Mapping[str, str]) -> None:
        self.now_ms += 1000 * int(arguments[0])
        if self.status.phase in ("running", "restarting") and not self.is_dead:
            self.status = replace(self.status, at_ms=self.now_ms)

    def do_die(self, _: list[str], __: Mapping[str, str]) -> None:
        self.is_dead = True

    def do_open(self, _: list[str], options: Mapping[str, str]) -> None:
        last_ms = self.now_ms - 1000 * int(options.get("for", 60))
        for partition, offset in partitions(options).items():
            self.transactions.append(OpenTransaction(partition, offset, 4000, options.get("id"), last_ms, 17))

    def do_drop(self, arguments: list[str], _: Mapping[str, str]) -> None:
        self.missing += arguments

    def do_why(self, _: list[str], __: Mapping[str, str]) -> list[str]:
        facts = Facts(self.now_ms, self.ends, self.transactions, self.missing)
        lines = []
        for each in diagnose(Status.loads(self.status.dumps()), facts):
            lines.append(f"{'!' if each.is_problem else '.'} {each.cause}: {each.text}")
            lines += [f"    {line}" for line in each.advice]
        return lines


def partitions(options: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The options of the form TOPIC-PARTITION=OFFSET."""
    found = {}
    for name, offset in options.items():
        if name not in SETTINGS:
            topic, _, partition = name.rpartition("-")
            found[TopicPartition(topic, int(partition))] = int(offset)
    return found
