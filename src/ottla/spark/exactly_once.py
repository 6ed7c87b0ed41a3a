"""Which task of which batch writes, and whether an earlier attempt has written already; decision record 19.

Each task writes in a transaction of its own, in which it also commits a *marker*: a group offset that tells how many
batches of its query the task has written. This module has the names and the decisions, without I/O;
`transactional_writer` executes them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ottla.spark.names import EXACTLY_ONCE_NAMES, OptionError

MARKERS: Final = "ottla.sinks"
"""The topic under whose name the markers are committed. It has no records."""
PREFIX: Final = "ottla.sink."
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
EXECUTION_ID: Final = "spark.sql.execution.id"
ADAPTIVE: Final = "spark.sql.adaptive.enabled"
ADAPTIVE_STREAMS: Final = "spark.sql.adaptive.streaming.stateless.enabled"
SHARED_TASKS: Final = "spark.ottla.sharedTasks"
"""In markers of earlier versions: whether the tasks of a pipeline wrote results and invalid records."""
LAYOUT: Final = (
    "spark.sql.shuffle.partitions",
    "spark.default.parallelism",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.minPartitionNum",
)
"""Settings that decide which rows a task has."""
PLANNING: Final = "ottla.planning"
"""How the source divides a micro-batch into tasks. Versions of Ottla that do it in another way have another number."""
_NOW: Final = {PLANNING: "2"}
_DEFAULTS: Final = {PLANNING: "1"}
_NO_MARKER: Final = -1


class ExactlyOnceError(Exception):
    """A write cannot be exactly once; the message says what to do. No row of the task was written."""


@dataclass(frozen=True)
class ExactlyOnce:
    """The identity of a write."""

    writer_id: str
    """Created with the writer; the identity of a batch write outside of a query if it has no other."""
    write_id: str | None = None
    """Chosen by the user; replaces the id of the query."""
    name: str = ""
    """Tells the sinks of one query apart."""
    prefix: str = PREFIX
    in_stream: bool = False
    """Whether the sink of a stream writes; otherwise a batch, also one in foreachBatch."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task to write its part of a batch."""

    write_name: str
    """The query and the sink."""
    task: int
    batch: int
    run: str
    """The run of the query: each start begins a new run."""
    write: str
    """Tells several writes of one run apart, which `foreachBatch` may contain."""
    layout: Mapping[str, str]
    is_lasting: bool
    """Whether another run may repeat the write; no run can if only its writer has the identity."""
    number: int = 0
    """0 for the first attempt that Spark makes."""

    @property
    def transactional_id(self) -> str:
        """One for each task of the query. It is also the name of the group that has the task's marker."""
        return name_of_task(self.write_name, self.task)


@dataclass(frozen=True)
class Marker:
    """How many batches a task has written, and the attempt that wrote the last one."""

    batches: int = _NO_MARKER
    run: str = ""
    write: str = ""
    rows: int = 0
    layout: Mapping[str, str] | None = None

    @cached_property
    def metadata(self) -> str:
        """The text that is committed with the offset."""
        values = {"run": self.run, "write": self.write, "rows": self.rows, "layout": self.layout}
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> Marker:
        """The marker of a committed offset; the metadata of a marker that a user has changed counts as empty."""
        try:
            values = json.loads(metadata or "{}")
            return cls(offset, values["run"], values["write"], int(values["rows"]), values["layout"])
        except (ValueError, KeyError, TypeError):
            return cls(offset)


def name_of_task(write_name: str, task: int) -> str:
    """The transactional id of a task."""
    return f"{write_name}.{task}"


def task_of(name: str, write_name: str) -> int | None:
    """The task that has this transactional id; None if it belongs to another write."""
    number = name.removeprefix(f"{write_name}.")
    return int(number) if number != name and number.isdecimal() else None


def from_options(option: Callable[[str], str | None], topic: str | None) -> ExactlyOnce | None:
    """Read the options of a sink; None without exactlyOnce=true. Raises OptionError."""
    given = {name: text for name in EXACTLY_ONCE_NAMES if (text := option(name)) is not None}
    switch = given.pop("exactlyOnce", "false").lower()
    if switch not in ("true", "false"):
        raise OptionError(f"exactlyOnce is {switch!r}; it must be true or false")
    if switch == "false":
        if given:
            raise OptionError(f"{min(given)} has no effect without exactlyOnce=true")
        return None
    for name, text in given.items():
        if not text:
            raise OptionError(f"{name} is empty")
    return ExactlyOnce(
        writer_id=str(uuid.uuid4()),
        write_id=given.get("exactlyOnceId"),
        name=given.get("exactlyOnceName", topic or ""),
        prefix=given.get("transactionalIdPrefix", PREFIX),
    )


def identify(once: ExactlyOnce, task: int, get_property: Callable[[str], str | None], number: int = 0) -> Attempt:
    """The attempt that runs now, from the local properties of its Spark task. Raises ExactlyOnceError."""
    if get_property("spark.speculation") == "true":
        raise ExactlyOnceError("exactlyOnce does not work with speculative tasks; set spark.speculation=false")
    query, batch = get_property(QUERY_ID), get_property(BATCH_ID)
    in_query = query is not None and batch is not None
    owner = once.write_id or (query if in_query else once.writer_id)
    is_lasting = owner != once.writer_id
    if is_lasting:
        _check_adaptive(once, get_property)
    return Attempt(
        write_name=f"{once.prefix}{owner}.{once.name}" if once.name else f"{once.prefix}{owner}",
        task=task,
        batch=int(batch or 0) if in_query else 0,
        run=(get_property(RUN_ID) or "") if in_query else once.writer_id,
        write=(get_property(EXECUTION_ID) or "") if in_query else "",
        layout={name: value for name in LAYOUT if (value := get_property(name)) is not None}
        | (_NOW if in_query else {}),
        is_lasting=is_lasting,
        number=number,
    )


def _check_adaptive(once: ExactlyOnce, get_property: Callable[[str], str | None]) -> None:
    """Raise ExactlyOnceError if Spark may choose the number of tasks at run time, e.g. by the number of cores.

    Spark executes a stateful query without it, and stateless ones and batches by a setting each.
    """
    settings = (ADAPTIVE, ADAPTIVE_STREAMS) if once.in_stream else (ADAPTIVE,)
    if all(get_property(name) != "false" for name in settings):
        raise ExactlyOnceError(
            "exactlyOnce does not work with adaptive query execution, which may divide a repeated batch into other "
            f"tasks; set {settings[-1]}=false"
        )


def may_continue(attempt: Attempt, kept: Marker) -> bool:
    """Whether a worker that still has the producer with which it stored the marker `kept` may write with it at once.

    The worker is then an attempt that has fenced and read the marker early. If another one has begun since, the brokers
    refuse the first request of this one; Spark's next attempt fences it in turn.
    """
    return attempt.number == 0 and kept.run == attempt.run and kept.batches == attempt.batch


def has_written(attempt: Attempt, marker: Marker) -> bool:
    """Whether an earlier attempt has written the rows. Raises ExactlyOnceError if another write has the same name."""
    if marker.batches <= attempt.batch:
        return False
    if marker.batches > attempt.batch + 1:
        raise ExactlyOnceError(
            f"Task {attempt.task} has written batch {marker.batches - 1} already, and now gets batch {attempt.batch}: "
            "the checkpoint is older than the output. Start the query with a new checkpoint, or another "
            "exactlyOnceName"
        )
    if marker.run == attempt.run and marker.write != attempt.write:
        raise ExactlyOnceError(
            f"Two writes of batch {attempt.batch} have the name {attempt.write_name!r}: set the option exactlyOnceName "
            "to another name for each write in foreachBatch"
        )
    return True


def check_layout(attempt: Attempt, markers: Iterable[Marker]) -> None:
    """Raise ExactlyOnceError if the batch is half written with other settings, so that rows may have moved."""
    for marker in markers:
        if marker.batches != attempt.batch + 1 or marker.layout is None:
            continue
        before, now = _DEFAULTS | dict(marker.layout), _DEFAULTS | dict(attempt.layout)
        if before.get(PLANNING) != now.get(PLANNING) or before.get(SHARED_TASKS) == "true":
            raise ExactlyOnceError(
                f"Batch {attempt.batch} is half written by a version of Ottla that divides it into other tasks: start "
                "the query once with that version, so that it ends the batch"
            )
        changed = [name for name in LAYOUT if before.get(name) != now.get(name)]
        if changed:
            name = changed[0]
            raise ExactlyOnceError(
                f"Batch {attempt.batch} is half written with {name}={before.get(name)}, and now it is "
                f"{now.get(name)}: start the query once with the former setting, so that it ends the batch"
            )


def check_rows(attempt: Attempt, marker: Marker, rows: int) -> None:
    """Raise ExactlyOnceError if a task that has written gets another number of rows now: rows have moved."""
    if marker.layout is None or rows == marker.rows:
        return
    if not attempt.write:
        raise ExactlyOnceError(
            f"Task {attempt.task} has written {marker.rows} rows with this exactlyOnceId, and now gets {rows}: a "
            "repetition of a write has the same rows. Set another exactlyOnceId for other rows"
        )
    raise ExactlyOnceError(
        f"Task {attempt.task} wrote {marker.rows} rows of batch {attempt.batch}, and now gets {rows}: the program "
        "or its options changed while the batch was half written. Start the query once as it was before"
    )
