"""Why a query makes no progress, in words: a function from its status and facts about its topics to findings.

Without I/O, clock or Spark. The most important finding comes first. `ottla stream why` prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.common import units
from ottla.streams.facts import Facts, Finding, lag_of
from ottla.streams.facts import records as counted
from ottla.streams.skew import skewed_partition, slow_task
from ottla.streams.status import HEARTBEAT_MS, Status

OPEN_MS: Final = 5_000
"""An open transaction without a record for so long is a finding."""
BUSY_MS: Final = 10_000
"""A running micro-batch is a finding after so long, and if it takes much longer than the previous one."""
BEHIND_S: Final = 10.0
"""A query is behind if it needs longer than this for the records that wait, at its current rate."""
IDLE_MS: Final = 30_000
"""An input without records for so long may hold the event time back."""
GROWTH_ROWS: Final = 10_000
GROWTH_MS: Final = 60_000
FUTURE_MS: Final = 3_600_000
_PHASES: Final = {
    "addBatch": "reading, computing and writing the records",
    "queryPlanning": "planning by Spark",
    "walCommit": "writing the checkpoint",
    "commitOffsets": "writing the checkpoint",
    "latestOffset": "asking the brokers for offsets",
    "getBatch": "planning by Spark",
}


def diagnose(status: Status, facts: Facts) -> list[Finding]:
    """Return what keeps a query from making progress, or a finding that nothing does."""
    ended = _ended(status, facts)
    if ended is not None:
        return [ended]
    checks: Iterable[Callable[[Status, Facts], Finding | None]] = (
        _missing, _restarting, _restarted, _transaction, _busy, _behind,
        skewed_partition, slow_task, _future, _watermark, _late, _growing, _invalid,
    )  # fmt: skip
    found = [finding for check in checks if (finding := check(status, facts)) is not None]
    return found if any(each.is_problem for each in found) else [_healthy(status, facts), *found]


# -- the run has ended -------------------------------------------------------------------------------------------------


def _ended(status: Status, facts: Facts) -> Finding | None:
    when = ago(facts.now_ms - status.at_ms)
    if status.phase == "failed":
        return _failed(status, when)
    if status.phase == "stopped":
        return Finding(
            "stopped", f"It was stopped by SIGTERM, by Ctrl-C, or with another pipeline, {when}.", [_start(status)]
        )
    if status.phase == "done":
        lag = lag_of(status, facts)
        more = f" Since then, {counted(lag)} arrived." if lag else ""
        return Finding("done", f"It ended {when}, after all records of its start (--once).{more}", is_problem=lag > 0)
    if not status.is_alive(facts.now_ms):
        last = "" if status.batch is None else f" Its last micro-batch was {status.batch.number}."
        driver = f"process {status.run.pid} on {status.run.host}"
        return Finding(
            "died",
            f"It has published no status for {_duration(facts.now_ms - status.at_ms)}, but does so every "
            f"{HEARTBEAT_MS // 1000} s: its driver, {driver}, has died or is cut off.{last}",
            [_start(status)],
        )
    return None


def _failed(status: Status, when: str) -> Finding:
    problem = status.problem
    if problem is None:
        return Finding("failed", f"It failed {when}.", [_start(status)])
    if problem.record is not None:
        topic, partition, offset = problem.record
        return Finding(
            "stopped by a record",
            f"It stopped {when} at a record that does not match its format: {problem.reason}",
            [
                f"`ottla consume {topic} -p {partition} -o {offset} -n 1` shows the record.",
                'bad="skip" of the stream skips such records, bad="topic:NAME" writes them to a topic.',
                _start(status),
            ],
        )
    if problem.kind == "retriable" and not problem.restarts:
        return Finding("failed", f"It failed {when}: {problem.reason}", [_start(status)])
    if problem.kind == "retriable":
        return Finding(
            "failed",
            f"It gave up {when}, after {units.plural(problem.restarts, 'restart')} without a finished micro-batch: "
            f"{problem.reason}",
            [_start(status)],
        )
    return Finding(
        "failed",
        f"It failed {when}, and a restart would not help: {problem.reason}",
        [f"Change the program or its settings. {_start(status)}"],
    )


def _start(status: Status) -> str:
    where = "" if status.batch is None else f" after micro-batch {status.batch.number}"
    return f"`ottla stream run` starts it again; it continues{where}."


# -- the run is alive --------------------------------------------------------------------------------------------------


def _missing(_: Status, facts: Facts) -> Finding | None:
    if not facts.missing:
        return None
    return Finding("missing topic", f"Its input {', '.join(facts.missing)} does not exist any more.")


def _restarting(status: Status, facts: Facts) -> Finding | None:
    problem = status.problem
    if status.phase != "restarting" or problem is None:
        return None
    wait_ms = max(0, (problem.next_start_ms or 0) - facts.now_ms)
    return Finding(
        "restarting",
        f"It failed {ago(facts.now_ms - problem.at_ms)} and starts again in {_duration(wait_ms)}, restart "
        f"{problem.restarts + 1}: {problem.reason}",
    )


def _restarted(status: Status, facts: Facts) -> Finding | None:
    """It was restarted, and has not finished a micro-batch since."""
    problem = status.problem
    finished_ms = 0 if status.batch is None else status.batch.finished_ms
    if status.phase != "running" or problem is None or problem.at_ms < finished_ms:
        return None
    return Finding(
        "restarted",
        f"It failed {ago(facts.now_ms - problem.at_ms)}, was restarted, and has not finished a micro-batch since: "
        f"{problem.reason}",
    )


def _transaction(_: Status, facts: Facts) -> Finding | None:
    old = [each for each in facts.transactions if facts.now_ms - each.last_record_ms >= OPEN_MS]
    if not old:
        return None
    first = min(old, key=lambda each: each.last_record_ms)
    others = f" {units.plural(len(old), 'transaction')} are open." if len(old) > 1 else ""
    if first.mirror is not None:
        whose = f"A transaction of producer {first.producer_id} of the source of mirror {first.mirror}"
        promote = f"ottla mirror promote {first.mirror} {first.partition.topic}"
        step = f"Its end is copied: end it at the source. `{promote}` aborts it here, and ends the copy."
    elif first.transactional_id is None:
        whose = f"A transaction of producer {first.producer_id}, which no coordinator knows,"
        step = _ended_by(
            f"ottla txn abort {first.partition.topic}/{first.partition.partition} --start-offset {first.start_offset}"
        )
    else:
        whose = f"A transaction of {first.transactional_id!r}"
        step = _ended_by(f"ottla txn abort --transactional-id {first.transactional_id}")
    return Finding(
        "open transaction",
        f"{whose} is open in {first.partition} from offset {first.start_offset} on; its last record is "
        f"{_duration(facts.now_ms - first.last_record_ms)} old. {counted(first.waiting)} there must wait for its end, "
        f"because the query reads only committed records.{others}",
        [step],
    )


def _ended_by(command: str) -> str:
    return f"Its producer ends it, or its coordinator after the transaction timeout. `{command}` aborts it now."


def _busy(status: Status, facts: Facts) -> Finding | None:
    since_ms = status.busy_since_ms
    if since_ms is None:
        return None
    taken_ms = facts.now_ms - since_ms
    if status.batch is None:
        if taken_ms < BUSY_MS:
            return None
        return Finding(
            "long micro-batch",
            f"Its first micro-batch has run for {_duration(taken_ms)}. It reads all records since the start; "
            "max_records= of the pipeline limits a micro-batch.",
            is_problem=False,
        )
    if taken_ms < max(BUSY_MS, 3 * status.batch.duration_ms):
        return None
    return Finding(
        "long micro-batch",
        f"Micro-batch {status.batch.number + 1} has run for {_duration(taken_ms)}; the previous one took "
        f"{_duration(status.batch.duration_ms)}. {counted(lag_of(status, facts))} wait.",
    )


def _behind(status: Status, facts: Facts) -> Finding | None:
    batch, lag = status.batch, lag_of(status, facts)
    if batch is None or batch.processed_per_s <= 0 or lag < batch.processed_per_s * BEHIND_S:
        return None
    catch_up = units.duration(round(lag / batch.processed_per_s) * 1000)
    phase, share = _slowest(batch.phases_ms)
    work = _PHASES.get(phase, phase)
    earlier = next((each for each in status.samples if batch.finished_ms - each.at_ms <= 120_000), None)
    grows = earlier is not None and lag > earlier.lag
    trend = "falls further behind" if grows else "catches up"
    advice = [f"{share} % of a micro-batch is {work} ({phase})."]
    if work == "writing the checkpoint":
        advice.append("Put the checkpoints on a faster disk: --checkpoints.")
    elif phase == "addBatch":
        advice.append("More partitions of the inputs, more cores, or a cluster (--master) share this work.")
    return Finding(
        "slower than its input" if grows else "behind",
        f"It is {counted(lag)} behind, {catch_up} of work at {units.rate(batch.processed_per_s)} records/s, "
        f"and {trend}: {units.rate(batch.arrived_per_s)} records/s arrive.",
        advice,
        is_problem=grows,
    )


def _future(status: Status, facts: Facts) -> Finding | None:
    if status.watermark_ms is None or status.watermark_ms <= facts.now_ms + FUTURE_MS:
        return None
    return Finding(
        "event time in the future",
        f"The watermark is {units.moment_utc(status.watermark_ms)}: a record with a wrong time has moved it, and "
        "records with the right time are dropped as late.",
        [
            f"Stop it. After `ottla stream reset {status.run.pipeline}` it starts without this watermark.",
            "The program must skip the record, or the new start must be after it.",
        ],
    )


def _watermark(status: Status, facts: Facts) -> Finding | None:
    """An input without records holds the event time of several streams back."""
    if not status.run.has_event_time or len(status.inputs) < 2:
        return None
    newest_ms = max(each.last_record_ms for each in status.inputs)
    idle = [each for each in status.inputs if newest_ms - each.last_record_ms >= IDLE_MS and each.lag == 0]
    if not idle:
        return None
    slowest = min(idle, key=lambda each: each.last_record_ms)
    since = (
        f"for {_duration(facts.now_ms - slowest.last_record_ms)}" if slowest.last_record_ms else "since the run started"
    )
    partitions = ", ".join(str(each.partition) for each in slowest.partitions[:10])
    now = "not known yet" if status.watermark_ms is None else units.moment_utc(status.watermark_ms)
    return Finding(
        "watermark held back",
        f"The watermark ({now}) is held back by {slowest.topic}, partition {partitions}: no records {since}. With "
        "several streams, the slowest one has the event time, so windows and joins wait.",
        [f"The next record of {slowest.topic} moves it. With idle=, an idle stream follows the clock."],
    )


def _late(status: Status, _: Facts) -> Finding | None:
    late = sum(each.late for each in status.stores)
    if not late or status.watermark_ms is None:
        return None
    return Finding(
        "late records",
        f"{units.plural(late, 'row')} of the last micro-batch were dropped: their event time is before the watermark, "
        f"{units.moment_utc(status.watermark_ms)}.",
        ["late= of the stream says how late a record may be."],
    )


def _growing(status: Status, _: Facts) -> Finding | None:
    if not status.stores or not status.samples:
        return None
    first, rows = status.samples[0], status.state_rows
    grown = rows - first.state_rows
    if status.at_ms - first.at_ms < GROWTH_MS or grown < max(GROWTH_ROWS, first.state_rows // 5):
        return None
    largest = max(status.stores, key=lambda each: each.rows)
    if largest.removed:
        return None
    why = (
        "Rows are removed when the watermark passes them, and it does not."
        if status.run.has_event_time
        else "Nothing removes rows: without event time, each key remains."
    )
    return Finding(
        "state grows",
        f"The state has {units.plural(rows, 'row')}, {grown:,} more than {_duration(status.at_ms - first.at_ms)} "
        f"before; most are in {largest.operator!r}. {why}",
        [f"Memory: {units.size(sum(each.memory_bytes for each in status.stores))}; with RocksDB, more is on disk."],
        is_problem=status.run.has_event_time,
    )


def _invalid(status: Status, _: Facts) -> Finding | None:
    found = {name: number for name, number in status.invalid.items() if number}
    if not found:
        return None
    shown = ", ".join(f"{number:,} of {name}" for name, number in found.items())
    return Finding("invalid records", f"Invalid records of this run: {shown}.", is_problem=False)


def _healthy(status: Status, facts: Facts) -> Finding:
    batch, lag = status.batch, lag_of(status, facts)
    if batch is None:
        waited = _duration(facts.now_ms - status.run.started_ms)
        text = f"It started {waited} ago and has not finished a micro-batch yet."
        text += f" {counted(lag)} wait." if lag else " There are no records."
        return Finding("starting", text, is_problem=False)
    if lag == 0:
        times = [each.last_record_ms for each in status.inputs if each.last_record_ms]
        last = f" The last one was {_duration(facts.now_ms - max(times))} ago." if times else ""
        closing = (
            f" Windows that end after the watermark, {units.moment_utc(status.watermark_ms)}, wait for later records."
            if status.watermark_ms is not None and status.run.mode == "append"
            else ""
        )
        return Finding(
            "waiting for input", f"It has processed all records and waits for more.{last}{closing}", (), False
        )
    return Finding(
        "running",
        f"It makes progress: micro-batch {batch.number} ended {ago(facts.now_ms - batch.finished_ms)}, with "
        f"{units.rate(batch.processed_per_s)} records/s; {counted(lag)} wait.",
        is_problem=False,
    )


# -- words -------------------------------------------------------------------------------------------------------------


def _slowest(phases_ms: Mapping[str, int]) -> tuple[str, int]:
    if not phases_ms:
        return "unknown", 0
    phase = max(phases_ms, key=phases_ms.__getitem__)
    return phase, round(100 * phases_ms[phase] / max(1, sum(phases_ms.values())))


def _duration(milliseconds: int) -> str:
    """Return a duration in whole seconds."""
    return units.duration(max(1, round(milliseconds / 1000)) * 1000)


def ago(milliseconds: int) -> str:
    """Return `3 min 20 s ago`, in whole seconds."""
    return f"{_duration(milliseconds)} ago"
