"""A pipeline in words: its inputs, operators with state, and outputs. Without Spark.

`ottla stream explain` prints a Description. A checkpoint has the part that must not change (`checkpoint_files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ottla.streams.declarations import Input, Output, Pipeline, Stream


@dataclass(frozen=True)
class Operator:
    """An operator with state: what it does, and by which columns."""

    kind: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} by {', '.join(self.columns)}" if self.columns else self.kind


@dataclass(frozen=True)
class QueryDescription:
    """One Spark query: its output mode, operators with state, and the topics that it writes."""

    name: str
    mode: str
    topics: tuple[str, ...]
    operators: tuple[Operator, ...] = ()


@dataclass(frozen=True)
class Description:
    """A pipeline."""

    name: str
    exactly_once: bool
    inputs: Mapping[str, str]
    """A line about each input, by parameter."""
    outputs: Sequence[str]
    queries: Sequence[QueryDescription]
    sources: Mapping[str, str] = field(default_factory=dict)
    """The topic of each input, by parameter."""
    problems: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the description as an object for JSON."""
        return asdict(self)


def input_line(given: Input) -> str:
    """Describe an input."""
    if isinstance(given, Stream):
        parts = [f"{given.topic}: stream of {given.value}"]
        parts += [f"({given.schema})"] if given.schema and given.value == "json" else []
        parts += [f"key {given.key}"] if given.key else []
        parts += [f"event time {given.time}, late {given.late}"] if given.time else []
        parts += [f"idle after {given.idle}"] if given.idle else []
        parts += [f"at most {given.max_future} in the future"] if given.has_checked_time else []
        parts += ["invalid records: " + (given.dead_letters or given.bad)] if given.bad != "fail" else []
    else:
        parts = [f"{given.topic}: table of {given.value} by {given.key}"]
        parts += [f"({given.schema})"] if given.schema and given.value == "json" else []
        parts += ["current in each micro-batch" if given.as_of is None else "as it was at a time or offset"]
    return ", ".join(parts).replace(", (", " (")


def output_line(given: Output) -> str:
    """Describe an output."""
    key = f", key {', '.join(given.key)}" if given.key else ""
    deleted = f", deleted if {given.deleted}" if given.deleted else ""
    return f"{given.topic}: {given.mode}, {given.value}{key}{deleted}"


def text(description: Description) -> str:
    """Return a pipeline in words, one fact a line."""
    return "\n".join(_lines(description))


def _lines(description: Description) -> Iterator[str]:
    yield f"{description.name} ({'exactly once' if description.exactly_once else 'at least once'})"
    yield from (f"  in   {name}: {line}" for name, line in description.inputs.items())
    for query in description.queries:
        state = "; ".join(map(str, query.operators)) or "no state"
        yield f"  run  {query.name}: {query.mode} mode, {state}"
    yield from (f"  out  {line}" for line in description.outputs)
    yield from (f"  !    {problem}" for problem in description.problems)


def describe_inputs(pipeline: Pipeline) -> tuple[dict[str, str], dict[str, str]]:
    """Return a line about each input of a pipeline, and its topic, by parameter."""
    lines = {name: input_line(each) for name, each in pipeline.inputs.items()}
    return lines, {name: each.topic for name, each in pipeline.inputs.items()}
