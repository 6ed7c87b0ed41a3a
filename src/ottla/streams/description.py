"""A pipeline in words: its inputs, stateful operators and outputs. Without Spark.

`explain` prints a Description; a checkpoint contains one, so that a changed program is refused with the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ottla.streams.declarations import Input, Output, Pipeline, Stream

VERSION: Final = 1


@dataclass(frozen=True)
class Operator:
    """An operator with state: what it does, and by which columns."""

    kind: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} by {', '.join(self.columns)}" if self.columns else self.kind


@dataclass(frozen=True)
class QueryDescription:
    """One query of Spark: its output mode, operators with state, and the topics that it writes."""

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


# -- the description in a checkpoint -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """What a checkpoint says about the program that made it."""

    shuffle_partitions: int
    sources: Mapping[str, str]
    operators: Mapping[str, Sequence[str]]
    """The operators with state of each query, by its name."""
    version: int = VERSION

    def dumps(self) -> str:
        """Return the text for the checkpoint."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Stored:
        """Read the text of a checkpoint. Raises ValueError."""
        try:
            found: Any = json.loads(text)
            return cls(
                int(found["shuffle_partitions"]), dict(found["sources"]), dict(found["operators"]), found["version"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the description of the program is unreadable: {error!r}") from None


def stored(description: Description, shuffle_partitions: int) -> Stored:
    """Return what a checkpoint says about this program."""
    operators = {query.name: [str(each) for each in query.operators] for query in description.queries}
    return Stored(shuffle_partitions, dict(description.sources), operators)


def differences(before: Stored, now: Stored) -> list[str]:
    """Return the changes of a program with which its checkpoint cannot be used, a sentence for each."""
    found = [
        f"its input {name!r} was the topic {before.sources.get(name)!r}, and is {now.sources.get(name)!r}"
        for name in sorted(before.sources.keys() | now.sources.keys())
        if before.sources.get(name) != now.sources.get(name)
    ]
    for name in sorted(before.operators.keys() | now.operators.keys()):
        was, is_now = (list(each.operators.get(name, [])) for each in (before, now))
        if was != is_now:
            found.append(f"query {name!r} had {_listed(was)}, and has {_listed(is_now)}")
    return found


def _listed(operators: Sequence[str]) -> str:
    return " and ".join(operators) if operators else "no state"


def describe_inputs(pipeline: Pipeline) -> tuple[dict[str, str], dict[str, str]]:
    """Return a line about each input of a pipeline, and its topic, by parameter."""
    lines = {name: input_line(each) for name, each in pipeline.inputs.items()}
    return lines, {name: each.topic for name, each in pipeline.inputs.items()}
